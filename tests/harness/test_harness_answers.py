"""Answers of an engine, cut at stop strings, kept on disk, counted by hand; what counts as right,
programs run in the sandbox; results of benchmarks as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted_text import ScriptedBackend, write_tokenizer

from mars_runtime.engine import Engine
from mars_runtime.lab.harness.answers import (
    AnswerRecord,
    AnswerRequest,
    AnswerStore,
    DecodedAnswer,
    decode_all,
    figures_of,
    key_of,
    record,
)
from mars_runtime.lab.harness.judges import bbh_scores, final_answer, humaneval_scores, program
from mars_runtime.lab.harness.table import BenchmarkResult, tables
from mars_runtime.settings import DecodeSettings
from mars_runtime.statistics import Estimate, wilson
from mars_runtime.text import Tokenizer

BOLD = DecodeSettings(tau=0.0, block_size=4, max_new_tokens=64)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return write_tokenizer(tmp_path)


def written(tokenizer: Tokenizer, text: str, *wanted: AnswerRequest) -> list[DecodedAnswer]:
    with Engine(ScriptedBackend(text, forward_seconds=0.0), max_runs=2) as engine:
        actual = dict(decode_all(engine, tokenizer, wanted))
    return [actual[number] for number in range(len(wanted))]


def test_counts_are_those_of_the_forwards(tokenizer: Tokenizer) -> None:
    (answer,) = written(tokenizer, "Hello.", AnswerRequest((1, 2), BOLD))
    assert answer.text == "Hello."
    assert answer.output.taken == (4, 3)  # six letters and the end of turn
    assert answer.output.is_ended


def test_a_stop_string_ends_text_and_counts(tokenizer: Tokenizer) -> None:
    (answer,) = written(tokenizer, "one\n\ntwo and much more", AnswerRequest((1,), BOLD, ("\n\n",)))
    assert answer.text == "one"
    assert answer.output.taken == (4, 1)  # up to the token that completed it
    assert record("task", 3, answer, 64).is_ended


def test_the_limit_is_no_end(tokenizer: Tokenizer) -> None:
    short = DecodeSettings("ar", max_new_tokens=3)
    (answer,) = written(tokenizer, "Hello.", AnswerRequest((1,), short))
    assert answer.text == "Hel"
    assert not record("task", 0, answer, 3).is_ended


def test_many_requests_come_back_each_with_its_own_limit(tokenizer: Tokenizer) -> None:
    wanted = [AnswerRequest((1,), DecodeSettings("ar", max_new_tokens=n)) for n in range(1, 21)]
    actual = written(tokenizer, "x" * 40, *wanted)
    assert [len(item.text) for item in actual] == list(range(1, 21))


def test_answers_are_found_again(tokenizer: Tokenizer, tmp_path: Path) -> None:
    wanted = AnswerRequest((1, 2), BOLD)
    (answer,) = written(tokenizer, "A \u2028 line.", wanted)
    key = key_of("weights", "fp32", "task", 0, wanted)
    path = tmp_path / "runs" / "answers.jsonl"
    entry = record("task", 0, answer, 64)
    AnswerStore(path).put(key, entry)
    with path.open("a", encoding="utf-8") as file:
        file.write('\n{"key": "broken')
    again = AnswerStore(path)
    assert again.get(key) == entry
    assert again[key] == entry
    others = [
        key_of("other", "fp32", "task", 0, wanted),
        key_of("weights", "fp32", "task", 1, wanted),
        key_of("weights", "fp32", "task", 0, AnswerRequest((1, 2), BOLD, ("stop",))),
        key_of("weights", "fp32", "task", 0, AnswerRequest((1, 2), DecodeSettings("ar"))),
    ]
    assert key not in others
    assert not any(map(again.get, others))


def test_figures_of_a_task_by_hand() -> None:
    counts = [(10, 5, 10, 5, True), (30, 10, 8, 4, False)]
    records = [
        AnswerRecord(
            "gsm", n, "", tokens, forwards, kept_tokens, kept_forwards, is_ended, not is_ended
        )
        for n, (tokens, forwards, kept_tokens, kept_forwards, is_ended) in enumerate(counts)
    ]
    figures = figures_of([*records, AnswerRecord("other", 0, "", 4, 4, 4, 4, True, False)])
    assert list(figures) == ["gsm", "other"]
    figure = figures["gsm"]
    assert figure["tpf"]["value"] == pytest.approx(2.0)
    assert figure["tpf_whole"]["value"] == pytest.approx(2.5)
    assert (figure["tokens"], figure["forwards"]) == (40, 15)
    assert (figure["ended"], figure["looped"]) == (0.5, 0.5)
    assert figure["by_answer"] == [[0, 10, 5, 10, 5], [1, 8, 4, 30, 10]]


PROMPT = "from typing import List\n\n\ndef total(xs: List[int]) -> int:\n    '''Add.'''\n"
TEST = "def check(candidate):\n    assert candidate([1, 2]) == 3\n    assert candidate([]) == 0\n"
DOC = {"prompt": PROMPT, "entry_point": "total", "test": TEST}


@pytest.mark.parametrize(
    ("text", "target", "answer"),
    [
        ("Not (A). The answer is (B).", "(B)", "(b)"),
        ("So the answer is: C", "(C)", "(c)"),
        ("(A) or maybe (D)", "(B)", "(d)"),
        ("Yes, since no. The answer is Yes.", "No", "yes"),
        ("It is invalid.", "valid", "invalid"),
        ("1,200 + 34 = 1,234", "24", "1234"),
        ("First.\nThe answer is: apple pear", "apple pear", "apple pear"),
        ("", "(A)", ""),
        ("Who knows?", "True", ""),
    ],
)
def test_the_last_answer_of_the_targets_form_counts(text: str, target: str, answer: str) -> None:
    assert final_answer(text, target) == answer


def test_scores_of_bbh() -> None:
    assert bbh_scores({"target": "] )"}, ["The answer is: ] )"]) == {"exact_match": 1.0}
    assert bbh_scores({"target": "(B)"}, ["The answer is (A)."]) == {"exact_match": 0.0}


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("```python\ndef total(xs: List[int]) -> int:\n    return sum(xs)\n```\nIt adds.", 1.0),
        ("    return sum(xs)\n```", 1.0),
        ("```python\ndef total(xs):\n    return len(xs)\n```", 0.0),
        ("```python\ndef total(xs):\n    import os\n    return sum(xs)\n```", 0.0),
        ("I am sorry.", 0.0),
    ],
)
def test_functions_are_run_against_their_test(answer: str, score: float) -> None:
    assert humaneval_scores(DOC, [answer]) == {"pass@1": score}


def test_a_function_defined_again_keeps_the_code_before_it() -> None:
    source = program(
        "import math\n\ndef f(x):\n    '''f'''\n", "f", "```\ndef f(x):\n    pass\n```"
    )
    assert source == "import math\n\ndef f(x):\n    pass\n"


PAPER: dict[str, Any] = {
    "base": "Q",
    "benchmarks": [{"name": "AR", "accuracy": {"IFEval": 48.44}, "tpf": {"IFEval": 1.0}}],
}


def cell(way: str, task: str, num_answers: int) -> BenchmarkResult:
    two = Estimate(2.0, 1.5, 2.5)
    right = wilson(num_answers // 2, num_answers)
    return BenchmarkResult(
        "some", "f00d", way, {}, task, num_answers, 541, right, two, two, 1.0, 0.0
    )


def test_a_cell_of_fewer_answers_says_so_and_the_paper_s_rows_are_named():
    cells = [cell("AR", "ifeval_local", 50), cell("MARS", "ifeval_local", 16)]
    accuracy, rates = tables(cells, PAPER)
    assert [line[0] for line in accuracy.lines] == ["some · AR", "some · MARS", "paper, Q · AR"]
    assert accuracy.lines[0][1] == "50.0 [36.6, 63.4]"
    assert accuracy.lines[1][1].endswith("], n = 16")
    assert [line[1] for line in rates.lines] == [
        "2.00 [1.50, 2.50]",
        "2.00 [1.50, 2.50], n = 16",
        "1.00",
    ]
    assert accuracy.lines[0][2] == "–"
