"""The tab "How it works": one component and nothing to wire."""

from __future__ import annotations

from app.components.explain_view import ExplainView


def explain_tab() -> None:
    """Build the tab."""
    ExplainView(elem_id="explain")
