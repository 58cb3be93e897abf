"""The grid view: small multiples of one prompt over τ and B, fed by trace lines of its cells."""

from __future__ import annotations

from app.components.line_view import LineView


class GridView(LineView):
    """Its value is a string of lines (``race_value.py``).

    First line: the grid as JSON (``run``, ``prompt``, ``rows``: [{"tau", "lossless"}],
    ``columns``: [B]). Further lines: ``<cell>\\t<trace line>``, ``verdict\\t{"cell", "right"}``,
    ``status\\t{"text", "kind"}``. Cells are called ``ar`` and ``r<row>c<column>``. A cell that is
    opened is shown by the race view whose ``elem_id`` is ``grid-race``.
    """

    page = "views/grid/grid.html"
    mount = "mountGridView"
    lines = "grid line, then <cell>\\t<trace line> lines"
