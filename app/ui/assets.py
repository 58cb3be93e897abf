"""The scripts and styles of the page, and the text of "How it works" with its measured figures."""

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
    "views/throughput/view.js",
    "views/compare/view.js",
    "explain/explain.js",
    "tour/tour.js",
    "views/grid/view.js",
    "views/review/opening.js",
    "views/page/page.js",
)
"""Modules whose exported functions ``mount...`` become functions of ``window.mars``, such as
``mars.mountRaceView``.
"""
RESULTS = ASSETS / "results"
BLOCK = 8  # the value of B for which results of MARS are quoted
COMMANDS = {
    "evaluation-command": "python -m mars_runtime evaluate",
    "benchmark-command": "python -m mars_runtime benchmark",
}
ROWS = "tau-rows"
PLACEHOLDER = re.compile(r"@([a-z]+(?:-[a-z]+)*)")
Values = Mapping[str, Any]


def head() -> str:
    """Return the HTML elements with the scripts and styles, for the head of a document."""
    return f"<style>{web.styles()}</style>\n<script>{web.bundle(ENTRIES)}</script>"


def explain_page() -> str:
    """Return the HTML of "How it works" with the measured figures filled in.

    All figures are escaped, except ``tau-rows``, which consists of table rows. Raises KeyError if
    the page needs a figure that the results do not contain.
    """
    known = facts()
    fill = {name: text if name == ROWS else html.escape(text) for name, text in known.items()}
    return PLACEHOLDER.sub(lambda match: fill[match[1]], web.template("explain/explain.html"))


def facts(folder: Path = RESULTS) -> dict[str, str]:
    """Return the text of each placeholder in ``assets/web/explain/explain.html``, from the result
    files.
    """
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
    """Return on which machine and when the results were measured."""
    hardware = results["hardware"]
    cores = hardware["cores"]
    count = f"{cores} core" if cores == 1 else f"{cores} cores"
    return f"{hardware['processor']}, {count}, {results['date'][:10]}"


def _trained(evaluation: Values) -> str:
    """Return the name of the checkpoint that was evaluated with the method MARS."""
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
    """Return the first comparison at this batch size in which the names of the two methods begin
    with ``peer`` and ``baseline``.
    """
    return next(
        comparison
        for comparison in benchmark["comparisons"]
        if comparison["batch_size"] == batch_size
        and comparison["peer"].startswith(peer)
        and comparison["baseline"].startswith(baseline)
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
