"""The tray of pinned runs and their comparison: kept and drawn by the browser alone.

The server is asked for one thing: whether a trace that somebody brings is one. Knows no runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from app.components import files
from app.components.line_view import plotly_url

Judge = Callable[[str, gr.Request], dict[str, Any]]


class CompareView(gr.HTML):
    """``judge``, a function of that name which gradio marks: the text of a trace and who brings it
    -> ``{"lines", "pin"}`` or ``{"error"}``. ``most_chars``: the longest text that is sent to it.
    ``place``: where it stands (``elem_id``, ...)."""

    page = "views/compare/compare.html"

    def __init__(self, judge: Judge, most_chars: int, **place: Any) -> None:
        super().__init__(
            "",
            html_template=files.template(self.page, plotly=plotly_url(), most=str(most_chars)),
            css_template="",
            js_on_load="window.mars.mountCompareView(element, server);",
            server_functions=[judge],
            apply_default_css=False,
            container=False,
            padding=False,
            **place,
        )
