"""The load view: figures and charts of requests that arrive at their own times, fed by ticks."""

from __future__ import annotations

from app.components.line_view import LineView


class LoadView(LineView):
    """Its value is a string of lines (``race_value.py``).

    First line: the run as JSON (``run``, ``question``, ``kind``, ``ways``: [{"name", "title"}],
    ``seconds``, ``requests``, ``budget``). Further lines: ``about\\t{...}``, ``tick\\t{"way",
    "at", ...}``, ``decision\\t{"way", "at", "level", ...}``, ``point\\t{"way", "offered", ...}``,
    ``agreement\\t{"way", "share", ...}``, ``day\\t{"fleets", ...}``, ``status\\t{"text", "kind"}``.
    """

    page = "views/load/load.html"
    mount = "mountLoadView"
    lines = "run line, then <kind>\\t<JSON> lines"
