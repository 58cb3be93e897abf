"""The views: a ``gr.HTML`` each whose template is static, most of them fed with a string of lines.

Text reaches the page through ``textContent`` alone, never through a template. Scripts and styles
come with the document (``serving/serve.py``, ``layout/theme.py``). Knows no runs, engines, events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gradio as gr

from app.components import assets
from app.components.files import file_address

Judge = Callable[[str, gr.Request], dict[str, Any]]
Answer = Callable[..., Any]
"""What a view's script asks of the server: a value, and perhaps who asks."""


class View(gr.HTML):
    """A ``gr.HTML`` whose scripts the page brings along. A view sets ``page``, its HTML under
    ``assets/web/``, and ``mount``, the exported function that mounts it."""

    page: str
    mount: ClassVar[str]

    def __init__(
        self, value: str, template: str, given: str, asked: list[Callable[..., Any]], **place: Any
    ) -> None:
        """``given``: arguments of ``mount``; ``asked``: what its script may ask the server;
        ``place``: the arguments of ``gr.HTML`` that say where it stands (``elem_id``, ...)."""
        super().__init__(
            value,
            html_template=template,
            css_template="",
            js_on_load=f"window.mars.{self.mount}({given});",
            server_functions=asked,
            apply_default_css=False,
            container=False,
            padding=False,
            **place,
        )


class LineView(View):
    """A view whose value is a string of lines (``run_log.py``); "" is the empty state.

    Send values with ``show_progress="hidden"``, at most 15 per second. ``missed``: a run -> all of
    it as one value, asked for by a page that missed lines of a stream. A view sets ``lines`` too,
    what its lines are.
    """

    lines: ClassVar[str]

    def __init__(
        self,
        value: str = "",
        template: str = "",
        missed: Callable[[str], str] | None = None,
        asks: Sequence[Answer] = (),
        **place: Any,
    ) -> None:
        asked = list(asks)
        if missed is not None:
            asked.append(server_function("missed", missed))
        given = "element, props, watch, server" if asked else "element, props, watch"
        template = template or self.template(file_address("plotly.js"))
        super().__init__(value, template, given, asked, **place)

    @classmethod
    def template(cls, plotly: str) -> str:
        """The static HTML, with the address of plotly.js filled in."""
        return assets.template(cls.page, plotly=plotly)

    def postprocess(self, value: str | None) -> str:
        """The lines as they are: they hold data, not HTML."""
        return value or ""

    def api_info(self) -> dict[str, Any]:
        """What the API says of the value: a string of lines."""
        return {"type": "string", "description": self.lines}


class RaceView(LineView):
    """One to four lanes of text, figures, cards and live charts.

    First line: the run as JSON. Further lines: ``<lane>\\t<trace line>``, ``verdict\\t{"lane",
    "right"}``, ``pace\\t{"pace"}``, ``status\\t{"text", "kind"}`` (kind: ``waiting`` or ``note``).
    """

    page = "views/race/view.html"
    mount = "mountRaceView"
    lines = "run line, then <lane>\\t<trace line> lines"

    def __init__(self, value: str = "", replay: str = "", opens: bool = False, **more: Any) -> None:
        """``replay``: where the page is that a run can be saved in; without it none can. ``opens``:
        the recording that it begins with plays once (``assets/web/views/race/view.js``)."""
        super().__init__(value, self.template(file_address("plotly.js"), replay, opens), **more)

    @classmethod
    def template(cls, plotly: str, replay: str = "", opens: bool = False) -> str:
        """The static HTML, with addresses filled in."""
        told = "true" if opens else ""
        return assets.template(cls.page, plotly=plotly, replay=replay, opens=told)


class ConversationView(LineView):
    """The turns above the race, kept and drawn by the browser alone.

    Its value is the checkpoint that holds conversations, "" where the one chosen holds none.
    """

    page = "views/conversation/view.html"
    mount = "mountConversationView"
    lines = "the name of a checkpoint"


class BatchView(LineView):
    """One lane per row for one or two methods, totals and figures.

    First line: the run as JSON (``run``, ``sides``: [{"side", "method", "title"}], ``prompts``).
    Further lines: ``<side>\\t<trace line>``, ``totals\\t{"side", ...}``, ``figures\\t{"time",
    "forwards"}``, ``rounds\\t{"side", "kind", "ratio", "rate", ...}`` (``speedup.Rounds``),
    ``verdict\\t{"side", "row", "right"}``, ``status\\t{"text", "kind"}``.
    """

    page = "views/batch/batch.html"
    mount = "mountBatchView"
    lines = "run line, then <side>\\t<trace line> lines"


class GridView(LineView):
    """Small multiples of one prompt over τ and B.

    First line: the grid as JSON (``run``, ``prompt``, ``rows``: [{"tau", "lossless"}],
    ``columns``: [B]). Further lines: ``<cell>\\t<trace line>``, ``rounds\\t{"cell", "kind",
    "ratio", "rate", ...}`` (``speedup.Rounds``), ``verdict\\t{"cell", "right"}``,
    ``status\\t{"text", "kind"}``. Cells are called ``ar`` and ``r<row>c<column>``. A cell that is
    opened is shown by the race view whose ``elem_id`` is ``grid-race``.
    """

    page = "views/grid/grid.html"
    mount = "mountGridView"
    lines = "grid line, then <cell>\\t<trace line> lines"


class TrafficView(LineView):
    """Figures and charts of requests that arrive at their own times.

    First line: the run as JSON (``run``, ``question``, ``kind``, ``ways``: [{"name", "title"}],
    ``seconds``, ``requests``, ``budget``). Further lines: ``about\\t{...}``, ``tick\\t{"way",
    "at", ...}``, ``decision\\t{"way", "at", "level", ...}``, ``point\\t{"way", "offered", ...}``,
    ``agreement\\t{"way", "share", ...}``, ``day\\t{"fleets", ...}``, ``status\\t{"text", "kind"}``.
    """

    page = "views/load/load.html"
    mount = "mountLoadView"
    lines = "run line, then <kind>\\t<JSON> lines"


class ExplainView(LineView):
    """Prose, measured figures in it (``assets.py``), and pictures of recorded runs that come
    with the page. Takes no value."""

    page = "explain/explain.html"
    mount = "mountExplain"
    lines = "nothing"

    @classmethod
    def template(cls, plotly: str) -> str:
        """The page with its figures; nothing in it needs plotly."""
        return assets.explain_page()


class CompareView(View):
    """The tray of pinned runs and their comparison, kept and drawn by the browser alone. ``judge``,
    a function of that name which gradio marks: the text of a trace and who brings it -> ``{"lines",
    "pin"}`` or ``{"error"}``. ``most_chars``: the longest text that is sent to it."""

    page = "views/compare/compare.html"
    mount = "mountCompareView"

    def __init__(self, judge: Judge, most_chars: int, **place: Any) -> None:
        plotly = file_address("plotly.js")
        template = assets.template(self.page, plotly=plotly, most=str(most_chars))
        super().__init__("", template, "element, server", [judge], **place)


class FrontierView(View):
    """Points and curves of measured results. ``told``: what is drawn, as JSON, asked for once."""

    page = "views/frontier/frontier.html"
    mount = "mountFrontierView"

    def __init__(self, told: Callable[[], str], **place: Any) -> None:
        asked = [server_function("told", lambda _: told())]
        super().__init__("", assets.template(self.page), "element, server", asked, **place)


class ReviewView(View):
    """Answers of several ways read side by side. Its script and style come when the tab is opened,
    and it asks for everything at ``app/review/routes.py``."""

    page = "views/review/review.html"
    mount = "mountReviewTab"

    def __init__(self, **place: Any) -> None:
        files = {"plotly": "plotly.js", "script": "review.js", "style": "review.css"}
        found = {each: file_address(name) for each, name in files.items()}
        super().__init__("", assets.template(self.page, **found), "element", [], **place)


def server_function(name: str, answer: Callable[[str], Any]) -> Callable[[str], Any]:
    """What the page's script calls by ``name``. Gradio marks it, so it is a function of its own."""

    def asked(given: str) -> Any:
        return answer(given)

    asked.__name__ = name
    return asked
