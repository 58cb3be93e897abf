"""Views: functions that make a table of a document from a result file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter

from mars_runtime.lab.ablation.report import (
    AR,
    AR_ONLY,
    AblationResults,
    accuracy,
    tokens_per_forward,
)
from mars_runtime.lab.evaluation.report import Average, Summary, averages_table, families_table
from mars_runtime.lab.harness.table import BENCHMARKS, PAPER
from mars_runtime.lab.benchmark.forward import CONTEXT
from mars_runtime.lab.tables import (
    NONE,
    Table,
    number,
    percent,
)
from mars_runtime.settings import DecodeSettings, describe
from mars_runtime.statistics import Estimate

Content = Mapping[str, Any]

ROWS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
"""View -> its rows: the label in the document and the name in the result, in either order."""
EVERY = "lossless τ=0 B=4 groups"
SHOWN_DEPTHS = (2, 3, 4, 8)
EXAMPLES_OF = "tau=0.8"

AVERAGES, SUMMARIES = TypeAdapter(list[Average]), TypeAdapter(list[Summary])


def estimate(found: Mapping[str, float] | None) -> str:
    """``1.93 [1.88, 1.99]``, or a dash."""
    return number(Estimate(**found)) if found else NONE


def value(found: Mapping[str, float] | None) -> str:
    """``1.93``, or a dash."""
    return f"{found['value']:.2f}" if found else NONE


def chat_ratios(content: Content) -> Table:
    """Ratios of tokens per second on the chat model, by kind of request."""
    return _ratios_by_kind(content, "chat_ratios")


def chat_ratios_in_short(content: Content) -> Table:
    """The rows of ``chat_ratios`` that the README shows."""
    return _ratios_by_kind(content, "chat_ratios_in_short")


def task_ratios(content: Content) -> Table:
    """Ratios of tokens per second on a task checkpoint."""
    return _ratios(content, "task_ratios")


def task_ratios_in_short(content: Content) -> Table:
    """The rows of ``task_ratios`` that the README shows."""
    return _ratios(content, "task_ratios_in_short")


def shape(content: Content) -> Table:
    """A shape with random weights: rates, what they are of others', and how near AR comes to what
    reading its weights takes."""
    peers = {one["peer"]: one["families"] for one in content["series"][0]["peers"]}
    work, limits = content["load"], content["machine"]
    read = work["weight_bytes"] + CONTEXT * work["position_bytes"]
    found = {(one["peer"], one["baseline"]): one["overall"] for one in content["comparisons"]}
    lines = []
    for shown, peer in ROWS["shape"].items():
        rate = peers[peer]["decode_rate"]
        share = f"{rate * read / limits['bytes_per_second']:.2f}" if peer == "AR" else NONE
        over = [estimate(found.get((peer, base))) for base in ("AR", "llama.cpp")]
        lines.append((shown, f"{rate:.1f}", *over, share))
    columns = ("tokens/s", "times AR here", "times llama.cpp", "share of the limit")
    return Table("", ("random weights, one prompt at a time", *columns), tuple(lines))


def requests_held(content: Content) -> Table:
    """Tokens per forward of lossless decoding at B = 4 on the requests of the benchmark."""
    samples = content["series"][0]["samples"]
    kinds = list(dict.fromkeys(one["family"] for one in samples))
    lines = []
    for shown, peer in ROWS["requests_held"].items():
        of_kinds = [
            [one for one in samples if (one["peer"], one["family"]) == (peer, kind)]
            for kind in kinds
        ]
        rates = [fmean(one["num_tokens"] / one["num_forwards"] for one in own) for own in of_kinds]
        lines.append((shown, *(f"{rate:.2f}" for rate in rates)))
    return Table("", ("lossless τ = 0, B = 4", *kinds), tuple(lines))


def _comparisons(content: Content, view: str) -> dict[str, Mapping[str, Any]]:
    """Label of each row of a view -> its comparison, one prompt at a time."""
    found = {
        (one["peer"], one["baseline"]): one
        for one in content["comparisons"]
        if one["batch_size"] == 1
    }
    return {label: found[peer, baseline] for label, (peer, baseline) in ROWS[view].items()}


def _ratios(content: Content, view: str) -> Table:
    lines = [
        (label, estimate(one["overall"]), estimate(one["by_family"]["natural"]))
        for label, one in _comparisons(content, view).items()
    ]
    return Table("", ("one prompt at a time", "six task families", "natural text"), tuple(lines))


def _ratios_by_kind(content: Content, view: str) -> Table:
    found = _comparisons(content, view)
    kinds = list(next(iter(found.values()))["by_family"])
    lines = [
        (label, *(value(one["by_family"][kind]) for kind in kinds), estimate(one["overall"]))
        for label, one in found.items()
    ]
    return Table("", ("one prompt at a time", *kinds, "average"), tuple(lines))


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


def averages(content: Content) -> Table:
    """One line a way of decoding, natural text beside the families."""
    found = AVERAGES.validate_python(content["averages"])
    return averages_table(found, SUMMARIES.validate_python(content["cells"]))


def families(content: Content) -> Table:
    """One line a way of decoding, one column a family: accuracy and tokens per forward."""
    return families_table(SUMMARIES.validate_python(content["cells"]))


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


def ablations_with_seeds(content: Content) -> Table:
    """Accuracy and tokens per forward of each variant, with its change against AR training."""
    found, start = AblationResults(content), content["start"]
    shown = {one: ROWS["ablations"][one] for one in ROWS["ablations"] if one in found.runs}
    lines = []
    for name, words in shown.items():
        is_trained = name not in ("start", AR_ONLY)
        figures = (
            (found.figure(name, "mars 0.95 B4", accuracy), 1),
            (found.figure(name, "lossless 0 B4", tokens_per_forward), 2),
            (found.figure(name, "lossless 0 B8", tokens_per_forward), 2),
        )
        ar = found.figure(name, AR, accuracy)
        change = found.change(name, AR_ONLY, AR, accuracy) if is_trained else None
        lines.append(
            (
                words.format(start=start),
                NONE if name == "start" else str(len(found.runs[name])),
                ar.text(1) if ar else NONE,
                change.text(1, sign=True) if change else NONE,
                *(figure.text(digits) if figure else NONE for figure, digits in figures),
            )
        )
    accuracies = ("AR %", "against AR on as many tokens", "τ 0.95, B = 4 %")
    columns = ("variant", "seeds", *accuracies, "lossless B = 4 TPF", "lossless B = 8 TPF")
    return Table("", columns, tuple(lines))


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
