"""The Frontier view: points and curves of measured results, drawn by the browser alone.

The server is asked once for what there is to draw. Knows no runs and no files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from app.components import files
from app.components.line_view import server_function


class FrontierView(gr.HTML):
    """``told``: what is drawn, as JSON. ``place``: where it stands (``elem_id``, ...)."""

    page = "views/frontier/frontier.html"

    def __init__(self, told: Callable[[], str], **place: Any) -> None:
        super().__init__(
            "",
            html_template=files.template(self.page),
            css_template="",
            js_on_load="window.mars.mountFrontierView(element, server);",
            server_functions=[server_function("told", lambda _: told())],
            apply_default_css=False,
            container=False,
            padding=False,
            **place,
        )
