"""Answers of an engine, cut at stop strings, kept on disk; counts by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted_text import ScriptedBackend, write_tokenizer

from mars_runtime.engine import Engine
from mars_runtime.lab.harness.answers import AnswerStore, Record, key_of, record
from mars_runtime.lab.harness.figures import figures_of
from mars_runtime.lab.harness.generation import Wanted, Written, write_all
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Tokenizer

BOLD = DecodeSettings(tau=0.0, block_size=4, max_new_tokens=64)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return write_tokenizer(tmp_path)


def written(tokenizer: Tokenizer, text: str, *wanted: Wanted) -> list[Written]:
    with Engine(ScriptedBackend(text, forward_seconds=0.0), max_runs=2) as engine:
        found = dict(write_all(engine, tokenizer, wanted))
    return [found[number] for number in range(len(wanted))]


def test_counts_are_those_of_the_forwards(tokenizer: Tokenizer) -> None:
    (one,) = written(tokenizer, "Hello.", Wanted((1, 2), BOLD))
    assert one.text == "Hello."
    assert one.output.taken == (4, 3)  # six letters and the end of turn
    assert one.output.is_ended


def test_a_stop_string_ends_text_and_counts(tokenizer: Tokenizer) -> None:
    (one,) = written(tokenizer, "one\n\ntwo and much more", Wanted((1,), BOLD, ("\n\n",)))
    assert one.text == "one"
    assert one.output.taken == (4, 4)  # the forward that completed it counts, none behind it
    assert record("task", 3, one, 64).is_ended


def test_the_limit_is_no_end(tokenizer: Tokenizer) -> None:
    short = DecodeSettings("ar", max_new_tokens=3)
    (one,) = written(tokenizer, "Hello.", Wanted((1,), short))
    assert one.text == "Hel"
    assert not record("task", 0, one, 3).is_ended


def test_many_requests_come_back_each_with_its_own_limit(tokenizer: Tokenizer) -> None:
    wanted = [Wanted((1,), DecodeSettings("ar", max_new_tokens=n)) for n in range(1, 21)]
    found = written(tokenizer, "x" * 40, *wanted)
    assert [len(one.text) for one in found] == list(range(1, 21))


def test_answers_are_found_again(tokenizer: Tokenizer, tmp_path: Path) -> None:
    wanted = Wanted((1, 2), BOLD)
    (one,) = written(tokenizer, "A \u2028 line.", wanted)
    key = key_of("weights", "fp32", "task", 0, wanted)
    path = tmp_path / "runs" / "answers.jsonl"
    kept = record("task", 0, one, 64)
    AnswerStore(path).put(key, kept)
    with path.open("a", encoding="utf-8") as file:
        file.write('\n{"key": "broken')
    again = AnswerStore(path)
    assert again.get(key) == kept
    assert again[key] == kept
    others = [
        key_of("other", "fp32", "task", 0, wanted),
        key_of("weights", "fp32", "task", 1, wanted),
        key_of("weights", "fp32", "task", 0, Wanted((1, 2), BOLD, ("stop",))),
        key_of("weights", "fp32", "task", 0, Wanted((1, 2), DecodeSettings("ar"))),
    ]
    assert key not in others
    assert not any(map(again.get, others))


def test_figures_of_a_task_by_hand() -> None:
    counts = [(10, 5, 10, 5, True), (30, 10, 8, 4, False)]
    records = [
        Record("gsm", n, "", tokens, forwards, kept, kept_forwards, is_ended, not is_ended)
        for n, (tokens, forwards, kept, kept_forwards, is_ended) in enumerate(counts)
    ]
    found = figures_of([*records, Record("other", 0, "", 4, 4, 4, 4, True, False)])
    assert list(found) == ["gsm", "other"]
    own = found["gsm"]
    assert own["tpf"]["value"] == pytest.approx(2.0)
    assert own["tpf_whole"]["value"] == pytest.approx(2.5)
    assert (own["tokens"], own["forwards"]) == (40, 15)
    assert (own["ended"], own["looped"]) == (0.5, 0.5)
    assert own["by_answer"] == [[0, 10, 5, 10, 5], [1, 8, 4, 30, 10]]
