"""The batch view: one lane per row for one or two methods, totals, figures, fed by trace lines."""

from __future__ import annotations

from app.components.line_view import LineView


class BatchView(LineView):
    """Its value is a string of lines (``race_value.py``).

    First line: the run as JSON (``run``, ``sides``: [{"side", "method", "title"}], ``prompts``).
    Further lines: ``<side>\\t<trace line>``, ``totals\\t{"side", ...}``, ``figures\\t{"time",
    "forwards"}``, ``verdict\\t{"side", "row", "right"}``, ``status\\t{"text", "kind"}``.
    """

    page = "views/batch/batch.html"
    mount = "mountBatchView"
    lines = "run line, then <side>\\t<trace line> lines"
