"""Prompts: what they hold, in which order they come, and which are kept out. Repetition loops in
hand-made token lists. The file of answers survives a kill in the middle of a line.
"""

from __future__ import annotations

import json
import random
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.lab.training.distill import requests, store
from mars_runtime.lab.training.distill.cli import parse_part
from mars_runtime.lab.training.distill.loops import MAX_PERIOD, MIN_REPEATED, find_loop
from mars_runtime.lab.training.distill.mixture import (
    SHARES,
    Prompt,
    benchmark_runs,
    interleave,
    mixture,
    runs,
    words,
)

FOURTEEN = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"


def test_words_are_compared_without_case_and_punctuation() -> None:
    assert words("It's 3 o'clock, Anna!") == ["it", "s", "3", "o", "clock", "anna"]


def test_a_shared_run_of_thirteen_words_is_found_and_twelve_are_not() -> None:
    found = runs(FOURTEEN)
    assert found & runs("So: ONE, two, three " + FOURTEEN[14:])
    twelve = " ".join(FOURTEEN.split()[:12])
    assert not found & runs(f"{twelve} and something else altogether")


def test_benchmarks_are_read_from_nested_json_lines(tmp_path: Path) -> None:
    line = {"prompt": {"inner": ["short", FOURTEEN]}, "number": 3}
    (tmp_path / "some.jsonl").write_text(json.dumps(line) + "\n")
    assert benchmark_runs(tmp_path) == runs(FOURTEEN)


def test_every_prefix_holds_each_kind_in_its_share() -> None:
    sources = {kind: iter([(f"{kind} {i}",) for i in range(100)]) for kind in "ab"}
    prompts = list(interleave(sources, {"a": 0.75, "b": 0.25}))
    assert [p.kind for p in prompts[:8]].count("a") == 6
    assert len(prompts) == 200


def test_a_repeated_conversation_comes_once() -> None:
    prompts = list(interleave({"a": iter([("x",), ("x",), ("y",)])}, {"a": 1.0}))
    assert [p.turns for p in prompts] == [("x",), ("y",)]


def test_about_one_prompt_in_fifty_is_held_out_and_always_the_same() -> None:
    kept = [Prompt("a", (f"prompt {i}",)).is_held_out for i in range(5000)]
    assert 60 <= sum(kept) <= 140
    assert kept == [Prompt("b", (f"prompt {i}",)).is_held_out for i in range(5000)]


@pytest.mark.parametrize("drawn", [requests.code_requests, requests.chat_requests])
def test_drawn_requests_are_many_whole_and_repeatable(drawn: object) -> None:
    assert callable(drawn)
    first = list(islice(drawn(random.Random(1)), 2000))
    assert first == list(islice(drawn(random.Random(1)), 2000))
    assert len(set(first)) > 1000
    for turns in first:
        assert len(turns) % 2 == 1
        assert all(text.strip() for text in turns)


def test_passages_are_cut_after_whole_sentences() -> None:
    text = "One went out into the wide world today. Two stayed at home. Three slept."
    assert (
        requests.first_sentences(text, 1)
        == "One went out into the wide world today. Two stayed at home."
    )
    assert requests.first_sentences("no end here", 1) == "no end here"


def test_slips_change_a_text() -> None:
    text = "He went to the house, and the dog was there, and he said nothing, being tired."
    assert requests.with_slips(text, random.Random(0)) != text


def test_a_question_carries_its_passage() -> None:
    item = requests.Question("A fox sat.", "Who sat?", "a fox")
    draws = list(requests.questions([item] * 40, random.Random(0)))
    assert all("A fox sat." in turns[0] and "Who sat?" in turns[0] for turns in draws)
    assert {len(turns) for turns in draws} == {1, 3}


def test_the_mixture_leaves_benchmark_texts_out(tmp_path: Path) -> None:
    write = lambda name, rows: (tmp_path / name).write_text(  # noqa: E731
        "".join(json.dumps(row) + "\n" for row in rows)
    )
    passage = " ".join(f"The {word} met another {word} on the road." for word in ("fox", "hen") * 5)
    write("chat_prompts_train.jsonl", [{"prompt": FOURTEEN}, {"prompt": "Tell me a joke."}])
    write("gsm8k_train.jsonl", [{"question": f"What is {i} and {i}?"} for i in range(50)])
    write("fairytale_sections_train.jsonl", [{"tale": "t", "section": 1, "text": passage}])
    write(
        "fairytale_questions_train.jsonl",
        [{"tale": "t", "sections": "1", "question": "Who?", "answer": "a fox"}],
    )
    (tmp_path / "childrens_classics.txt").write_text(f"<<<BOOK a/b>>>\n{passage}\n\nshort\n")
    prompts = mixture(tmp_path, ["Own prompt."], runs(FOURTEEN), 1, 200)
    asked = {prompt.turns[0] for prompt in prompts}
    assert len(prompts) == 200
    assert {"Tell me a joke.", "Own prompt."} <= asked
    assert FOURTEEN not in asked
    assert {prompt.kind for prompt in prompts} <= SHARES.keys()


def test_a_text_without_repetition_has_no_loop() -> None:
    assert find_loop(range(300)) is None
    assert find_loop([]) is None


def test_one_token_repeated_keeps_its_first_copy() -> None:
    assert find_loop([1, 2, 3, *[7] * 30]) == 4


def test_a_phrase_repeated_keeps_its_first_copy() -> None:
    start, phrase = list(range(100, 110)), [1, 2, 3, 4, 5]
    assert find_loop(start + phrase * 6) == len(start) + len(phrase)


@pytest.mark.parametrize("repeated", [MIN_REPEATED - 1, MIN_REPEATED])
def test_a_loop_needs_enough_repeated_tokens(repeated: int) -> None:
    found = find_loop([1, 2, 3] + [9] * (1 + repeated))
    assert found == (4 if repeated == MIN_REPEATED else None)


def test_a_long_sentence_must_come_twice_in_full() -> None:
    sentence = list(range(40))
    assert find_loop(sentence + sentence[:39]) is None
    assert find_loop(sentence + sentence) == 40


def test_what_is_longer_than_the_longest_period_is_no_loop() -> None:
    paragraph = list(range(MAX_PERIOD + 1))
    assert find_loop(paragraph * 3) is None


@given(st.lists(st.integers(0, 3), max_size=120))
def test_what_is_kept_has_no_loop_itself(ids: list[int]) -> None:
    found = find_loop(ids)
    if found is not None:
        assert 0 < found < len(ids)
        assert find_loop(ids[:found]) is None


RECORD = store.Record("k", "chat", False, (1, 2), (3, 4), "eos")


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    store.Answers(tmp_path / "answers-1-of-1.jsonl").append([RECORD, RECORD])
    assert list(store.read(tmp_path)) == [RECORD, RECORD]


def test_half_a_line_is_passed_over_and_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "answers-1-of-1.jsonl"
    store.Answers(path).append([RECORD])
    with path.open("a") as file:
        file.write('{"key": "half')
    assert list(store.read(tmp_path)) == [RECORD]
    store.Answers(path).append([RECORD])
    assert list(store.read(tmp_path)) == [RECORD, RECORD]


def test_keys_name_prompts() -> None:
    assert store.key_of([1, 2]) == store.key_of((1, 2)) != store.key_of([12])


def test_parts_are_one_of_several() -> None:
    assert parse_part("2/3") == (2, 3)
    assert [parse_part(text) for text in ("0/2", "3/2", "2", "a/b", "")] == [None] * 5
