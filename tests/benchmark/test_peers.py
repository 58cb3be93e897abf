"""Peers: the same tokens and times that add up, on a checkpoint of toy size; other engines with a
stand-in, and themselves where they can run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mars_runtime.lab.benchmark.child import SCRIPT, ChildEngine
from mars_runtime.lab.benchmark.elsewhere import AnswerEnd, folder_writer
from mars_runtime.lab.benchmark.paired import PromptGroup, TimedAnswer
from mars_runtime.lab.benchmark.peers import Peers
from mars_runtime.lab.benchmark.plan import (
    BATCHING,
    ENGINES,
    GENERATE,
    LLAMA_CPP,
    LOOKUP,
    OtherEngine,
    task_methods,
)
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
    with Peers(target, task_methods([0.9], [4], [0.0], [4], LIMIT)) as actual:
        yield actual


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
    with Peers(replace(target, load_transformers=load), ways, [GENERATE]) as actual:
        asks = actual.of(1, len(prompt))
        assert LOOKUP not in asks
        assert GENERATE in asks
        measured, left_out = warmed_up(Series(1, asks, (PromptGroup("symbolic", (prompt,)),)), [1])
    assert "AR" in measured
    assert GENERATE not in measured
    assert left_out == [f"{GENERATE} failed in the warm-up (ImportError: no such package)"]


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
print(json.dumps({"versions": {"stand-in": " ".join(sys.argv[1:])}}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["prompt"] == [13]:
        break
    if asked["prompt"] == [14]:
        print(json.dumps({"error": "no memory"}), flush=True)
        break
    tokens = [*asked["prompt"], asked["eos_ids"][0]][: asked["max_new_tokens"]]
    moments = [0.5 + 0.1 * at for at in range(len(tokens))]
    print(json.dumps({"tokens": tokens, "moments": moments, "seconds": 2.0}), flush=True)
"""
DECODING = AnswerEnd((2,), 3)
each_engine = pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.key)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "child.py"
    path.write_text(CHILD)
    return path


@pytest.fixture
def child(script: Path) -> Iterator[ChildEngine]:
    started = ChildEngine(LLAMA_CPP, sys.executable, Path("some.gguf"), 99, script)
    yield started
    started.close()


def test_times_are_those_of_the_child(child: ChildEngine):
    assert child.versions == {"stand-in": "llama_cpp some.gguf 99"}
    answer = child.ask(PromptGroup("chat", ((7, 8),)), DECODING)
    assert answer.rows[0].tokens == (7, 8, 2)
    assert answer.first_seconds == 0.5
    assert (answer.seconds, answer.num_forwards) == (2.0, 3)
    assert child.ask(PromptGroup("chat", ((7, 8, 9, 10),)), DECODING).rows[0].tokens == (7, 8, 9)


@pytest.mark.parametrize(("prompt", "says"), [(13, r"llama\.cpp has ended"), (14, "no memory")])
def test_a_child_that_failed_is_reported(child: ChildEngine, prompt: int, says: str):
    with pytest.raises(RuntimeError, match=says):
        child.ask(PromptGroup("chat", ((prompt,),)), DECODING)
    with pytest.raises(RuntimeError, match=r"llama\.cpp has ended"):
        child.ask(PromptGroup("chat", ((7,),)), DECODING)


@each_engine
@pytest.mark.parametrize(
    ("interpreter", "says"),
    [("/nowhere/python", "cannot be run"), (sys.executable, "it does not have")],
)
def test_an_interpreter_without_the_package_is_a_sentence(
    engine: OtherEngine, interpreter: str, says: str, script: Path
):
    script.write_text("import no_such_module")
    with pytest.raises(CheckpointError, match=says) as error:
        ChildEngine(engine, interpreter, Path("some.gguf"), 99, script)
    assert engine.package in str(error.value)
    assert engine.option in str(error.value)


def test_a_file_that_it_cannot_read_is_a_sentence(script: Path):
    script.write_text("""print('{"error": "llama.cpp cannot read this file"}')""")
    with pytest.raises(CheckpointError, match="cannot read this file"):
        ChildEngine(LLAMA_CPP, sys.executable, Path("some.gguf"), 99, script)


PACKAGES = {
    "openvino": """
__version__ = "1.2"
Tensor = list
""",
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
        return types.SimpleNamespace(tokens=[tokens])
""",
    "onnxruntime_genai/__init__": """
import json
from pathlib import Path
__version__ = "5.6"
class Config:
    def __init__(self, path):
        assert (Path(path) / "model.onnx").is_file()
    def overlay(self, text):
        options = json.loads(text)["model"]["decoder"]["session_options"]
        self.threads = options["intra_op_num_threads"]
class Model:
    def __init__(self, config):
        self.threads = config.threads
class GeneratorParams:
    def __init__(self, model):
        pass
    def set_search_options(self, **options):
        self.longest = options["max_length"]
class Generator:
    def __init__(self, model, params):
        self.model, self.params, self.tokens = model, params, []
    def append_tokens(self, tokens):
        self.tokens += tokens
        self.coming = [tokens[0], self.model.threads, 9]
    def generate_next_token(self):
        assert len(self.tokens) < self.params.longest
        self.tokens.append(self.coming.pop(0))
    def get_next_tokens(self):
        return self.tokens[-1:]
""",
    "onnxruntime_genai/models/__init__": "",
    "onnxruntime_genai/models/builder": """
import sys
from pathlib import Path
options = dict(zip(sys.argv[1:-2:2], sys.argv[2:-2:2]))
if options["-p"] != "int4" or not (Path(options["-i"]) / "config.json").is_file():
    sys.exit("no model here")
print("chatter of a library")
Path(options["-o"]).mkdir()
(Path(options["-o"]) / "model.onnx").touch()
""",
}


def lines_of(key: str, model: Path, packages: Path, *requests: dict[str, object]) -> list[object]:
    """Run the child with stand-ins for its packages; return the lines that it writes."""
    for name, source in PACKAGES.items():
        path = packages / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), key, str(model), "99"],
        input="".join(json.dumps(request) + "\n" for request in requests),
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("key", "versions"),
    [
        ("openvino", {"openvino_genai": "3.4"}),
        ("onnxruntime", {"onnxruntime_genai": "5.6"}),
    ],
)
def test_the_child_answers_with_each_engine(key: str, versions: dict[str, str], tmp_path: Path):
    model = tmp_path / "m.gguf"
    model.mkdir()
    (model / "config.json").touch()
    requests = [
        {"prompt": [7, 8], "max_new_tokens": limit, "eos_ids": [9], "threads": threads}
        for limit, threads in ((9, 1), (9, 2), (2, 2))
    ]
    first, *answers = lines_of(key, model, tmp_path / "packages", *requests)
    assert first == {"versions": versions}
    assert [item["tokens"] for item in answers] == [[7, 1, 9], [7, 2, 9], [7, 2]]  # type: ignore[index]
    for answer in answers:
        assert isinstance(answer, dict)
        assert len(answer["moments"]) == len(answer["tokens"])
        assert 0 < answer["moments"][0] <= answer["moments"][-1] <= answer["seconds"]


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("openvino", "cannot read it"),
        ("onnxruntime", "its model builder failed: no model here"),
    ],
)
def test_the_child_reports_an_error_as_one_line(key: str, error: str, tmp_path: Path):
    request = {"prompt": [7], "max_new_tokens": 1, "eos_ids": [2], "threads": 1}
    lines = lines_of(key, tmp_path / "other", tmp_path / "packages", request)
    assert lines[-1] == {"error": error}


@pytest.mark.slow
@each_engine
@pytest.mark.skipif("MARS_GGUF" not in os.environ, reason="set MARS_GGUF to a 4-bit GGUF file")
def test_the_real_one_repeats_itself(engine: OtherEngine, tmp_path: Path):
    if (interpreter := os.environ.get(f"MARS_{engine.key.upper()}")) is None:
        pytest.skip(f"set MARS_{engine.key.upper()} to a Python with {engine.package}")
    gguf = Path(os.environ["MARS_GGUF"])
    checkpoint = load_checkpoint(str(gguf), device="cpu")
    model = gguf if engine.reads == "gguf" else folder_writer(checkpoint, gguf)(tmp_path)
    child = ChildEngine(engine, interpreter, model, 128)
    question = PromptGroup("chat", ((1, 9690, 198),))
    first, again = (child.ask(question, AnswerEnd((2,), 16)) for _ in range(2))
    child.close()
    assert first.rows[0].tokens == again.rows[0].tokens
    assert first.num_tokens == first.num_forwards <= 16
