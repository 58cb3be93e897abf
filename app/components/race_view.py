"""The race view: one or two lanes of text, figures, cards and live charts, fed by trace lines.

A ``gr.HTML`` whose template is static: text reaches the page through ``textContent`` alone, never
through a template. Its value is a string of lines (``race_value.py``); the browser reads what is
new in it. The scripts of ``assets/race_view`` are ES modules; here they are put one after the other
into one function, so that nothing has to be fetched. Knows no runs, engines or events.
"""

from __future__ import annotations

import html
import importlib.util
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import gradio as gr

ASSETS = Path(__file__).resolve().parents[2] / "assets" / "race_view"
STYLES = ("tokens.css", "layout.css", "text.css")
SCRIPTS = (
    "bytes.js",
    "trace.js",
    "feed.js",
    "text.js",
    "card.js",
    "figures.js",
    "chart_specs.js",
    "plotly.js",
    "charts.js",
    "view.js",
)


class RaceView(gr.HTML):
    """A ``gr.HTML`` whose value is the string of a ``RaceValue``; "" is the empty state.

    First line: the run as JSON. Further lines: ``<lane>\\t<trace line>``, ``verdict\\t{"lane",
    "right"}``, ``pace\\t{"pace"}``, ``status\\t{"text", "kind"}`` (kind: ``loading``, ``waiting``,
    ``note``, ``refused``, ``stopped``). Send values with ``show_progress="hidden"``, at most 15 a
    second. ``place``: the arguments of ``gr.HTML`` that say where it stands (``elem_id``, ...).
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
        return {"type": "string", "description": "run line, then <lane>\\t<trace line> lines"}


def script() -> str:
    """The body of ``js_on_load``: styles once a page, all modules in one scope, the mount."""
    modules = "\n".join(bare_module((ASSETS / name).read_text("utf-8")) for name in SCRIPTS)
    return f"""{style_once(styles(), "race-view-style")}
{modules}
mountRaceView(element, props, watch);"""


def styles() -> str:
    """All style sheets as one."""
    return "\n".join((ASSETS / name).read_text("utf-8") for name in STYLES)


def bare_module(source: str) -> str:
    """An ES module without its imports and exports, to stand in one scope with the others."""
    source = re.sub(r"^import [^;]*;\n", "", source, flags=re.MULTILINE)
    return re.sub(r"^export ", "", source, flags=re.MULTILINE)


def style_once(css: str, name: str) -> str:
    """A statement that adds a style sheet to the page unless one of that name is there already.

    Gradio would render ``css_template`` again at each update, which restyles the whole page.
    """
    quoted = css.replace("\\", "\\\\").replace("`", "\\`").replace("${", "\\${")
    return f"""if (!document.getElementById("{name}")) {{
  const sheet = document.createElement("style");
  sheet.id = "{name}";
  sheet.textContent = `{quoted}`;
  document.head.append(sheet);
}}"""


def template(url: str) -> str:
    """The static HTML, with the address of plotly.js filled in."""
    return (ASSETS / "view.html").read_text("utf-8").replace("@plotly", html.escape(url))


def plotly_url() -> str:
    """Where this server serves the plotly.js of the installed wheel; empty when there is none."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        return ""
    path = Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    if not path.is_file():
        return ""
    gr.set_static_paths([path])
    return "/gradio_api/file=" + quote(path.resolve().as_posix(), safe="/:")
