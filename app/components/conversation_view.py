"""The conversation above the race: its turns, kept and drawn by the browser alone.

Knows no runs.
"""

from __future__ import annotations

from app.components.line_view import LineView


class ConversationView(LineView):
    """Its value is the checkpoint that holds conversations, "" where the one chosen holds none."""

    page = "views/conversation/view.html"
    mount = "mountConversationView"
    lines = "the name of a checkpoint"
