"""The tab "How it works", and the button that starts the tour over the page."""

from __future__ import annotations

import gradio as gr

from app.components.views import ExplainView


def explain_tab() -> None:
    """Build the tab; there is nothing to wire."""
    ExplainView(elem_id="explain")


def present_button() -> None:
    """Build and wire the button; the tour needs no server."""
    button = gr.Button("Present", size="sm", min_width=0, elem_id="present")
    button.click(None, js="() => { window.mars.mountPresenter(); }", api_visibility="private")
