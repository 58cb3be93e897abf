"""llama.cpp as a peer, with a stand-in for the child; and the child itself where it can run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mars_runtime.lab.benchmark.llama_peer import LlamaCpp
from mars_runtime.lab.benchmark.paired import Question
from mars_runtime.lab.benchmark.transformers_peers import Decoding
from mars_runtime.model.config import CheckpointError

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
DECODING = Decoding((2,), 3)


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
    answer = llama.ask(Question("chat", ((7, 8),)), DECODING)
    assert answer.rows[0].tokens == (7, 8, 2)
    assert answer.first_seconds == 0.5
    assert (answer.seconds, answer.num_forwards) == (2.0, 3)
    assert llama.ask(Question("chat", ((7, 8, 9, 10),)), DECODING).rows[0].tokens == (7, 8, 9)


def test_a_child_that_ended_is_said(llama: LlamaCpp):
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"llama\.cpp has stopped"):
            llama.ask(Question("chat", ((13,),)), DECODING)


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
    question = Question("chat", ((1, 9690, 198),))
    first, again = (llama.ask(question, Decoding((2,), 16)) for _ in range(2))
    llama.close()
    assert first.rows[0].tokens == again.rows[0].tokens
    assert first.num_tokens == first.num_forwards <= 16
