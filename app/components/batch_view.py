"""The batch view: a lane a row for one or two methods, totals and figures, fed by trace lines.

A ``gr.HTML`` with a static template, as ``race_view.py``: text reaches the page through
``textContent`` alone. Its value is a string of lines (``race_value.py``). Knows no runs, engines or
events.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import gradio as gr

from app.components.race_view import bare_module, plotly_url, style_once, styles

ASSETS = Path(__file__).resolve().parents[2] / "assets"
SCRIPTS = (
    "race_view/bytes.js",
    "race_view/feed.js",
    "race_view/plotly.js",
    "batch_view/dom.js",
    "batch_view/side.js",
    "batch_view/lanes.js",
    "batch_view/totals.js",
    "batch_view/plots.js",
    "batch_view/view.js",
)


class BatchView(gr.HTML):
    """A ``gr.HTML`` whose value is a string of lines; "" is the empty state.

    First line: the run as JSON (``run``, ``sides``: [{"side", "method", "title"}], ``prompts``).
    Further lines: ``<side>\\t<trace line>``, ``totals\\t{"side", ...}``, ``figures\\t{"time",
    "forwards"}``, ``verdict\\t{"side", "row", "right"}``, ``status\\t{"text", "kind"}``. ``place``:
    the arguments of ``gr.HTML`` that say where it stands.
    """

    def __init__(self, value: str = "", **place: Any) -> None:
        super().__init__(
            value,
            html_template=template(plotly_url()),
            css_template="",
            js_on_load=script(),
            apply_default_css=False,
            container=False,
            padding=False,
            **place,
        )

    def postprocess(self, value: str | None) -> str:
        """The lines as they are: they hold data, not HTML."""
        return value or ""

    def api_info(self) -> dict[str, Any]:
        """What the API says of the value: a string of lines."""
        return {"type": "string", "description": "run line, then <side>\\t<trace line> lines"}


def script() -> str:
    """The body of ``js_on_load``: styles once a page, all modules in one scope, the mount."""
    modules = "\n".join(bare_module((ASSETS / name).read_text("utf-8")) for name in SCRIPTS)
    own = (ASSETS / "batch_view" / "batch.css").read_text("utf-8")
    return f"""{style_once(styles(), "race-view-style")}
{style_once(own, "batch-view-style")}
{modules}
mountBatchView(element, props, watch);"""


def template(url: str) -> str:
    """The static HTML, with the address of plotly.js filled in."""
    page = (ASSETS / "batch_view" / "batch.html").read_text("utf-8")
    return page.replace("@plotly", html.escape(url))
