"""What the Compare tab computes, against the runtime's folds, csv's reader and numbers by hand."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
import sample_traces as samples
from browser import needs_browser, playwright
from modules import evaluate, modules_page

from mars_runtime import folds
from mars_runtime.review.exports import COMPUTED
from mars_runtime.settings import DecodeSettings
from mars_runtime.trace import Trace

pytestmark = needs_browser
FORMULAS = '=SUM(A1) +1 -2 @x "quoted", a\nline =cmd'
GUARDED = tuple(f"'{first}" for first in COMPUTED)
SCRIPT = samples.Script(samples.PROSE, DecodeSettings(tau=0.95, block_size=8))


@pytest.fixture(scope="module")
def page() -> Iterator[playwright.Page]:
    with modules_page() as made:
        yield made


def rows_of(text: str) -> list[dict[str, str]]:
    assert text.startswith("\ufeff")
    return list(csv.DictReader(io.StringIO(text[1:], newline="")))


@pytest.mark.parametrize(
    "text", [samples.EMOJI, samples.HOSTILE, FORMULAS], ids=["emoji", "hostile", "formulas"]
)
def test_the_table_of_forwards_is_the_trace(page: playwright.Page, text: str) -> None:
    trace = samples.run(replace(SCRIPT, text=text))
    made = evaluate(
        page, "export/files.js", "return m.stepsCsv(laneOf(given[0]));", list(trace.lines())
    )
    rows = rows_of(made)
    steps = list(folds.row_steps(trace.events))
    clocks = [clock for clock, _ in folds.timeline(trace.events)][1:]
    assert len(rows) == len(steps)
    for number, (row, (step, seconds)) in enumerate(zip(rows, steps, strict=True), start=1):
        assert int(row["forward"]) == number
        assert float(row["clock_s"]) == pytest.approx(clocks[number - 1], abs=1e-6)
        assert float(row["ms"]) == pytest.approx(1000 * seconds, abs=1e-4)
        assert int(row["accepted"]) == len(step.accepted)
        assert json.loads(row["confidences"]) == [p.confidence for p in step.proposals]
        assert len(json.loads(row["proposals"])) == len(step.proposals)
        assert (float(row["tau"]), row["B"], row["stop"]) == (0.95, "8", step.stop)
        assert row["text"][:1] not in ("=", "+", "-", "@")
    bare = [row["text"][1:] if row["text"][:2] in GUARDED else row["text"] for row in rows]
    assert "".join(bare) == folds.text(trace)


def test_a_formula_is_only_text_and_a_tray_says_which_run_a_row_is_of(
    page: playwright.Page,
) -> None:
    careful = DecodeSettings(method="ar")
    lines = samples.trace_lines(samples.run(replace(SCRIPT, text=FORMULAS, settings=careful)))
    made = evaluate(
        page,
        "export/files.js",
        "return m.allStepsCsv([{ name: '=1+1', lane: laneOf(given[0]) }]);",
        lines,
    )
    rows = rows_of(made)
    assert {row["run"] for row in rows} == {"'=1+1"}
    assert [row["text"] for row in rows][:2] == ["'=", "SUM"]
    assert (rows[0]["tau"], rows[0]["B"]) == ("", "")


@pytest.mark.parametrize(
    ("header", "settings", "name"),
    [
        ({}, {}, "mars-tiny-tau0.95-B8-2026-11-21T14-30-00.jsonl"),
        ({}, {"method": "ar"}, "mars-tiny-ar-2026-11-21T14-30-00.jsonl"),
        (
            {"checkpoint": "../../etc/passwd\n<b>", "date": ""},
            {"block_size": "auto", "lossless": True},
            "etc_passwd_b_-tau0.95-Bauto-lossless.jsonl",
        ),
    ],
)
def test_a_file_is_called_after_its_run(
    page: playwright.Page, header: dict[str, str], settings: dict[str, object], name: str
) -> None:
    lane = {
        "header": {"checkpoint": "mars-tiny", "date": "2026-11-21T14:30:00+00:00", **header},
        "settings": {"method": "cursor", "tau": 0.95, "block_size": 8, **settings},
    }
    assert evaluate(page, "export/files.js", "return m.fileName(given[0], 'jsonl');", lane) == name


def test_best_values_by_hand(page: playwright.Page) -> None:
    cases = [([1, 3, 2], 1), ([1, 3, 1], -1), ([2, 2], 1), ([1, None], 1), ([1, 2], 0)]
    body = "return given.map(([values, better]) => m.best(values.map((v) => v ?? NaN), better));"
    assert evaluate(page, "views/compare/figures.js", body, *cases) == [[1], [0, 2], [], [], []]


def header(**changes: str) -> dict[str, object]:
    common = {"hardware": "a CPU", "date": "2026-11-20T10:00", "dtype": "float32", "prompt": "Say"}
    written = {"tokens": [], "ids": [], "steps": []}
    return {"header": {**common, **changes}, "end": {"reason": "eos"}, **written}


def test_what_makes_runs_not_comparable_is_said(page: playwright.Page) -> None:
    def said(*lanes: dict[str, object]) -> list[str]:
        return evaluate(page, "views/compare/figures.js", "return m.remarks(given);", *lanes)

    assert said(header(), header()) == []
    (machines,) = said(header(), header(hardware="a GPU", date="2026-11-21"))
    assert "different machines" in machines
    assert "A a CPU, B a GPU" in machines
    (days,) = said(header(), header(date="2026-11-21T10:00"))
    assert "A 2026-11-20, B 2026-11-21" in days
    arithmetic, prompts, ends = said(
        header(), {**header(dtype="bfloat16", prompt="Sing"), "end": None}
    )
    assert "B bfloat16" in arithmetic
    assert "Different prompts" in prompts
    assert ends.startswith("B had not ended")


def test_texts_are_aligned_with_the_reference(page: playwright.Page) -> None:
    made = evaluate(
        page,
        "views/compare/texts.js",
        """const found = m.alignment(given[0], given[1]);
        const lists = Object.entries(found).map(([name, places]) => [name, [...places]]);
        return { ...Object.fromEntries(lists), said: m.differenceText(found, "A") };""",
        ["one", "two", "three", "four"],
        ["one", "2", "three", "four", "five"],
    )
    assert made["own"] == [1, 4]
    assert made["missing"] == [1]
    assert made["toBase"] == [0, -1, 2, 3, -1]
    assert made["near"][2:4] == [2, 3]
    assert made["fromBase"][2:] == [2, 3]
    assert made["said"] == "differs from A from token 2 on: 2 of 5 tokens are not in A"


def test_a_tray_file_is_cut_into_its_runs(page: playwright.Page) -> None:
    made = [samples.trace_lines(samples.run(replace(SCRIPT, seed=seed))) for seed in (1, 2)]
    records = [
        {"name": "first", "note": "", "rating": 3, "verdict": None, "lines": made[0]},
        {"name": "second", "note": "n\n2", "rating": 0, "verdict": True, "lines": made[1]},
    ]
    body = "return m.runsOf(m.trayText(given.map((record) => ({ record }))));"
    runs = evaluate(page, "views/compare/import.js", body, *records)
    assert [run.split("\n")[1:] for run in runs] == made
    assert [json.loads(run.split("\n")[0])["name"] for run in runs] == ["first", "second"]
    body = "return m.runsOf(given.join('\\n'));"
    assert evaluate(page, "views/compare/import.js", body, *made[0], *made[1]) == [
        "\n".join(lines) for lines in made
    ]
    assert evaluate(page, "views/compare/import.js", body, "", "a", "b") == ["a\nb"]


STORE = """
const none = () => { throw new DOMException("", "SecurityError"); };
const full = () => Promise.reject(new DOMException("", "QuotaExceededError"));
const store = new m.Store(given[0] === "forbidden" ? none : undefined);
if (given[0] === "full") store.write = full;
const said = await store.put({ id: "x", note: given[0] });
const kept = await store.all();
const other = await new m.Store().all();
await store.remove("x").catch(() => {});
return { said, kept, other };
"""


def test_a_browser_that_keeps_nothing_loses_nothing(page: playwright.Page) -> None:
    kept = evaluate(page, "views/compare/store.js", STORE, "fine")
    assert kept == {"said": "", "kept": [{"id": "x", "note": "fine"}], "other": kept["kept"]}
    for why, said in (("full", "no room left"), ("forbidden", "until the page is closed")):
        made = evaluate(page, "views/compare/store.js", STORE, why)
        assert said in made["said"]
        assert made["kept"] == [{"id": "x", "note": why}]
        assert made["other"] == []


def test_the_tray_keeps_what_it_is_told_and_takes_a_run_once(page: playwright.Page) -> None:
    trace: Trace = samples.run(SCRIPT)
    body = """
    const store = { all: async () => [], put: async () => "", remove: async () => {}, watch() {} };
    const tray = new m.Tray(store);
    const first = await tray.add(given[0], { verdict: true });
    const again = await tray.add([...given[0]]);
    await tray.change(first.pin, { note: "n", rating: 2 });
    await tray.remove(first.pin);
    const empty = tray.pins.length;
    await tray.restore(first.pin);
    const { lines, id, pinned, ...words } = tray.pins[0].record;
    return { words, isNew: [first.isNew, again.isNew], empty, num: tray.pins.length,
      tokens: tray.pins[0].lane.tokens.length };
    """
    made = evaluate(page, "views/compare/tray.js", body, list(trace.lines()))
    assert made["words"] == {
        "name": "MARS τ 0.95 · B 8 · Write.",
        "note": "n",
        "rating": 2,
        "verdict": True,
        "isImported": False,
        "number": 1,
        "colour": 1,
    }
    assert made["isNew"] == [True, False]
    assert (made["empty"], made["num"]) == (0, 1)
    assert made["tokens"] == folds.num_tokens(trace.events)
