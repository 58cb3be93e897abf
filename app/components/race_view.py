"""The race view: one or two lanes of text, figures, cards and live charts, fed by trace lines."""

from __future__ import annotations

from app.components.line_view import LineView


class RaceView(LineView):
    """Its value is the string of a ``RaceValue``.

    First line: the run as JSON. Further lines: ``<lane>\\t<trace line>``, ``verdict\\t{"lane",
    "right"}``, ``pace\\t{"pace"}``, ``status\\t{"text", "kind"}`` (kind: ``loading``, ``waiting``,
    ``note``, ``refused``, ``stopped``).
    """

    page = "race_view/view.html"
    mount = "mountRaceView"
    lines = "run line, then <lane>\\t<trace line> lines"
