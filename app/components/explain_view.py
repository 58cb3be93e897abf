"""The tab "How it works": a page of prose with pictures that its scripts draw from recorded runs.

Figures are filled in from what was measured when the page is built. Knows no runs or engines.
"""

from __future__ import annotations

import html
import re

from app.components.explain_facts import facts
from app.components.line_view import LineView

PLACE = re.compile(r"@([a-z]+(?:-[a-z]+)*)")
ROWS = "tau-rows"


class ExplainView(LineView):
    """Takes no value: its recordings come with the page (``recorded.py``)."""

    page = "explain/explain.html"
    mount = "mountExplain"
    lines = "nothing"

    @classmethod
    def template(cls, plotly: str) -> str:
        """The page with its figures. Raises KeyError for a figure that nobody measured."""
        known = facts()
        fill = {name: text if name == ROWS else html.escape(text) for name, text in known.items()}
        return PLACE.sub(lambda place: fill[place.group(1)], super().template(plotly))
