"""Views of what ``evaluate``, ``lm_eval_table``, trainings and ``app.examples.measure`` wrote, as
the documents show them: a result in, a table out. Counts, no times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from textwrap import shorten
from typing import Any

from mars_runtime.lab.documents.measured import Content, estimate, value
from mars_runtime.lab.evaluation.tables import NONE, Table, number, percent, points, share
from mars_runtime.lab.harness.results import BENCHMARKS, PAPER
from mars_runtime.settings import DecodeSettings, describe
from mars_runtime.statistics import Estimate

ONE, EVERY = "lossless τ=0 B=4", "lossless τ=0 B=4 groups"
WITH_LOOKUP = "lossless τ=0 B=4 groups + lookup"
BOLD, BOLDER = "MARS τ=0.95 B=4", "MARS τ=0.8 B=4"
REQUEST_WAYS = {
    BOLD: "τ 0.95, B = 4, not lossless",
    ONE: "lossless τ 0, B = 4, one group of masks",
    EVERY: "lossless τ 0, B = 4, a group after every draft",
    "lookup alone": "lossless, prompt lookup alone",
    WITH_LOOKUP: "lossless τ 0, B = 4, groups and lookup",
}
CARD_WAYS = {
    ONE: "one group",
    EVERY: "a group after every pending token",
    WITH_LOOKUP: "the same with prompt lookup",
}
HARNESS_WAYS = {
    "AR": "AR",
    BOLD: "MARS τ 0.95, B = 4",
    BOLDER: "MARS τ 0.8, B = 4",
    EVERY: "lossless τ 0, B = 4, a group after every draft",
}
PAPER_ROWS = {
    "AR SFT, 5 epochs": "paper: Qwen2.5-0.5B, AR SFT",
    "MARS B=4, τ=0.95": "paper: Qwen2.5-0.5B, MARS B = 4, τ 0.95",
    "MARS B=4, τ=0.8": "paper: the same, τ 0.8",
}
KINDS = {
    "chat": "requests like the training data",
    "languages": "other languages",
    "odd_code": "code in rare languages",
    "tables": "tables",
    "long": "very long prompts",
}


WIDTH = 60
"""Characters of a request that are shown."""


def settings_of(found: Mapping[str, Any]) -> DecodeSettings:
    """Settings as a result holds them."""
    return DecodeSettings(**found)


def way_of(found: Mapping[str, Any]) -> str:
    """How a way is called in reports."""
    return describe(settings_of(found["settings"]))


def whole(part: float | None) -> str:
    """``51 %``, or a dash."""
    return NONE if part is None else f"{part * 100:.0f} %"


def requests(content: Content) -> Table:
    """Tokens per forward on open requests, by kind."""
    ways = {way_of(one): one for one in content["requests"]}
    kinds = list(next(iter(ways.values()))["by_kind"])
    lines = [
        (
            shown,
            *(value(ways[way]["by_kind"][kind]) for kind in kinds),
            estimate(ways[way]["tpf"]),
            whole(ways[way]["agreement"]),
        )
        for way, shown in REQUEST_WAYS.items()
    ]
    columns = ("tokens per forward", *kinds, "average", "same as AR")
    return Table("", columns, tuple(lines))


def requests_of_card(content: Content) -> Table:
    """The lossless ways alone, without intervals."""
    ways = {way_of(one): one for one in content["requests"]}
    kinds = list(next(iter(ways.values()))["by_kind"])
    lines = [
        (shown, *(value(ways[way]["by_kind"][kind]) for kind in kinds), value(ways[way]["tpf"]))
        for way, shown in CARD_WAYS.items()
    ]
    return Table("", ("lossless τ = 0, B = 4", *kinds, "average"), tuple(lines))


def methods(content: Content) -> Table:
    """Accuracy, tokens per forward and agreement of every way, averaged over the families."""
    lines = [
        (
            f"{one['checkpoint']} · {way_of(one)}",
            percent(Estimate(**one["accuracy"])),
            estimate(one["tpf"]),
            share(one["agreement"]),
        )
        for one in content["averages"]
    ]
    columns = ("way", "accuracy, %", "tokens per forward", "same as AR")
    return Table("", columns, tuple(lines))


def thresholds(content: Content) -> Table:
    """Rules for τ, averaged over the families."""
    lines = []
    for one in content["averages"]:
        accuracy = Estimate(**one["accuracy"]).scaled(100)
        right = f"{accuracy.value:.0f} [{accuracy.low:.0f}, {accuracy.high:.0f}]"
        name = _rule(settings_of(one["settings"]))
        lines.append((name, estimate(one["tpf"]), right, whole(one["agreement"])))
    columns = ("threshold", "tokens per forward", "accuracy, %", "same answer as AR")
    return Table("", columns, tuple(lines))


def _rule(settings: DecodeSettings) -> str:
    if settings.method == "ar":
        return "AR"
    return {
        "fixed": f"fixed τ {settings.tau:g}",
        "entropy": f"by entropy, floor {settings.tau:g}",
        "agreement": f"agreement held at {settings.target:g}, no floor",
    }[settings.threshold]


def averages(content: Content) -> Table:
    """One line a way of decoding, natural text beside the families."""
    natural = {_place(one["cell"]): one for one in content["cells"] if one["accuracy"] is None}
    lines = [
        (
            f"{one['checkpoint']} · {way_of(one)}",
            percent(Estimate(**one["accuracy"])),
            points(Estimate(**one["accuracy_change"]) if one["accuracy_change"] else None),
            estimate(one["tpf"]),
            share(one["agreement"]),
            estimate(natural[_place(one)]["tpf"]),
        )
        for one in content["averages"]
    ]
    columns = ("way", "accuracy %", "against AR", "TPF", "same as AR", "natural TPF")
    return Table("", columns, tuple(lines))


def families(content: Content) -> Table:
    """One line a way of decoding, one column a family: accuracy and tokens per forward."""
    rows: dict[tuple[str, str], list[str]] = {}
    for one in content["cells"]:
        right = f"{one['accuracy']['value'] * 100:.0f} % · " if one["accuracy"] else ""
        rows.setdefault(_place(one["cell"]), []).append(right + value(one["tpf"]))
    names = dict.fromkeys(one["cell"]["family"] for one in content["cells"])
    lines = [(f"{name} · {way}", *cells) for (name, way), cells in rows.items()]
    return Table("", ("way", *names), tuple(lines))


def _place(found: Mapping[str, Any]) -> tuple[str, str]:
    return found["checkpoint"], way_of(found)


def kinds(content: Content) -> Table:
    """Prompts unlike the training data: AR's answers, then what masks foresee."""
    ways = _by_way_and_kind(content)
    lines = [
        (
            shown,
            whole(ways["AR", kind]["right"]),
            whole(ways["AR", kind]["ended"]),
            whole(ways["AR", kind]["looped"]),
            estimate(ways[BOLD, kind]["tpf"]),
            whole(ways[BOLD, kind]["agreement"]),
            estimate(ways[EVERY, kind]["tpf"]),
            whole(ways[EVERY, kind]["first_mask"]),
        )
        for kind, shown in KINDS.items()
    ]
    columns = ("", "AR right", "AR ends", "AR loops", "τ 0.95 TPF", "same as AR")
    return Table("", (*columns, "lossless TPF", "first mask right"), tuple(lines))


def kinds_of_card(content: Content) -> Table:
    """The same in two lines."""
    ways = _by_way_and_kind(content)
    lines = (
        ("AR's answers with a right word", *(whole(ways["AR", kind]["right"]) for kind in KINDS)),
        ("tokens per forward, lossless", *(value(ways[EVERY, kind]["tpf"]) for kind in KINDS)),
    )
    return Table("", ("", *KINDS.values()), lines)


def _by_way_and_kind(content: Content) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(way_of(one), one["kind"]): one for one in content["kinds"]}


def harness_accuracy(content: Content) -> Table:
    """Accuracy on lm-eval's benchmarks beside the paper's."""
    rows = _harness(content, "accuracy", HARNESS_WAYS)
    return _beside_paper("accuracy, %", rows, "accuracy", 1)


def harness_tpf(content: Content) -> Table:
    """Tokens per forward there."""
    rows = _harness(content, "tpf", {way: HARNESS_WAYS[way] for way in (BOLD, BOLDER, EVERY)})
    return _beside_paper("tokens per forward", rows, "tpf", 2)


def harness_of_card(content: Content) -> Table:
    """Tokens per forward there, without intervals and without the paper."""
    short = {BOLD: "τ 0.95", BOLDER: "τ 0.8", EVERY: "lossless, a group after every pending token"}
    cells = {(one["way"], one["task"]): one for one in content["cells"]}
    lines = [
        (shown, *(value(cells[way, one.task]["tpf"]) for one in BENCHMARKS))
        for way, shown in short.items()
    ]
    return Table("", ("", *(one.name for one in BENCHMARKS)), tuple(lines))


def _harness(content: Content, key: str, ways: Mapping[str, str]) -> list[tuple[str, ...]]:
    cells = {(one["way"], one["task"]): Estimate(**one[key]) for one in content["cells"]}
    name = content["cells"][0]["checkpoint"]
    shown = percent if key == "accuracy" else number
    return [
        (f"{name}, {words}", *(shown(cells[way, one.task]) for one in BENCHMARKS))
        for way, words in ways.items()
    ]


def _beside_paper(title: str, rows: list[tuple[str, ...]], key: str, digits: int) -> Table:
    """Ours, then the paper's rows that hold more than one token per forward or an accuracy."""
    paper = {row["name"]: row[key] for row in json.loads(PAPER.read_text("utf-8"))["benchmarks"]}
    for name, shown in PAPER_ROWS.items():
        own = [paper[name].get(one.name) for one in BENCHMARKS]
        if key == "accuracy" or set(own) != {1.0}:
            rows.append((shown, *(NONE if x is None else f"{x:.{digits}f}" for x in own)))
    return Table("", (title, *(one.name for one in BENCHMARKS)), tuple(rows))


def page_requests(content: Content) -> Table:
    """What becomes of requests of the page, lossless and at a bold τ."""
    lines = [
        (
            shorten(one["prompt"].splitlines()[0], WIDTH, placeholder=" …"),
            str(one["num_tokens"]),
            f"{one['lossless']['tpf']:.2f}",
            f"{one['bold']['tpf']:.2f}",
            str(one["bold"]["leaves"] or NONE),
        )
        for one in content["requests"]
    ]
    columns = ("request", "tokens", "lossless TPF", "τ 0.5 TPF", "leaves AR at")
    return Table("", columns, tuple(lines))


def grids(content: Content) -> Table:
    """The cells that the Grid tab opens with, by checkpoint and B."""
    heads, rows = [], dict[str, list[str]]()
    for grid in content["grids"]:
        cells = [cell for cell in grid["cells"] if cell["block_size"] > 1]
        sizes = dict.fromkeys(cell["block_size"] for cell in cells)
        names = [f"B {size}" for size in sizes]
        heads += [f"{grid['checkpoint']}: {names[0]}", *names[1:]]
        for cell in cells:
            row = "lossless" if cell["lossless"] else f"τ {cell['tau']:g}"
            rows.setdefault(row, []).append(value({"value": cell["tpf"]}))
    lines = tuple((row, *found) for row, found in rows.items())
    return Table("", ("TPF", *heads), lines)
