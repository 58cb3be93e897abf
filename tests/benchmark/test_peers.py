"""Peers: the same tokens and times that add up, on a checkpoint of toy size; llama.cpp with a
stand-in, and itself where it can run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mars_runtime.lab.benchmark.elsewhere import (
    AnswerEnd,
    LlamaCpp,
)
from mars_runtime.lab.benchmark.paired import PromptGroup, TimedAnswer
from mars_runtime.lab.benchmark.peers import Peers
from mars_runtime.lab.benchmark.plan import BATCHING, GENERATE, LOOKUP, task_methods
from mars_runtime.lab.benchmark.run import Series, warmed_up
from mars_runtime.lab.benchmark.targets import Target, checkpoint_target
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import load_checkpoint

LIMIT = 20
TEXTS = ("fox", "A small fox ran over the hills.", "a b c a b c")


@pytest.fixture(scope="module")
def target(foreseeing_folder: Path) -> Target:
    return checkpoint_target(load_checkpoint(str(foreseeing_folder), device="cpu"), {})


@pytest.fixture(scope="module")
def peers(target: Target) -> Iterator[Peers]:
    with Peers(target, task_methods([0.9], [4], [0.0], [4], LIMIT)) as found:
        yield found


def ask_all(peers: Peers, target: Target, *texts: str) -> dict[str, TimedAnswer]:
    prompts = tuple(tuple(target.tokenizer.encode_prompt(text)) for text in texts)
    asks = peers.of(len(prompts), max(map(len, prompts)))
    return {name: ask(PromptGroup("symbolic", prompts)) for name, ask in asks.items()}


@pytest.mark.parametrize("texts", [TEXTS[:1], TEXTS[1:2], TEXTS])
def test_all_peers_answer_alike_and_time_themselves(
    peers: Peers, target: Target, texts: tuple[str, ...]
):
    answers = ask_all(peers, target, *texts)
    expected = {GENERATE, "AR", "MARS τ=0.9 B=4", "lossless τ=0 B=4"}
    assert expected <= set(answers)
    assert (LOOKUP if len(texts) == 1 else BATCHING) in answers
    exact = [answer for name, answer in answers.items() if not name.startswith("MARS")]
    assert len({answer.output_id for answer in exact}) == 1
    assert answers["AR"].num_forwards == answers[GENERATE].num_forwards
    assert answers["AR"].num_forwards == max(len(row.tokens) for row in answers["AR"].rows)
    for answer in answers.values():
        assert len(answer.rows) == len(texts)
        assert 0 < answer.first_seconds <= answer.seconds
        for row in answer.rows:
            assert sum(chunk.num_tokens for chunk in row.chunks) == len(row.tokens)


def test_a_peer_that_cannot_be_loaded_is_left_out_with_its_reason(target: Target):
    def load() -> None:
        raise ImportError("no such package")

    ways = task_methods([0.9], [4], [0.0], [4], LIMIT)
    prompt = tuple(target.tokenizer.encode_prompt("fox"))
    with Peers(replace(target, load_transformers=load), ways, [GENERATE]) as found:
        asks = found.of(1, len(prompt))
        assert LOOKUP not in asks
        assert GENERATE in asks
        measured, left_out = warmed_up(Series(1, asks, (PromptGroup("symbolic", (prompt,)),)), [1])
    assert "AR" in measured
    assert GENERATE not in measured
    assert left_out == [f"{GENERATE} cannot run here (ImportError: no such package)"]


def test_other_caches_answer_as_the_cursor_does_where_one_token_leaves(
    peers: Peers, target: Target
):
    ways = task_methods([1.0], [2], [], [], LIMIT)
    prompts = tuple(tuple(target.tokenizer.encode_prompt(text)) for text in TEXTS)
    asks = peers.other_caches(ways["MARS τ=1 B=2"], [4, 16])
    assert list(asks) == ["block cache 4", "block cache 16", "no cache"]
    answers = {name: ask(PromptGroup("mixed", prompts)) for name, ask in asks.items()}
    assert len({answer.output_id for answer in answers.values()}) == 1


CHILD = """
import json, sys
print(json.dumps({"version": "1.2", "system": " ".join(sys.argv[1:])}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["prompt"] == [13]:
        break
    tokens = [*asked["prompt"], asked["eos_ids"][0]][: asked["max_new_tokens"]]
    moments = [0.5 + 0.1 * at for at in range(len(tokens))]
    print(json.dumps({"tokens": tokens, "moments": moments, "seconds": 2.0}), flush=True)
"""
DECODING = AnswerEnd((2,), 3)


@pytest.fixture
def child(tmp_path: Path) -> Path:
    path = tmp_path / "child.py"
    path.write_text(CHILD)
    return path


@pytest.fixture
def llama(child: Path) -> Iterator[LlamaCpp]:
    found = LlamaCpp(sys.executable, Path("some.gguf"), 99, child)
    yield found
    found.close()


def test_times_are_those_of_the_child(llama: LlamaCpp):
    assert (llama.version, llama.system) == ("1.2", "some.gguf 99")
    answer = llama.ask(PromptGroup("chat", ((7, 8),)), DECODING)
    assert answer.rows[0].tokens == (7, 8, 2)
    assert answer.first_seconds == 0.5
    assert (answer.seconds, answer.num_forwards) == (2.0, 3)
    assert llama.ask(PromptGroup("chat", ((7, 8, 9, 10),)), DECODING).rows[0].tokens == (7, 8, 9)


def test_a_child_that_ended_is_said(llama: LlamaCpp):
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"llama\.cpp has stopped"):
            llama.ask(PromptGroup("chat", ((13,),)), DECODING)


@pytest.mark.parametrize(
    ("interpreter", "says"),
    [("/nowhere/python", "can't be run"), (sys.executable, "no llama-cpp-python")],
)
def test_an_interpreter_without_it_is_a_sentence(interpreter: str, says: str, child: Path):
    child.write_text("import no_such_module")
    with pytest.raises(CheckpointError, match=says):
        LlamaCpp(interpreter, Path("some.gguf"), 99, child)


def test_a_file_that_it_cannot_read_is_a_sentence(child: Path):
    child.write_text("""print('{"error": "llama.cpp can\\'t read this file"}')""")
    with pytest.raises(CheckpointError, match="can't read this file"):
        LlamaCpp(sys.executable, Path("some.gguf"), 99, child)


@pytest.mark.slow
@pytest.mark.skipif(
    not {"MARS_LLAMA_CPP", "MARS_GGUF"} <= os.environ.keys(),
    reason="set MARS_LLAMA_CPP to a Python with llama-cpp-python and MARS_GGUF to a file",
)
def test_the_real_one_repeats_itself():
    llama = LlamaCpp(os.environ["MARS_LLAMA_CPP"], Path(os.environ["MARS_GGUF"]), 128)
    question = PromptGroup("chat", ((1, 9690, 198),))
    first, again = (llama.ask(question, AnswerEnd((2,), 16)) for _ in range(2))
    llama.close()
    assert first.rows[0].tokens == again.rows[0].tokens
    assert first.num_tokens == first.num_forwards <= 16
