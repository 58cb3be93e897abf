"""The page's scripts and styles, and "How it works" with measured figures filled in."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mars_runtime import web
from mars_runtime.places import ASSETS

ENTRIES = (
    "views/race/view.js",
    "views/conversation/view.js",
    "views/batch/view.js",
    "views/compare/view.js",
    "explain/explain.js",
    "tour/tour.js",
    "views/grid/view.js",
    "views/load/view.js",
    "views/stability/view.js",
    "views/frontier/view.js",
    "views/review/opening.js",
    "views/page/page.js",
)
"""Modules with exports named ``mount...``, which components or the page call:
``mars.mountRaceView``.
"""
RESULTS = ASSETS / "results"
BLOCK = 8  # B of the table and of the lossless figures
COMMANDS = {
    "evaluation-command": "python -m mars_runtime evaluate",
    "benchmark-command": "python -m mars_runtime benchmark",
}
ROWS = "tau-rows"
PLACE = re.compile(r"@([a-z]+(?:-[a-z]+)*)")
Values = Mapping[str, Any]


def head() -> str:
    """Return the scripts and styles as elements for a document's head."""
    return f"<style>{web.styles()}</style>\n<script>{web.bundle(ENTRIES)}</script>"


def explain_page() -> str:
    """Return the HTML of "How it works" with the measured figures filled in.

    Figures are plain text, except ``tau-rows``: table rows that consist of numbers. Raises KeyError
    for a figure that was not measured.
    """
    known = facts()
    fill = {name: text if name == ROWS else html.escape(text) for name, text in known.items()}
    return PLACE.sub(lambda place: fill[place.group(1)], web.template("explain/explain.html"))


def facts(folder: Path = RESULTS) -> dict[str, str]:
    """Return the text of each placeholder in ``assets/web/explain/explain.html``, from results."""
    evaluation, benchmark = (
        json.loads((folder / f"{name}.json").read_text("utf-8"))
        for name in ("evaluation", "benchmark")
    )
    return {**COMMANDS, **_accuracy(evaluation), **_speed(benchmark)}


def _accuracy(evaluation: Values) -> dict[str, str]:
    cells = [
        average
        for average in evaluation["averages"]
        if average["checkpoint"] == _trained(evaluation)
    ]
    lossless = _first_cell(cells, is_lossless=True)
    swept = [c for c in cells if _is_cell(c, "mars", False)]
    return {
        "checkpoint": _trained(evaluation),
        "num-families": str(len(lossless["families"])),
        "num-prompts": str(evaluation["asked"]["prompts"]),
        "table-block": str(BLOCK),
        "lossless-block": str(BLOCK),
        "lossless-tpf": f"{lossless['tpf']['value']:.2f}",
        "lossless-agreement": _percent(lossless["agreement"]),
        "evaluation-where": where(evaluation),
        ROWS: "".join(_rows(cells, sorted(swept, key=lambda c: -c["settings"]["tau"]))),
    }


def _speed(benchmark: Values) -> dict[str, str]:
    lossless = _compared(benchmark, 1, "lossless τ=0 B=8", "AR")
    mars = _compared(benchmark, 1, "MARS τ=0.95", "AR")
    batch = max(comparison["batch_size"] for comparison in benchmark["comparisons"])
    cursor = _compared(benchmark, batch, "MARS τ=0.95", "block cache")
    low, high = (cursor["overall"][end] for end in ("low", "high"))
    return {
        "lossless-speed": f"{lossless['overall']['value']:.2f}",
        "lossless-natural": f"{lossless['by_family']['natural']['value']:.2f}",
        "mars-natural": f"{mars['by_family']['natural']['value']:.2f}",
        "batch": str(batch),
        "cursor": f"{cursor['overall']['value']:.2f}",
        "cursor-range": f"{low:.2f} to {high:.2f}",
        "benchmark-where": where(benchmark),
    }


def where(results: Values) -> str:
    """Return on what and when results were measured."""
    hardware = results["hardware"]
    cores = hardware["cores"]
    count = f"{cores} core" if cores == 1 else f"{cores} cores"
    return f"{hardware['processor']}, {count}, {results['date'][:10]}"


def _trained(evaluation: Values) -> str:
    """Return the name of the checkpoint that was decoded with masks."""
    return next(
        str(c["checkpoint"]) for c in evaluation["averages"] if c["settings"]["method"] == "mars"
    )


def _is_cell(cell: Values, method: str, is_lossless: bool) -> bool:
    settings = cell["settings"]
    return (
        settings["method"] == method
        and settings["lossless"] == is_lossless
        and (method == "ar" or settings["block_size"] == BLOCK)
    )


def _first_cell(cells: Iterable[Values], is_lossless: bool = False, method: str = "mars") -> Values:
    return next(cell for cell in cells if _is_cell(cell, method, is_lossless))


def _rows(cells: list[Values], swept: list[Values]) -> list[str]:
    named = [
        ("AR", _first_cell(cells, method="ar")),
        *((f"τ = {c['settings']['tau']:g}", c) for c in swept),
        ("lossless, τ = 0", _first_cell(cells, is_lossless=True)),
    ]
    return [
        f'<tr><th scope="row">{name}</th><td>{cell["tpf"]["value"]:.2f}</td>'
        f"<td>{_percent(cell['accuracy']['value'])}</td><td>{_percent(cell['agreement'])}</td></tr>"
        for name, cell in named
    ]


def _compared(benchmark: Values, batch_size: int, peer: str, baseline: str) -> Values:
    """Return the first comparison with two names that begin with these."""
    return next(
        comparison
        for comparison in benchmark["comparisons"]
        if comparison["batch_size"] == batch_size
        and comparison["peer"].startswith(peer)
        and comparison["baseline"].startswith(baseline)
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
