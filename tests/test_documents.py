"""Documents show what was measured: each table is its file's, each result its checkpoint's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mars_runtime.lab.documents import (
    MARKED,
    PENDING,
    ROOT,
    DocumentError,
    documents,
    written,
)
from mars_runtime.lab.evaluation.cli import document
from mars_runtime.model.fetch import SUMS, is_present
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.registry import REGISTRY, registry
from mars_runtime.provenance import fingerprint, fingerprint_of_sums, shipped
from tools.command_options import BEGIN, DOCUMENT, END, with_options

RESULTS = ROOT / "assets" / "results"
OF_NO_CHECKPOINT = (
    {"paper.json", "shape_int4.json", "shape_int8.json", "gpu_run.json"}
    | {f"gpu_{name}.json" for name in ("shape_05b_1", "shape_05b_8", "shape_7b_1", "shape_7b_8")}
    | {"gpu_compiled.json"}
)
"""What its authors measured, shapes with random weights, and what became of steps."""
FIGURE = re.compile(
    r"[-+]?\d[\d.,]*( ?%| of \d+)?( · \d[\d.]*| ± \d[\d.]*| \[.*\]|(, \d[\d.]*)+)?|–|—"
)
"""A cell that is a figure, or would be one."""


OPTIONS = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
"""The list of options at the end of docs/commands.md."""
OF_WORDS = {"review_examples"}
"""Views that quote texts; like all others they are written from their files."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def tables(text: str) -> list[list[list[str]]]:
    """The cells of the bodies of all tables, line by line, the first column left out."""
    blocks = re.findall(r"^(?:\|.*\|\n){3,}", text + "\n", re.MULTILINE)
    rows = [
        [line.strip("|").split(" | ")[1:] for line in block.splitlines()[2:]] for block in blocks
    ]
    return [[[cell.strip() for cell in line] for line in table] for table in rows]


def is_of_figures(table: list[list[str]]) -> bool:
    """Whether most cells are."""
    cells = [cell for line in table for cell in line if cell]
    return 2 * sum(bool(FIGURE.fullmatch(cell)) for cell in cells) > len(cells)


def fingerprints(content: Any) -> Iterator[tuple[str, str]]:
    """Every checkpoint that a result names with its fingerprint."""
    if isinstance(content, dict):
        if "fingerprint" in content:
            yield content.get("checkpoint") or content["name"], content["fingerprint"]
        if isinstance(weights := content.get("weights"), dict):  # of a set to review
            yield from weights.items()
        content = list(content.values())
    if isinstance(content, list):
        for item in content:
            yield from fingerprints(item)


def shipped_as(name: str) -> set[str | None]:
    """The fingerprints of a checkpoint as it ships: of all of it, and of its base only."""
    entry = registry().get(name)
    gguf = entry.gguf if entry else None
    return {shipped(name), *([fingerprint_of_sums([(gguf.file, gguf.sha256)])] if gguf else [])}


def of_others(result: Path) -> list[str]:
    """Reasons why documents do not show a result."""
    known = set(fingerprints(json.loads(result.read_text(encoding="utf-8"))))
    if not known and result.name not in OF_NO_CHECKPOINT:
        return [f"{result.name} does not say of which checkpoint it is"]
    return [
        f"{result.name} is of another {name} than the one that ships"
        for name, given in sorted(known)
        if given not in shipped_as(name)
    ]


def told_of(text: str) -> set[Path]:
    """The results that a document speaks of, by a table or by name."""
    named = re.findall(r"\b(\w+)\.(?:json|md|svg)\b", text)
    actual = {RESULTS / f"{name}.json" for name in named} | {
        ROOT / result["file"] for result in MARKED.finditer(text)
    }
    return {path for path in actual if path.parent == RESULTS and path.exists()}


@pytest.mark.parametrize("page", documents(), ids=name_of)
def test_tables_are_what_their_files_hold(page: Path):
    text = page.read_text(encoding="utf-8")
    assert text == written(text), "run: python -m mars_runtime tables"


def test_options_of_commands_are_those_of_the_parsers():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == with_options(text), "run: python tools/command_options.py"


@pytest.mark.parametrize("page", documents(), ids=name_of)
def test_every_table_of_figures_has_a_file(page: Path):
    rest = OPTIONS.sub("", MARKED.sub("", page.read_text(encoding="utf-8")))
    assert [table for table in tables(rest) if is_of_figures(table)] == []
    assert "<!--" not in rest, "a marker that marks nothing"


@pytest.mark.parametrize("page", documents(), ids=name_of)
def test_results_are_of_the_checkpoints_that_ship(page: Path):
    results = told_of(page.read_text(encoding="utf-8"))
    assert [fault for path in sorted(results) for fault in of_others(path)] == []


def test_what_is_marked_is_a_table_of_figures():
    pages = [page.read_text(encoding="utf-8") for page in documents()]
    marked = [
        (actual["view"], actual["table"]) for text in pages for actual in MARKED.finditer(text)
    ]
    assert len(marked) > 20
    assert {view for view, text in marked if not all(map(is_of_figures, tables(text)))} == OF_WORDS
    assert all(len(tables(text)) == 1 for _, text in marked if text != f"{PENDING}\n")


def test_only_a_gpu_may_be_waited_for(tmp_path: Path):
    marker = MARKER.format("gpu_rates", "assets/results/gpu_x.json")
    text = f"{marker}\n| 1 | 2 |\n<!-- end -->"
    assert written(text, tmp_path) == f"{marker}\n{PENDING}\n<!-- end -->"
    results = tmp_path / "assets" / "results"
    results.mkdir(parents=True)
    (results / "gpu_x.json").write_text("{}")
    with pytest.raises(DocumentError, match=r"view gpu_rates cannot show \S+gpu_x\.json"):
        written(text, tmp_path)


KINDS = {name: [1.0, 2.0] for name in ("chat", "code", "maths", "rewriting", "summary")}
SUM = json.dumps(
    {"held_out": {"by_depth": {str(b): [b / 7, b / 3] for b in (2, 3, 4, 8)}, "by_kind": KINDS}}
)
MARKER = "<!-- python -m mars_runtime tables: {} of {} -->"


def test_a_figure_that_was_changed_is_written_again(tmp_path: Path):
    (tmp_path / "x.json").write_text(SUM)
    text = f"before\n\n{MARKER.format('held_out', 'x.json')}\n<!-- end -->\nafter\n"
    whole = written(text, tmp_path)
    assert whole.startswith("before\n")
    assert whole.endswith("<!-- end -->\nafter\n")
    assert "| B = 4 | 0.57 | 1.33 |" in whole
    assert written(whole, tmp_path) == whole
    assert written(whole.replace("1.33", "1.34"), tmp_path) == whole


@pytest.mark.parametrize(
    ("view", "file", "says"),
    [
        ("nonsense", "x.json", "There is no view 'nonsense'. Choose"),
        ("families", "x.json", "The view families cannot show x.json"),
        ("held_out", "gone.json", "The view held_out cannot show gone.json"),
    ],
)
def test_a_marker_that_is_wrong_gets_a_sentence(tmp_path: Path, view: str, file: str, says: str):
    (tmp_path / "x.json").write_text(SUM)
    with pytest.raises(DocumentError, match=says):
        written(f"{MARKER.format(view, file)}\n<!-- end -->", tmp_path)


def test_a_result_of_another_checkpoint_is_found(tmp_path: Path):
    path = tmp_path / "r.json"
    for name, given, faults in (
        ("mars-tiny", shipped("mars-tiny"), 0),
        ("mars-tiny", shipped("ar-tiny"), 1),
        ("mars-smollm2", "888dc0ce5bda140e", 1),
        ("mars-smollm2", shipped("mars-smollm2"), 0),
        ("a-stranger", "f00d", 1),
    ):
        path.write_text(json.dumps({"cells": [{"checkpoint": name, "fingerprint": given}]}))
        assert len(of_others(path)) == faults, (name, given)
    path.write_text("{}")
    assert of_others(path) == ["r.json does not say of which checkpoint it is"]


def test_checkpoints_that_only_had_a_part_are_noted_too():
    noted = {"checkpoint": "mars-tiny-draft", "fingerprint": shipped("mars-tiny-draft")}
    assert document({}, {"drafts": ["mars-tiny-draft"]})["weights"] == [noted]
    assert "weights" not in document({}, {"drafts": None})


BUNDLED = sorted(path.parent.name for path in REGISTRY.parent.glob(f"*/{SUMS}"))


@pytest.mark.parametrize("name", BUNDLED)
def test_what_ships_has_the_fingerprint_that_a_measurement_would_note(name: str):
    entry = registry().get(name)
    if entry is not None and not (entry.gguf or is_present(entry)):
        pytest.skip("not here")
    if entry is not None and entry.gguf and not entry.gguf.path.is_file():
        pytest.skip("its base is not fetched")
    where = name if entry is not None else str(REGISTRY.parent / name)
    assert fingerprint(load_checkpoint(where, device="cpu").weight_files) == shipped(name)


def result(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def lossless_answers() -> tuple[str, str]:
    """How many there are, plain AR left out, and their tokens."""
    ways = [way for way in result("lossless.json")["ways"] if way["settings"]["lossless"]]
    assert not any(way["mismatches"] for way in ways)
    answers, tokens = (sum(way[key] for way in ways) for key in ("num_prompts", "num_tokens"))
    return f"{answers:,}", f"{tokens:,}"


def int8_agreement() -> tuple[str, str]:
    """Of lossless answers with AR's, in percent: to tasks, and of natural text."""
    document = result("evaluation_int8.json")
    (tasks,) = [average for average in document["averages"] if average["settings"]["lossless"]]
    (natural,) = [
        cell
        for cell in document["cells"]
        if cell["cell"]["settings"]["lossless"] and cell["accuracy"] is None
    ]
    return f"{tasks['agreement'] * 100:.1f}", f"{natural['agreement'] * 100:.1f}"


def seconds_of_small_trainings() -> tuple[int, int]:
    actual = [run["seconds"] for run in result("ablations_small.json")["runs"] if run["seconds"]]
    return round(min(actual)), round(max(actual))


def compared(name: str, peer: str, baseline: str = "AR") -> dict[str, float]:
    """The ratio of two peers' tokens/s, one prompt at a time, with its interval."""
    (actual,) = [
        comparison["overall"]
        for comparison in result(name)["comparisons"]
        if (comparison["batch_size"], comparison["peer"], comparison["baseline"])
        == (1, peer, baseline)
    ]
    return dict(actual)


def interval(actual: dict[str, float]) -> str:
    return "{value:.2f} [{low:.2f}, {high:.2f}]".format(**actual)


def speed_next_to_busy_processes() -> str:
    """Of lossless decoding with chosen threads, as shares of its speed on a quiet machine."""
    quiet, one_busy, two = (
        rate["tokens_per_second"]
        for rate in result("beside.json")["rates"]
        if "lossless" in rate["way"] and rate["threads"] is None
    )
    return f"lossless decoding has {one_busy / quiet:.2f} of its speed, with two {two / quiet:.2f} "


def tokens_per_forward_along_a_text() -> str:
    """Of lossless decoding in the first and in the last stretch."""
    actual = [
        stretch for stretch in result("length.json")["stretches"] if "lossless" in stretch["way"]
    ]
    first, last = actual[0], actual[-1]
    before = f"{first['tpf']:.2f} in the first {first['end']} tokens"
    return f"{before} and {last['tpf']:.2f} in the last {last['end'] - last['start']:,} "


def int4_shape() -> str:
    """Of AR, compared with llama.cpp, and of MARS compared with AR."""
    ar = interval(compared("shape_int4.json", "AR", "llama.cpp"))
    mars = interval(compared("shape_int4.json", "MARS τ=0.95 B=4, acceptance imposed"))
    return f"{ar} times llama.cpp, and MARS {mars} times AR"


def speculative_speed() -> str:
    """The least and the most of the four variants, compared with AR."""
    peer = "speculative mars-tiny-draft K=4, {}".format
    variants = ("no masks", "masks in target", "masks in draft", "masks in both")
    actual = [compared("drafts_benchmark.json", peer(variant))["value"] for variant in variants]
    return f"{min(actual):.2f} to {max(actual):.2f} times AR's tokens/s"


def speed_of_the_chat_table() -> str:
    """AR's figures, and its share of the limit that reading the weights sets, as in the report."""
    report = (ROOT / "assets/results/engines.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in report.splitlines() if line.startswith("| AR |")]
    speed = rows[0][2]  # the first table of the report
    share = next(row[2] for row in rows if row[2].endswith("%"))
    return f"{speed} tokens per second there, {share.replace('%', ' %')} of what"


def fetched() -> str:
    gguf = registry()["mars-smollm2"].gguf
    assert gguf is not None
    return f"{gguf.size / 1e6:.0f} MB"


NUMBERS = {4: "Four", 5: "Five", 6: "Six"}
TINY = [name for name in BUNDLED if name.endswith("-tiny") or "-tiny-" in name]
MEASURED, CARD = "docs/measurements.md", "checkpoints/mars-smollm2/README.md"
SAID: list[tuple[str, Callable[[], str]]] = [
    ("README.md", lambda: f"{NUMBERS[len(TINY)]} tiny checkpoints"),
    ("README.md", lambda: f"the chat model ({fetched()}, once)"),
    ("README.md", speed_of_the_chat_table),
    ("docs/commands.md", lambda: f"({fetched()}, Apache-2.0)"),
    (MEASURED, lambda: "of {} lossless answers".format(*lossless_answers())),
    (MEASURED, lambda: "{1} tokens".format(*lossless_answers())),
    (CARD, lambda: "of {} greedy answers".format(*lossless_answers())),
    (MEASURED, lambda: "{} % of answers to tasks and on {} %".format(*int8_agreement())),
    (MEASURED, lambda: "in {} to {} seconds".format(*seconds_of_small_trainings())),
    (MEASURED, speed_next_to_busy_processes),
    (MEASURED, tokens_per_forward_along_a_text),
    (MEASURED, int4_shape),
    (MEASURED, speculative_speed),
]


@pytest.mark.parametrize(("page", "figure"), SAID)
def test_figures_in_sentences_are_those_of_their_files(page: str, figure: Callable[[], str]):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert figure() in text
