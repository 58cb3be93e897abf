"""Open-ended requests: held out, different, of reasonable length, and not copied. Those unlike the
training data are judged by words.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mars_runtime import tasks
from mars_runtime.tasks import KINDS, SHIFTED, check, generate, is_checkable
from mars_runtime.tasks.requests import request_tasks

DATA = Path(__file__).parents[3] / "shared" / "data"
NUM_BENCHMARK, NUM_LAW = 12, 62
LONGEST_RUN = 13  # words
EVERY = 10_000


def prompts_of(kind: str, count: int = EVERY, seed: int = 0) -> list[str]:
    return [task.prompt for task in request_tasks(kind, seed, count)]


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_enough_and_all_are_different(kind: str) -> None:
    assert len(set(prompts_of(kind, NUM_LAW))) == NUM_LAW
    assert len(set(prompts_of(kind))) == len(prompts_of(kind))


def test_no_two_kinds_share_a_prompt() -> None:
    everything = [prompt for kind in KINDS for prompt in prompts_of(kind)]
    assert len(set(everything)) == len(everything)


@pytest.mark.parametrize("kind", KINDS)
def test_hand_written_requests_come_first_for_any_seed(kind: str) -> None:
    first = prompts_of(kind, NUM_BENCHMARK, seed=0)
    assert first == prompts_of(kind, NUM_BENCHMARK, seed=7)
    assert prompts_of(kind, NUM_LAW, seed=0)[:NUM_BENCHMARK] == first
    assert prompts_of(kind, NUM_LAW, seed=0) != prompts_of(kind, NUM_LAW, seed=7)
    assert prompts_of(kind, NUM_LAW, seed=7) == prompts_of(kind, NUM_LAW, seed=7)


def test_they_are_for_evaluation_only_and_have_no_checker() -> None:
    with pytest.raises(ValueError, match="held out"):
        generate("chat", "train", 0, 3)
    task = generate("chat", "eval", 0, 1)[0]
    assert not is_checkable(task)
    assert not check(task, "anything")


def runs_of_words(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"[a-z0-9']+", text.lower())
    return {tuple(words[at : at + LONGEST_RUN]) for at in range(len(words) - LONGEST_RUN + 1)}


def foreign_texts() -> Iterator[str]:
    """Every text of other people's benchmarks and of the training prompts, where they are."""
    for path in sorted(DATA.glob("benchmarks/*")):
        reader = gzip.open if path.suffix == ".gz" else open
        with reader(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield " ".join(str(value) for value in json.loads(line).values())
    for name in ("chat_prompts_train.jsonl", "gsm8k_train.jsonl"):
        for line in (DATA / name).read_text(encoding="utf-8").splitlines():
            yield " ".join(str(value) for value in json.loads(line).values())


@pytest.mark.skipif(not (DATA / "benchmarks").is_dir(), reason="the shared data are not here")
def test_no_run_of_words_is_shared_with_benchmarks_or_training_prompts() -> None:
    foreign: set[tuple[str, ...]] = set()
    for text in foreign_texts():
        foreign |= runs_of_words(text)
    assert len(foreign) > 100_000
    ours = {prompt: runs_of_words(prompt) for kind in KINDS for prompt in prompts_of(kind)}
    assert not [prompt for prompt, runs in ours.items() if runs & foreign]


@pytest.mark.parametrize("kind", SHIFTED)
def test_prompts_are_different_and_the_same_each_time(kind: str) -> None:
    actual = generate(kind, "eval", 0, 8)
    assert len({task.prompt for task in actual}) == 8
    assert actual == generate(kind, "eval", 0, 8)
    assert actual[:3] == generate(kind, "eval", 0, 3)
    assert tasks.is_open(kind)


def test_they_are_never_trained_on() -> None:
    assert not set(SHIFTED) & set(KINDS)
    with pytest.raises(ValueError, match="none to train on"):
        generate("tables", "train", 0, 1)


def test_a_right_answer_holds_one_of_its_words() -> None:
    task = generate("languages", "eval", 0, 1)[0]
    assert is_checkable(task)
    assert check(task, "Die Hauptstadt ist PARIS.")
    assert not check(task, "Die Hauptstadt ist Lyon.")
    some = [task for task in generate("tables", "eval", 0, 8) if not is_checkable(task)]
    assert some
    assert not check(some[0], "anything")
