"""The views: ``gr.HTML`` components with static templates; most receive a string of lines.

Text is only set through ``textContent``, never through a template. Scripts and styles are part of
the document (``app/server.py``, ``app/ui/theme.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gradio as gr

from app.ui import assets
from app.ui.files import file_address
from mars_runtime import web

Judge = Callable[[str, gr.Request], dict[str, Any]]
Answer = Callable[..., Any]
"""A function that a view's script calls, with a value and possibly the request."""


class View(gr.HTML):
    """A ``gr.HTML`` with scripts that are part of the page.

    A subclass sets ``page``, its HTML in ``assets/web/``, and ``mount``, the exported function that
    mounts it.
    """

    page: str
    mount: ClassVar[str]

    def __init__(
        self, value: str, template: str, given: str, asked: list[Callable[..., Any]], **place: Any
    ) -> None:
        """Create the view. given: arguments of ``mount``. asked: functions that its script may
        call. place: other arguments of ``gr.HTML`` (``elem_id``, ...).
        """
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
    """A view with a string of lines as value (``run_log.py``); "" is the empty state.

    Send values with ``show_progress="hidden"``, at most 15 per second. missed: returns a whole run
    as one value, for a page that missed lines of a stream. A subclass also sets ``lines``, a
    description of its lines.
    """

    lines: ClassVar[str]
    recorded: ClassVar[str] = ""
    """File of the result that is shown until a visitor runs something."""

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
        """Return the static HTML with the addresses of plotly.js and of the recorded result."""
        recorded = file_address(cls.recorded) if cls.recorded else ""
        return web.template(cls.page, plotly=plotly, recorded=recorded)

    def postprocess(self, value: str | None) -> str:
        """Return the lines unchanged: they are data, not HTML."""
        return value or ""

    def api_info(self) -> dict[str, Any]:
        """Return the API's description of the value: a string of lines."""
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
        """Create the view. replay: address of the page used to export a run; empty disables export.
        opens: whether it is the view of the Live tab. Its initial recording plays once
        (``assets/web/views/race/view.js``), and ``window.mars.start`` triggers its event
        ``submit``, which runs what a view requests (``assets/web/views/page/page.js``).
        """
        super().__init__(value, self.template(file_address("plotly.js"), replay, opens), **more)
        if opens:
            self.js_on_load = f'{self.js_on_load} window.mars.start = () => trigger("submit");'

    @classmethod
    def template(cls, plotly: str, replay: str = "", opens: bool = False) -> str:
        """Return the static HTML with the addresses filled in."""
        is_open = "true" if opens else ""
        return web.template(cls.page, plotly=plotly, replay=replay, opens=is_open)


class ConversationView(LineView):
    """The turns above the race, stored and drawn only in the browser.

    Its value is the checkpoint that can have conversations; "" if the chosen one cannot.
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
    recorded = "batch.txt"
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
    recorded = "grid.txt"
    lines = "grid line, then <cell>\\t<trace line> lines"


class TrafficView(LineView):
    """Figures and charts of requests that arrive at their own times.

    First line: the run as JSON (``run``, ``question``, ``kind``, ``ways``: [{"name", "title"}],
    ``seconds``, ``requests``, ``budget``). Further lines: ``about\\t{...}``, ``tick\\t{"way",
    "at", ...}``, ``decision\\t{"way", "at", "level", ...}``, ``point\\t{"way", "offered", ...}``,
    ``agreement\\t{"way", "share", ...}``, ``status\\t{"text", "kind"}``.
    """

    page = "views/load/load.html"
    mount = "mountLoadView"
    recorded = "load.txt"
    lines = "run line, then <kind>\\t<JSON> lines"


class StabilityView(LineView):
    """The answers to one prompt by seed, as a tree of what they have in common.

    First line: the run as JSON (``run``, ``prompt``, ``method``, ``temperature``, ``seeds``).
    Further lines: ``s<seed>\\t<trace line>``, ``status\\t{"text", "kind"}``.
    """

    page = "views/stability/stability.html"
    mount = "mountStabilityView"
    recorded = "stability.txt"
    lines = "run line, then s<seed>\\t<trace line> lines"


class ExplainView(LineView):
    """Prose with measured figures (``assets.py``) and pictures of recorded runs that are part of
    the page. It takes no value.
    """

    page = "explain/explain.html"
    mount = "mountExplain"
    lines = "nothing"

    @classmethod
    def template(cls, plotly: str) -> str:
        """Return the page with its figures; it does not use plotly."""
        return assets.explain_page()


class CompareView(View):
    """The tray of pinned runs and their comparison, stored and drawn only in the browser.

    judge: a server function with that name that takes the text of a trace and the request, and
    returns ``{"lines", "pin"}`` or ``{"error"}``. most_chars: maximum length of the text.
    """

    page = "views/compare/compare.html"
    mount = "mountCompareView"

    def __init__(self, judge: Judge, most_chars: int, **place: Any) -> None:
        plotly = file_address("plotly.js")
        template = web.template(self.page, plotly=plotly, most=str(most_chars))
        super().__init__("", template, "element, server", [judge], **place)


class FrontierView(View):
    """Points and curves of measured results.

    told: a function that returns the data to draw as JSON; it is called once.
    """

    page = "views/frontier/frontier.html"
    mount = "mountFrontierView"

    def __init__(self, told: Callable[[], str], **place: Any) -> None:
        functions = [server_function("told", lambda _: told())]
        super().__init__("", web.template(self.page), "element, server", functions, **place)


class ReviewView(View):
    """Answers of several methods side by side.

    Its script and style are loaded when the tab is opened; its requests go to
    ``app/review/routes.py``.
    """

    page = "views/review/review.html"
    mount = "mountReviewTab"

    def __init__(self, **place: Any) -> None:
        files = {"plotly": "plotly.js", "script": "review.js", "style": "review.css"}
        addresses = {key: file_address(name) for key, name in files.items()}
        super().__init__("", web.template(self.page, **addresses), "element", [], **place)


def server_function(name: str, answer: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a new function that the page's script calls by ``name``. It must be new because Gradio
    sets attributes on it.
    """

    def asked(posted: str) -> Any:
        return answer(posted)

    asked.__name__ = name
    return asked
