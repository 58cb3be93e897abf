"""Views of what ``evaluate``, ``lm_eval_table``, trainings and ``app.examples.measure`` wrote, as
the documents show them: a result in, a table out. Counts, no times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from textwrap import shorten
from typing import Any

from pydantic import TypeAdapter

from mars_runtime.lab.ablation.report import (
    AR,
    AR_ONLY,
    AblationResults,
    FamilyMetric,
    accuracy,
    tokens_per_forward,
)
from mars_runtime.lab.documents.measured import Content, estimate, value
from mars_runtime.lab.evaluation.report import Average, Summary, averages_table, families_table
from mars_runtime.lab.harness.table import BENCHMARKS, PAPER
from mars_runtime.lab.tables import (
    NONE,
    Table,
    number,
    percent,
    share,
)
from mars_runtime.settings import DecodeSettings, describe
from mars_runtime.statistics import Estimate

ROWS: dict[str, dict[str, str]] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
"""What a view shows, by its name in the result, and how a document calls it."""
BOLD, EVERY = "MARS τ=0.95 B=4", "lossless τ=0 B=4 groups"
SHOWN_DEPTHS = (2, 3, 4, 8)
EXAMPLES_OF = "tau=0.8"
WIDTH = 60
"""Characters of a request that are shown."""

AVERAGES, SUMMARIES = TypeAdapter(list[Average]), TypeAdapter(list[Summary])
Way = tuple[str, FamilyMetric, int]
"""How it was decoded, what is shown of it, with how many digits."""


def way_of(found: Mapping[str, Any]) -> str:
    """How a way is called in reports."""
    return describe(DecodeSettings(**found["settings"]))


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
        for way, shown in ROWS["requests"].items()
    ]
    columns = ("tokens per forward", *kinds, "average", "same as AR")
    return Table("", columns, tuple(lines))


def requests_of_card(content: Content) -> Table:
    """The lossless ways alone, without intervals."""
    ways = {way_of(one): one for one in content["requests"]}
    kinds = list(next(iter(ways.values()))["by_kind"])
    lines = [
        (shown, *(value(ways[way]["by_kind"][kind]) for kind in kinds), value(ways[way]["tpf"]))
        for way, shown in ROWS["requests_of_card"].items()
    ]
    return Table("", ("lossless τ = 0, B = 4", *kinds, "average"), tuple(lines))


def methods(content: Content) -> Table:
    """Accuracy, tokens per forward and agreement of every way, averaged over the families."""
    lines = [
        (
            f"{one.checkpoint} · {describe(one.settings)}",
            percent(one.accuracy),
            number(one.tpf),
            share(one.agreement),
        )
        for one in AVERAGES.validate_python(content["averages"])
    ]
    columns = ("way", "accuracy, %", "tokens per forward", "same as AR")
    return Table("", columns, tuple(lines))


def thresholds(content: Content) -> Table:
    """Rules for τ, averaged over the families."""
    lines = []
    for one in AVERAGES.validate_python(content["averages"]):
        accuracy = one.accuracy.scaled(100)
        right = f"{accuracy.value:.0f} [{accuracy.low:.0f}, {accuracy.high:.0f}]"
        lines.append((_rule(one.settings), number(one.tpf), right, whole(one.agreement)))
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
    found = AVERAGES.validate_python(content["averages"])
    return averages_table(found, SUMMARIES.validate_python(content["cells"]))


def families(content: Content) -> Table:
    """One line a way of decoding, one column a family: accuracy and tokens per forward."""
    return families_table(SUMMARIES.validate_python(content["cells"]))


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
        for kind, shown in ROWS["kinds"].items()
    ]
    columns = ("", "AR right", "AR ends", "AR loops", "τ 0.95 TPF", "same as AR")
    return Table("", (*columns, "lossless TPF", "first mask right"), tuple(lines))


def kinds_of_card(content: Content) -> Table:
    """The same in two lines."""
    ways = _by_way_and_kind(content)
    lines = (
        (
            "AR's answers with a right word",
            *(whole(ways["AR", kind]["right"]) for kind in ROWS["kinds"]),
        ),
        (
            "tokens per forward, lossless",
            *(value(ways[EVERY, kind]["tpf"]) for kind in ROWS["kinds"]),
        ),
    )
    return Table("", ("", *ROWS["kinds"].values()), lines)


def review_ways(content: Content) -> Table:
    """What automatic marks say of each way of a set that was made to be read."""
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "way": lambda each: str(each["way"]),
        "tokens per forward": lambda each: f"{each['tpf']:.2f}",
        "same text as AR": lambda each: f"{each['num_same']} of {each['num_answers']}",
        "first different word, median": lambda each: (
            NONE if each["first_word"] is None else f"{each['first_word']:.0f}"
        ),
        "begins to repeat itself": lambda each: f"{each['num_looped']} of {each['num_answers']}",
        "checker says right": lambda each: f"{each['num_right']} of {each['num_checked']}",
    }
    rows = [each for each in content["marks"] if not each["category"]]
    return Table.of("Answers by way", rows, columns)


def review_same(content: Content) -> Table:
    """How many answers of each category are the reference's to the letter, by way."""
    found = {(each["category"], each["way"]): each for each in content["marks"]}
    ways = [each["way"] for each in content["marks"] if not each["category"]]
    others = [way for way in ways if way != content["reference"]]
    columns: dict[str, Callable[[str], str]] = {"category": lambda name: name.replace("_", " ")}
    for way in others:
        columns[way] = lambda name, way=way: (  # type: ignore[misc]
            f"{found[name, way]['num_same']} of {found[name, way]['num_answers']}"
        )
    names = dict.fromkeys(name for name, _ in found if name)
    return Table.of("Same text as AR", list(names), columns)


def review_examples(content: Content) -> Table:
    """Where a way first parts from the reference, a prompt of each category."""
    shown = [each for each in content["examples"] if each["way"] == EXAMPLES_OF]
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "prompt": lambda each: str(each["item"]),
        "word": lambda each: str(each["difference"]["word"] + 1),
        "AR": lambda each: _literal(each["difference"]["reference"]),
        EXAMPLES_OF: lambda each: _literal(each["difference"]["own"]),
    }
    return Table.of(f"Where {EXAMPLES_OF} first differs", shown, columns)


def _literal(text: str) -> str:
    """A model's words in a table: as code, so that nothing in them is markup."""
    return f"`{text.replace('`', chr(39))}`" if text else NONE


def _by_way_and_kind(content: Content) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(way_of(one), one["kind"]): one for one in content["kinds"]}


def harness_accuracy(content: Content) -> Table:
    """Accuracy on lm-eval's benchmarks beside the paper's."""
    rows = _harness(content, "accuracy", ROWS["harness_accuracy"])
    return _beside_paper("accuracy, %", rows, "accuracy", 1)


def harness_tpf(content: Content) -> Table:
    """Tokens per forward there."""
    rows = _harness(content, "tpf", ROWS["harness_tpf"])
    return _beside_paper("tokens per forward", rows, "tpf", 2)


def harness_of_card(content: Content) -> Table:
    """Tokens per forward there, without intervals and without the paper."""
    cells = {(one["way"], one["task"]): one for one in content["cells"]}
    lines = [
        (shown, *(value(cells[way, one.task]["tpf"]) for one in BENCHMARKS))
        for way, shown in ROWS["harness_of_card"].items()
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
    for name, shown in ROWS["paper"].items():
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


def system_prompts(content: Content) -> Table:
    """What answers are like with each system prompt and repetition penalty."""
    lines = [
        (
            f"“{way['system']}”",
            f"{way['repetition_penalty']:g}",
            f"{way['num_correct']} of {way['num_short']}",
            f"{way['num_loops']} of {way['num_answers']}",
            f"{way['tokens_per_pass']['all']['masks']:.2f}",
            f"{way['tokens_per_pass']['all']['lookup']:.2f}",
        )
        for way in content["ways"]
    ]
    columns = ("system prompt", "penalty", "correct", "loops", "TPF, masks", "TPF, with lookup")
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


def ablations(content: Content) -> Table:
    """Accuracy and tokens per forward of every variant, one seed each."""
    found = AblationResults(content)
    lines = []
    for name, shown in _variants(found):
        ways = ("mars 0.95 B8", accuracy, 1), ("mars 0.95 B8", tokens_per_forward, 2)
        figures = _figures(found, name, ((AR, accuracy, 1), *ways, _lossless(8)))
        lines.append((shown, *figures))
    columns = ("variant", "AR %", "τ 0.95, B = 8 %", "TPF", "lossless B = 8 TPF")
    return Table("", columns, tuple(lines))


def ablations_with_seeds(content: Content) -> Table:
    """The same with several seeds, and the change against AR trained on as much."""
    found = AblationResults(content)
    lines = []
    for name, shown in _variants(found):
        ar, *others = _figures(
            found, name, ((AR, accuracy, 1), ("mars 0.95 B4", accuracy, 1), *map(_lossless, (4, 8)))
        )
        is_trained = name not in ("start", AR_ONLY)
        change = found.change(name, AR_ONLY, AR, accuracy) if is_trained else None
        seeds = NONE if name == "start" else str(len(found.runs[name]))
        against = change.text(1, sign=True) if change else NONE
        lines.append((shown, seeds, ar, against, *others))
    accuracies = ("AR %", "against AR on as many tokens", "τ 0.95, B = 4 %")
    columns = ("variant", "seeds", *accuracies, "lossless B = 4 TPF", "lossless B = 8 TPF")
    return Table("", columns, tuple(lines))


def low_rank(content: Content) -> Table:
    """All weights against low-rank updates at equal time."""
    found = AblationResults(content)
    lines = []
    for name, shown in ROWS["low_rank"].items():
        read = fmean(run["tokens"] for run in found.runs[name].values())
        ways = ((AR, accuracy, 1), ("mars 0.95 B4", accuracy, 1), _lossless(4))
        lines.append((shown, f"{read:,.0f}", *_figures(found, name, ways)))
    columns = ("what is trained", "tokens read", "AR %", "τ 0.95, B = 4 %", "lossless B = 4 TPF")
    return Table("", columns, tuple(lines))


def _lossless(block_size: int) -> Way:
    return f"lossless 0 B{block_size}", tokens_per_forward, 2


def _variants(found: AblationResults) -> list[tuple[str, str]]:
    start = found.content["start"]
    return [
        (one, shown.format(start=start))
        for one, shown in ROWS["ablations"].items()
        if one in found.runs
    ]


def _figures(found: AblationResults, name: str, ways: Sequence[Way]) -> list[str]:
    figures = [(found.figure(name, way, metric), digits) for way, metric, digits in ways]
    return [NONE if figure is None else figure.text(digits) for figure, digits in figures]


def recipes(content: Content) -> Table:
    """Tokens per forward of every recipe that was tried, after as many masks."""
    steps = sorted({row["step"] for row in content["rows"]})
    found = {(row["recipe"], row["step"]): row for row in content["rows"]}
    lines = []
    for name in dict.fromkeys(row["recipe"] for row in content["rows"]):
        means = [found.get((name, step)) for step in steps]
        lines.append((name, *(f"{one['mean']:.2f}" if one else NONE for one in means)))
    masks = [max(row["masks"] for row in content["rows"] if row["step"] == step) for step in steps]
    heads = (f"after {round(count / 1000)} thousand masks" for count in masks)
    return Table("", ("recipe", *heads), tuple(lines))


def held_out(content: Content) -> Table:
    """Tokens per forward of an adapter on held-out texts, by depth and, at the deepest, by kind."""
    found: Mapping[str, Any] = content["held_out"]
    deepest = max(map(int, found["by_depth"]))
    rows = {f"B = {depth}": found["by_depth"][str(depth)] for depth in SHOWN_DEPTHS}
    for kind, pair in found["by_kind"].items():
        rows[f"{ROWS['held_out'].get(kind, kind)}, B = {deepest}"] = pair
    lines = tuple((shown, *(f"{one:.2f}" for one in pair)) for shown, pair in rows.items())
    columns = ("tokens per forward", "one group", "a group after every pending token")
    return Table("", columns, lines)
