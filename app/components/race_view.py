"""The race view: one to four lanes of text, figures, cards and live charts, fed by trace lines."""

from __future__ import annotations

from typing import Any

from app.components import files
from app.components.line_view import LineView, plotly_url


class RaceView(LineView):
    """Its value is the string of a ``RaceValue``.

    First line: the run as JSON. Further lines: ``<lane>\\t<trace line>``, ``verdict\\t{"lane",
    "right"}``, ``pace\\t{"pace"}``, ``status\\t{"text", "kind"}`` (kind: ``loading``, ``waiting``,
    ``note``, ``refused``, ``stopped``).
    """

    page = "views/race/view.html"
    mount = "mountRaceView"
    lines = "run line, then <lane>\\t<trace line> lines"

    def __init__(self, value: str = "", replay: str = "", opens: bool = False, **more: Any) -> None:
        """``replay``: where the page is that a run can be saved in; without it none can. ``opens``:
        the recording that it begins with plays once (``assets/web/views/race/opening.js``)."""
        super().__init__(value, self.template(plotly_url(), replay, opens), **more)

    @classmethod
    def template(cls, plotly: str, replay: str = "", opens: bool = False) -> str:
        """The static HTML, with addresses filled in."""
        told = "true" if opens else ""
        return files.template(cls.page, plotly=plotly, replay=replay, opens=told)
