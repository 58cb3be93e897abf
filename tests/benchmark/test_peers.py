"""Other engines in child processes: transformers itself, OpenVINO by stand-ins of its packages, and
all of them where they can run."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mars_runtime.lab.benchmark.peer_process import TimedTokens
from mars_runtime.lab.benchmark.peers import ENGINES, ChildPeer, OtherEngine, methods, runtime_ask
from mars_runtime.lab.evaluation.run import eval_model_of
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import Checkpoint, load_checkpoint

TRANSFORMERS, LLAMA_CPP, OPENVINO, _ = ENGINES
PACKAGES = {
    "openvino": "Tensor = list",
    "openvino_genai": """
import types
__version__ = "3.4"
StreamerBase = object
StreamingStatus = types.SimpleNamespace(RUNNING=0)
GenerationConfig = types.SimpleNamespace
class LLMPipeline:
    def __init__(self, path, device, **properties):
        print("chatter of a library")
        assert path.endswith(".gguf") and device == "CPU"
        self.threads = properties["INFERENCE_NUM_THREADS"]
    def generate(self, prompt, config, streamer):
        first = int(prompt[0][0])
        if first == 14:
            raise RuntimeError("no\\nmemory")
        tokens = [first, self.threads, *config.stop_token_ids][: config.max_new_tokens]
        streamer.write(tokens[0])
        streamer.write(tokens[1:])
""",
}


@pytest.fixture(scope="module")
def checkpoint(foreseeing_folder: Path) -> Checkpoint:
    return load_checkpoint(str(foreseeing_folder), device="cpu")


@pytest.fixture
def gguf(checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    """The same, as if it were read from a GGUF file, with stand-ins for packages."""
    for name, source in PACKAGES.items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return replace(checkpoint, path=Path("some.gguf"))


def test_transformers_writes_what_ar_and_lossless_write(checkpoint: Checkpoint) -> None:
    decode, model = eval_model_of(checkpoint).decode, checkpoint.model
    with closing(ChildPeer(TRANSFORMERS, sys.executable, checkpoint, 20, 99)) as child:
        assert "transformers" in child.versions
        for text in ("fox", "A small fox ran over the hills.", "a b c a b c"):
            prompt = checkpoint.tokenizer.encode_prompt(text)
            answers = {
                name: runtime_ask(decode, settings, model.device)(prompt)
                for name, settings in methods(20).items()
            }
            theirs = child.ask(prompt)
            assert len(theirs.tokens) == len(theirs.chunks) == len(answers["AR"].chunks)
            for name, answer in answers.items():
                assert answer.tokens == theirs.tokens or name.startswith("MARS")
                assert sum(chunk.num_tokens for chunk in answer.chunks) == len(answer.tokens)
                assert 0 < answer.first_seconds <= answer.seconds


def test_a_child_answers_on_the_threads_of_this_process_until_it_fails(gguf: Checkpoint) -> None:
    (eos,) = gguf.tokenizer.eos_ids
    with closing(ChildPeer(OPENVINO, sys.executable, gguf, 9, 99)) as child:
        assert child.versions == {"openvino_genai": "3.4"}
        for threads in (1, 2):
            torch.set_num_threads(threads)
            answer = child.ask([7, 8])
            assert (answer.tokens, answer.tpf()) == ((7, threads, eos), 1.0)
            moments = [chunk.moment for chunk in answer.chunks]
            assert 0 < moments[0] <= moments[-1] <= answer.seconds
        for prompt, says in ((14, "no memory"), (7, "has ended")):
            with pytest.raises(RuntimeError, match=says):
                child.ask([prompt])


@pytest.mark.parametrize(
    ("interpreter", "says"),
    [("/nowhere/python", "cannot be run"), (sys.executable, "No module named 'llama_cpp'")],
)
def test_an_interpreter_without_the_package_is_a_sentence(
    interpreter: str, says: str, gguf: Checkpoint
) -> None:
    with pytest.raises(CheckpointError, match=says) as error:
        ChildPeer(LLAMA_CPP, interpreter, gguf, 20, 99)
    assert LLAMA_CPP.package in str(error.value)
    assert LLAMA_CPP.option in str(error.value)


def test_an_engine_needs_a_file_that_it_reads(checkpoint: Checkpoint) -> None:
    for engine in ENGINES[1:]:
        with pytest.raises(CheckpointError, match="only measured with GGUF files on the CPU"):
            ChildPeer(engine, sys.executable, checkpoint, 20, 99)


def test_an_answer_ends_at_its_limit_and_at_eos() -> None:
    timed = TimedTokens({"max_new_tokens": 3, "eos_ids": [9]})
    assert [timed.add(token) for token in (5, 6, 7)] == [False, False, True]
    assert timed.add(9)
    assert timed.moments == sorted(timed.moments)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.key)
@pytest.mark.skipif("MARS_GGUF" not in os.environ, reason="set MARS_GGUF to a 4-bit GGUF file")
def test_the_real_one_repeats_itself(engine: OtherEngine) -> None:
    if (interpreter := os.environ.get(f"MARS_{engine.key.upper()}")) is None:
        pytest.skip(f"set MARS_{engine.key.upper()} to a Python with {engine.package}")
    checkpoint = load_checkpoint(os.environ["MARS_GGUF"], device="cpu")
    with closing(ChildPeer(engine, interpreter, checkpoint, 16, 128)) as child:
        first, again = (child.ask((1, 9690, 198)) for _ in range(2))
    assert first.tokens == again.tokens
    assert len(first.tokens) == len(first.chunks) <= 16
