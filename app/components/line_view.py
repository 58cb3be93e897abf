"""What the views share: a ``gr.HTML`` fed with a string of lines, whose template is static.

Text reaches the page through ``textContent`` alone, never through a template. Scripts and styles
stand in the document's head (``bundle.py``). Knows no runs, engines or events.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, unquote

import gradio as gr

from app.components import files

_FILES = "/gradio_api/file="


class LineView(gr.HTML):
    """A ``gr.HTML`` whose value is a string of lines; "" is the empty state.

    Send values with ``show_progress="hidden"``, at most 15 per second. ``missed``: a run -> all of
    it as one value, asked for by a page that missed lines of a stream. ``place``: the arguments of
    ``gr.HTML`` that say where it stands (``elem_id``, ...). A view sets: ``page``, its HTML under
    ``assets/web/``; ``mount``, the exported function that mounts it; ``lines``, what its lines are.
    """

    page: str
    mount: ClassVar[str]
    lines: ClassVar[str]

    def __init__(
        self,
        value: str = "",
        template: str = "",
        missed: Callable[[str], str] | None = None,
        **place: Any,
    ) -> None:
        given, asked = "element, props, watch", []
        if missed is not None:
            given, asked = f"{given}, server.missed", [server_function("missed", missed)]
        super().__init__(
            value,
            html_template=template or self.template(plotly_url()),
            css_template="",
            js_on_load=f"window.mars.{self.mount}({given});",
            server_functions=asked,
            apply_default_css=False,
            container=False,
            padding=False,
            **place,
        )

    @classmethod
    def template(cls, plotly: str) -> str:
        """The static HTML, with the address of plotly.js filled in."""
        return files.template(cls.page, plotly=plotly)

    def postprocess(self, value: str | None) -> str:
        """The lines as they are: they hold data, not HTML."""
        return value or ""

    def api_info(self) -> dict[str, Any]:
        """What the API says of the value: a string of lines."""
        return {"type": "string", "description": self.lines}


def server_function(name: str, answer: Callable[[str], Any]) -> Callable[[str], Any]:
    """What the page's script calls by ``name``. Gradio marks it, so it is a function of its own."""

    def asked(given: str) -> Any:
        return answer(given)

    asked.__name__ = name
    return asked


def plotly_url() -> str:
    """Where this server serves the plotly.js of the installed wheel; empty when there is none."""
    path = files.plotly_file()
    return served_at(path) if path else ""


def served_at(path: Path) -> str:
    """Where this server serves a file, which everybody may read from now on."""
    gr.set_static_paths([path])
    return _FILES + quote(path.resolve().as_posix(), safe="/:")


def file_path(address: str) -> str:
    """The path of the file that is served at an address of ``served_at``."""
    return unquote(address.removeprefix(_FILES))
