"""The Frontier tab: one view; the runs that it opens go the way of every view's."""

from __future__ import annotations

from app.components.views import FrontierView
from app.frontier.sets import frontier_json


def frontier_tab() -> None:
    """Build the tab; there is nothing to wire."""
    FrontierView(frontier_json, elem_id="frontier")
