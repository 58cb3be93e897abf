"""The views: ``gr.HTML`` components with static templates. The value of most views is a string of
lines.

Scripts set text only through ``textContent``, never through a template. The scripts and styles are
part of the document (``app/server.py``, ``app/ui/theme.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gradio as gr

from app.ui.files import file_address
from app.ui.results import points_json
from mars_runtime.display import web

Answer = Callable[..., Any]
"""A function that the script of a view calls with a value; it may also have the request as a
parameter.
"""


class View(gr.HTML):
    """A ``gr.HTML`` with a script that is part of the page.

    A subclass sets ``page``, the path of its HTML in ``assets/web/``, and ``mount``, the name of
    the JavaScript function that mounts it.
    """

    page: str
    mount: ClassVar[str]

    def __init__(
        self,
        value: str,
        template: str,
        parameters: str,
        functions: list[Callable[..., Any]],
        **place: Any,
    ) -> None:
        super().__init__(
            value,
            html_template=template,
            css_template="",
            js_on_load=f"window.mars.{self.mount}({parameters});",
            server_functions=functions,
            apply_default_css=False,
            container=False,
            padding=False,
            **place,
        )


class LineView(View):
    """A view with a string of lines as its value (``stream.RunLog``); "" is the empty state.

    Send values with ``show_progress="hidden"``, at most 15 per second. missed: server function that
    returns a whole run, for a page that missed lines. asks: further server functions. ``lines`` of
    a subclass describes the lines in the API.
    """

    lines: ClassVar[str]
    recorded: ClassVar[str] = ""
    """File with the recorded result that is shown until the visitor runs something."""

    def __init__(
        self,
        value: str = "",
        template: str = "",
        missed: Callable[[str], str] | None = None,
        asks: Sequence[Answer] = (),
        **place: Any,
    ) -> None:
        functions = list(asks)
        if missed is not None:
            functions.append(server_function("missed", missed))
        parameters = "element, props, watch, server" if functions else "element, props, watch"
        template = template or self.template(file_address("plotly.js"))
        super().__init__(value, template, parameters, functions, **place)

    @classmethod
    def template(cls, plotly: str) -> str:
        recorded = file_address(cls.recorded) if cls.recorded else ""
        return web.template(cls.page, plotly=plotly, recorded=recorded)

    def postprocess(self, value: str | None) -> str:
        return value or ""

    def api_info(self) -> dict[str, Any]:
        return {"type": "string", "description": self.lines}


class RaceView(LineView):
    """One to four lanes with text, figures, cards and live charts.

    The first line is the run as JSON. Further lines are ``<lane>\\t<trace line>``,
    ``verdict\\t{"lane", "right"}``, ``pace\\t{"pace"}`` and ``status\\t{"text", "kind"}`` (kind:
    ``waiting`` or ``note``).
    """

    page = "views/race/view.html"
    mount = "mountRaceView"
    lines = "run line, then <lane>\\t<trace line> lines"

    def __init__(self, value: str = "", replay: str = "", opens: bool = False, **more: Any) -> None:
        """Create the view.

        replay: URL of the page with which a run is exported; empty disables export.
        opens: this is the view of the Live tab. Its initial recording plays once
        (``assets/web/views/race/view.js``). ``window.mars.start`` triggers the event ``submit``,
        which runs what a view requests (``assets/web/views/page/page.js``).
        """
        super().__init__(value, self.template(file_address("plotly.js"), replay, opens), **more)
        if opens:
            self.js_on_load = f'{self.js_on_load} window.mars.start = () => trigger("submit");'

    @classmethod
    def template(cls, plotly: str, replay: str = "", opens: bool = False) -> str:
        is_open = "true" if opens else ""
        return web.template(cls.page, plotly=plotly, replay=replay, opens=is_open)


class ConversationView(LineView):
    """The earlier turns above the race, which only the browser stores.

    The value is the name of the checkpoint, or "" if the checkpoint does not support conversations.
    """

    page = "views/conversation/view.html"
    mount = "mountConversationView"
    lines = "the name of a checkpoint"


class ThroughputView(LineView):
    """Requests that are decoded together, with live figures.

    The first line is the run as JSON (``run``, ``rows``, ``prompts``). Further lines are
    ``begin\t{"method", "title", "round", "of"}``, ``pass\t{"at", "rows": [[prompt, tokens, text,
    stop if ended]]}``, ``move\t{"at", "tau", "block_size", "lossless"}``, ``figures\t{"at",
    "done", "waiting", "rate", "tpf"}``, ``level\t{"rate"}``, ``measured\t{...}``
    (``ThroughputRun``) and ``status\t{"text", "kind"}``.
    """

    page = "views/throughput/throughput.html"
    mount = "mountThroughputView"
    recorded = "throughput.txt"
    lines = "run line, then <tag>\t<JSON> lines"


class GridView(LineView):
    """The Trade-off view: agreement with AR by tokens per pass, and a heat map of τ and B.

    The first line is the grid as JSON (``run``, ``prompt``, ``rows``: [{"tau", "lossless"}],
    ``columns``: [B]). Further lines are ``<cell>\\t<trace line>``, ``rounds\\t{"cell", "kind",
    "ratio", "rate", ...}`` (``speedup.Rounds``), ``verdict\\t{"cell", "right"}`` and
    ``status\\t{"text", "kind"}``. The names of cells are ``ar``, ``lookup`` and
    ``r<row>c<column>``.
    """

    page = "views/grid/grid.html"
    mount = "mountGridView"
    recorded = "grid.txt"
    lines = "grid line, then <cell>\\t<trace line> lines"

    @classmethod
    def template(cls, plotly: str) -> str:
        recorded = file_address(cls.recorded)
        return web.template(cls.page, plotly=plotly, recorded=recorded, points=points_json())


class ExplainView(View):
    page = "explain/explain.html"
    mount = "mountExplain"

    def __init__(self, **place: Any) -> None:
        super().__init__("", web.template(self.page), "element", [], **place)


class ReviewView(View):
    """Sets of answers, side by side.

    parse_prompts: server function ``prompts``, called with a file of prompts as JSON. checkpoints:
    names of the models to choose from, as JSON.
    """

    page = "views/review/review.html"
    mount = "mountReview"

    def __init__(self, parse_prompts: Callable[[str], Any], checkpoints: str, **place: Any) -> None:
        study = file_address("study.jsonl")
        template = web.template(self.page, study=study, checkpoints=checkpoints)
        functions = [server_function("prompts", parse_prompts)]
        super().__init__("", template, "element, server", functions, **place)


def server_function(name: str, answer: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a new function that the page's script calls by ``name``. Gradio sets attributes on the
    function, so it cannot be shared between views.
    """

    def function(posted: str) -> Any:
        return answer(posted)

    function.__name__ = name
    return function
