"""Other engines in child processes: transformers itself, the others by stand-ins of their packages,
and themselves where they can run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from mars_runtime.lab.benchmark.peer_process import TimedTokens
from mars_runtime.lab.benchmark.peers import (
    ENGINES,
    SCRIPT,
    ChildPeer,
    OtherEngine,
    methods,
    runtime_ask,
)
from mars_runtime.lab.evaluation.run import eval_model_of
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import Checkpoint, load_checkpoint

LIMIT = 20
TRANSFORMERS, LLAMA_CPP, *_ = ENGINES
each_engine = pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.key)


@pytest.fixture(scope="module")
def checkpoint(foreseeing_folder: Path) -> Checkpoint:
    return load_checkpoint(str(foreseeing_folder), device="cpu")


@pytest.fixture(scope="module")
def gguf(checkpoint: Checkpoint) -> Checkpoint:
    """The same, as if it were read from a GGUF file."""
    return replace(checkpoint, path=Path("some.gguf"))


def test_transformers_writes_what_ar_and_lossless_write(checkpoint: Checkpoint):
    decode, model = eval_model_of(checkpoint).decode, checkpoint.model
    with closing(ChildPeer(TRANSFORMERS, sys.executable, checkpoint, LIMIT, 99)) as child:
        assert "transformers" in child.versions
        for text in ("fox", "A small fox ran over the hills.", "a b c a b c"):
            prompt = checkpoint.tokenizer.encode_prompt(text)
            answers = {
                name: runtime_ask(decode, settings, model.device)(prompt)
                for name, settings in methods(LIMIT).items()
            }
            theirs = child.ask(prompt)
            assert len(theirs.tokens) == len(theirs.chunks) == len(answers["AR"].chunks)
            for name, answer in answers.items():
                assert answer.tokens == theirs.tokens or name.startswith("MARS")
                assert sum(chunk.num_tokens for chunk in answer.chunks) == len(answer.tokens)
                assert 0 < answer.first_seconds <= answer.seconds


CHILD = """
import json, sys
print(json.dumps({"versions": {"stand-in": json.loads(sys.argv[1])["engine"]}}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["prompt"] == [13]:
        break
    if asked["prompt"] == [14]:
        print(json.dumps({"error": "no memory"}), flush=True)
        break
    answer = {"tokens": [asked["threads"], *asked["prompt"]], "moments": [0.5, 1.0], "seconds": 1.5}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "child.py"
    path.write_text(CHILD)
    return path


@pytest.fixture
def child(gguf: Checkpoint, script: Path) -> Iterator[ChildPeer]:
    child = ChildPeer(LLAMA_CPP, sys.executable, gguf, LIMIT, 99, script)
    yield child
    child.close()


def test_a_child_answers_on_the_threads_of_this_process(child: ChildPeer):
    import torch

    assert child.versions == {"stand-in": "llama_cpp"}
    answer = child.ask([7])
    assert answer.tokens == (torch.get_num_threads(), 7)
    assert (answer.seconds, answer.first_seconds, answer.tpf()) == (1.5, 0.5, 1.0)


@pytest.mark.parametrize(("prompt", "says"), [(13, "has ended"), (14, "no memory")])
def test_a_child_that_fails_is_reported(child: ChildPeer, prompt: int, says: str):
    with pytest.raises(RuntimeError, match=says):
        child.ask([prompt])
    with pytest.raises(RuntimeError, match="has ended"):
        child.ask([7])


@each_engine
@pytest.mark.parametrize(
    ("interpreter", "says"),
    [("/nowhere/python", "cannot be run"), (sys.executable, "it has ended")],
)
def test_an_interpreter_without_the_package_is_a_sentence(
    engine: OtherEngine, interpreter: str, says: str, gguf: Checkpoint, script: Path
):
    script.write_text("import no_such_module")
    with pytest.raises(CheckpointError, match=says) as error:
        ChildPeer(engine, interpreter, gguf, LIMIT, 99, script)
    assert engine.package in str(error.value)
    assert engine.option in str(error.value)


@pytest.mark.parametrize("engine", ENGINES[1:], ids=lambda engine: engine.key)
def test_an_engine_needs_a_file_that_it_reads(engine: OtherEngine, checkpoint: Checkpoint):
    with pytest.raises(CheckpointError, match="only measured with GGUF files on the CPU"):
        ChildPeer(engine, sys.executable, checkpoint, LIMIT, 99)


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
        if not path.endswith(".gguf"):
            raise RuntimeError("cannot\\nread it")
        self.threads = properties["INFERENCE_NUM_THREADS"]
    def generate(self, prompt, config, streamer):
        tokens = [int(prompt[0][0]), self.threads, *config.stop_token_ids][: config.max_new_tokens]
        streamer.write(tokens[0])
        streamer.write(tokens[1:])
""",
}


def lines_of(key: str, model: str, packages: Path, *requests: dict[str, object]) -> list[object]:
    """Run the child with stand-ins for its packages; return the lines that it writes."""
    for name, source in PACKAGES.items():
        path = packages / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    options = {"engine": key, "model": model, "num_tokens": 99, "dtype": "float32", "device": "cpu"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), json.dumps(options)],
        input="".join(json.dumps(request) + "\n" for request in requests),
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_child_answers_request_after_request(tmp_path: Path):
    requests = [
        {"prompt": [7, 8], "max_new_tokens": limit, "eos_ids": [9], "threads": threads}
        for limit, threads in ((9, 1), (9, 2), (2, 2))
    ]
    first, *answers = lines_of("openvino", "m.gguf", tmp_path, *requests)
    assert first == {"versions": {"openvino_genai": "3.4"}}
    assert [item["tokens"] for item in answers] == [[7, 1, 9], [7, 2, 9], [7, 2]]  # type: ignore[index]
    for answer in answers:
        assert isinstance(answer, dict)
        assert len(answer["moments"]) == len(answer["tokens"])
        assert 0 < answer["moments"][0] <= answer["moments"][-1] <= answer["seconds"]


def test_an_answer_ends_at_its_limit_and_at_eos():
    timed = TimedTokens({"max_new_tokens": 3, "eos_ids": [9]})
    assert [timed.add(token) for token in (5, 6, 7)] == [False, False, True]
    assert timed.add(9)
    assert timed.moments == sorted(timed.moments)


@pytest.mark.parametrize(
    ("key", "model", "error"),
    [
        ("openvino", "no.file", "cannot read it"),
        ("llama_cpp", "m.gguf", "No module named 'llama_cpp'"),
    ],
)
def test_the_child_reports_an_error_as_one_line(key: str, model: str, error: str, tmp_path: Path):
    request = {"prompt": [7], "max_new_tokens": 1, "eos_ids": [2], "threads": 1}
    lines = lines_of(key, model, tmp_path, request)
    assert lines[-1] == {"error": error}


@pytest.mark.slow
@each_engine
@pytest.mark.skipif("MARS_GGUF" not in os.environ, reason="set MARS_GGUF to a 4-bit GGUF file")
def test_the_real_one_repeats_itself(engine: OtherEngine):
    if (interpreter := os.environ.get(f"MARS_{engine.key.upper()}")) is None:
        pytest.skip(f"set MARS_{engine.key.upper()} to a Python with {engine.package}")
    checkpoint = load_checkpoint(os.environ["MARS_GGUF"], device="cpu")
    with closing(ChildPeer(engine, interpreter, checkpoint, 16, 128)) as child:
        first, again = (child.ask((1, 9690, 198)) for _ in range(2))
    assert first.tokens == again.tokens
    assert len(first.tokens) == len(first.chunks) <= 16
