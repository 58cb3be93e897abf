"""The tab "How it works": a page of prose with pictures that its scripts draw from recorded runs.

Figures are filled in when the page is built (``explain_facts.py``). Knows no runs or engines.
"""

from __future__ import annotations

from app.components import explain_facts
from app.components.line_view import LineView


class ExplainView(LineView):
    """Takes no value: its recordings come with the page (``recorded.py``)."""

    page = "explain/explain.html"
    mount = "mountExplain"
    lines = "nothing"

    @classmethod
    def template(cls, plotly: str) -> str:
        """The page with its figures; nothing in it needs plotly."""
        return explain_facts.page()
