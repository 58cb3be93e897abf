"""How a series is played, and the command from arguments to files: on a checkpoint of toy size, and
on shapes without real weights."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gguf
import pytest
import torch
from gguf.quants import dequantize
from scripted_answers import QUESTIONS, peer

from mars_runtime.acceptance import DecodeError
from mars_runtime.lab.benchmark import cli, peers, plan, run
from mars_runtime.lab.benchmark.elsewhere import AnswerEnd
from mars_runtime.lab.benchmark.figures import SeriesSamples
from mars_runtime.lab.benchmark.paired import PromptGroup, Sample, TimedAnswer, one_row
from mars_runtime.lab.benchmark.plan import ENGINES, LLAMA_CPP, READS, OtherEngine
from mars_runtime.lab.benchmark.run import Series, measure, spread_out
from mars_runtime.lab.benchmark.targets import read_acceptance
from mars_runtime.model import shapes
from tests.tiny_gguf import transformers_name

TINY = {
    **shapes.SHAPES["qwen2.5-0.5b"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
SAYS = "random weights, timing only, acceptance drawn from given shares 0.5, 0, 0.5"


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers(dest="command"))
    return parser.parse_args(["benchmark", *given])


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def silently(samples: Iterable[Sample], what: str, total: int) -> list[Sample]:
    actual = list(samples)
    assert len(actual) == total
    return actual


def faster_with(threads: int, seconds: float):
    """A peer that is fast on one number of threads."""

    def ask(question: PromptGroup) -> TimedAnswer:
        factor = 1.0 if torch.get_num_threads() == threads else 3.0
        return peer("any", factor * seconds).answer(question)

    return ask


def failing(question: PromptGroup) -> TimedAnswer:
    raise NotImplementedError("no such cache")


def played(asks: dict[str, object], threads: list[int]) -> SeriesSamples:
    series = Series(1, asks, tuple(QUESTIONS))  # type: ignore[arg-type]
    return measure(series, threads, 2, silently)


def test_each_peer_runs_on_the_threads_that_suit_it():
    samples = played({"a": faster_with(1, 1.0), "b": faster_with(2, 2.0)}, [1, 2])
    assert samples.threads == {"a": 1, "b": 2}
    assert {(item.peer, item.threads) for item in samples.samples} == {("a", 1), ("b", 2)}
    assert len(samples.samples) == 2 * 2 * len(QUESTIONS)
    assert samples.peers == ["a", "b"]
    seconds = [sample.answer.seconds for sample in samples.samples if sample.peer == "a"]
    assert seconds == [1.0, 2.0, 3.0, 4.0] * 2


def test_what_transformers_cannot_do_here_is_left_out_and_said():
    samples = played({plan.COMPILED: failing, "AR": faster_with(1, 1.0)}, [1])
    assert samples.peers == ["AR"]
    assert samples.left_out == (
        "transformers static cache failed in the warm-up (NotImplementedError: no such cache)",
    )


def test_a_fault_of_ours_is_not_hidden():
    with pytest.raises(NotImplementedError):
        played({"AR": failing}, [1])


def test_tuning_questions_are_spread_over_families():
    assert spread_out(QUESTIONS, 2) == [QUESTIONS[0], QUESTIONS[2]]
    assert spread_out(QUESTIONS, 9) == QUESTIONS


@dataclass(frozen=True)
class Done:
    """What one run left: exit code, printed text, tables and figures."""

    code: int
    printed: str
    markdown: str
    result: dict[str, Any]


@pytest.fixture(scope="module")
def done(random_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """One run of everything, as small as can be."""
    folder = tmp_path_factory.mktemp("benchmark")
    out = folder / "deep" / "b.json"
    given = [
        *("--checkpoint", str(random_folder), "--families", "symbolic", "natural"),
        *("--prompts", "2", "--rounds", "1", "--max-new-tokens", "8", "--threads", "1"),
        *("--batch", "1", "2", "--cache-blocks", "4"),
        *("--out", str(out)),
    ]
    threads, printed = torch.get_num_threads(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(run, "NUM_CURVE_ROUNDS", 2)
        patch.setattr("mars_runtime.lab.benchmark.forward.PROBE_SECONDS", 0.01)
        code = cli.run(arguments(*given))
    torch.set_num_threads(threads)
    document = json.loads(out.read_text(encoding="utf-8"))
    markdown = out.with_suffix(".md").read_text(encoding="utf-8")
    return Done(code, printed.getvalue(), markdown, document)


def test_a_run_prints_where_it_ran_and_tables(done: Done):
    assert done.code == 0
    assert "float32" in done.printed
    assert "torch " in done.printed
    title = "Batches of 2: ratio of tokens/s without prefill, with 95 % intervals"
    assert title in done.printed
    assert f"**{title}**" in done.markdown
    assert "| MARS τ=0.95 B=4 / AR |" in done.markdown


def test_figures_are_kept_with_their_origin(done: Done):
    actual = done.result
    assert {"date", "commit", "hardware", "versions", "asked", "machine", "rho"} <= set(actual)
    assert actual["subject"]["dtype"] == "float32"
    assert "out" not in actual["asked"]
    assert [entry["batch_size"] for entry in actual["series"]] == [1, 2]
    alone, together = actual["series"]
    assert len(alone["samples"]) == len(alone["peers"]) * 4
    assert {"block cache 4", "no cache"} <= {item["peer"] for item in together["peers"]}
    exact = {
        peer["families"]["output_id"]
        for peer in alone["peers"]
        if peer["peer"].startswith(("AR", "lossless"))
    }
    assert len(exact) == 1
    assert {value["width"] for value in actual["rho"]} >= {1, 7}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--taus", "2"], "τ must be a number"),
        (["--rounds", "0"], "--rounds must be at least 1, got 0."),
        (["--threads", "0"], "--threads must be at least 1"),
        (["--beside", "65"], "--beside must be between 0 and 64, got 65."),
        (["--batch", "1", "0"], "--batch must be at least 1, got 0."),
        (["--batch", "9999"], "at most 256"),
        (["--families", "poetry"], "--families 'poetry' is unknown"),
        (["--checkpoint", "nobody"], "nobody"),
    ],
)
def test_wrong_arguments_get_one_sentence(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    assert cli.run(arguments(*given)) == 2
    assert said in capsys.readouterr().err


def test_requests_are_measured_one_at_a_time_and_transformers_ways_once(
    random_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run, "NUM_CURVE_ROUNDS", 2)
    monkeypatch.setattr("mars_runtime.lab.benchmark.forward.PROBE_SECONDS", 0.01)
    out = tmp_path / "b.json"
    given = ["--checkpoint", str(random_folder), "--families", "chat", "maths", "code"]
    given += ["--prompts", "3", "--max-new-tokens", "6", "--threads", "1", "--out", str(out)]
    assert cli.run(arguments(*given)) == 0
    document = json.loads(out.read_text(encoding="utf-8"))
    (series,) = document["series"]
    counts = {
        name: len([sample for sample in series["samples"] if sample["peer"] == name])
        for name in ("AR", "transformers generate", "transformers prompt lookup")
    }
    assert counts == {
        "AR": 3 * 3 * 2,
        "transformers generate": 3 * 2,
        "transformers prompt lookup": 3 * 2,
    }
    against = next(item for item in document["comparisons"] if item["baseline"] != "AR")
    assert set(against["by_family"]) == {"chat", "maths", "code"}
    assert None not in against["by_family"].values()
    markdown = out.with_suffix(".md").read_text(encoding="utf-8")
    assert "| peer | chat | maths | code |" in markdown


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.key)
def test_an_engine_needs_weights_that_it_reads(
    engine: OtherEngine, random_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    given = ["--checkpoint", str(random_folder), "--families", "chat", engine.option, "python3"]
    assert cli.run(arguments(*given, "--out", str(tmp_path / "b.json"))) == 2
    sentence = capsys.readouterr().err
    readable = READS[engine.reads]
    assert sentence == f"{engine.name} can only read {readable}. Remove {engine.option}.\n"


def test_busy_processes_end_with_the_measurement(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run, "BUSY_SETTLING_SECONDS", 0.0)
    with run.busy_processes(2) as started:
        assert [item.poll() for item in started] == [None, None]
    assert all(item.poll() is not None for item in started)


def test_acceptance_is_given_or_recorded(tmp_path: Path):
    given = read_acceptance("0.5,0, 0.5")
    assert given.forced.shares == (0.5, 0.0, 0.5)
    assert given.source == "given shares 0.5, 0, 0.5"
    file = tmp_path / "benchmark.json"
    peers = [{"peer": "AR"}, {"peer": "MARS x", "tokens_per_forward_counts": {"1": 3, "3": 1}}]
    actual = {"date": "2026-11-21T10:00:00", "subject": {"name": "tiny"}}
    file.write_text(json.dumps(actual | {"series": [{"peers": peers}]}))
    recorded = read_acceptance(str(file))
    assert recorded.forced.shares == (0.75, 0.0, 0.25)
    assert recorded.source == "a recorded histogram (MARS x of tiny, 2026-11-21)"


@pytest.mark.parametrize("text", ["{}", "[]", '{"series": []}', "no json"])
def test_what_holds_no_acceptance_is_refused(text: str, tmp_path: Path):
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(DecodeError, match="is not the result of a benchmark"):
        read_acceptance(str(file))
    with pytest.raises(DecodeError, match="add up to 1"):
        read_acceptance("0.5,0.4")


def test_every_table_and_file_says_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(shapes.SHAPES, "qwen2.5-0.5b", TINY)  # type: ignore[arg-type]
    monkeypatch.setattr(run, "NUM_CURVE_ROUNDS", 2)
    monkeypatch.setattr(run, "WIDTHS", (1, 3))
    monkeypatch.setattr("mars_runtime.lab.benchmark.forward.PROBE_SECONDS", 0.01)
    out = tmp_path / "b.json"
    given = [
        *("--shape", "qwen2.5-0.5b", "--acceptance", "0.5,0,0.5", "--device", "cpu"),
        *("--dtype", "fp32", "--prompts", "2", "--rounds", "1", "--max-new-tokens", "6"),
        *("--threads", "1"),
        *("--batch", "1", "--out", str(out)),
    ]
    assert cli.run(arguments(*given)) == 0
    markdown = out.with_suffix(".md").read_text(encoding="utf-8")
    titles = [line for line in markdown.splitlines() if line.startswith("**")]
    assert len(titles) == 5
    assert all(SAYS in title for title in titles)
    document = json.loads(out.read_text())
    assert document["note"] == SAYS
    values = {peer["peer"]: peer for peer in document["series"][0]["peers"]}
    assert not any("auto" in name or "lookup" in name for name in values)
    tokens = {value["families"]["num_tokens"] for value in values.values()}
    assert tokens == {2 * 6}
    assert values["MARS τ=0.95 B=4, acceptance imposed"]["families"]["tpf"] > 1
    assert all(name.endswith("imposed") for name in values if name.startswith(("MARS", "lossless")))


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_a_quantised_shape_is_timed_against_llama_cpp(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A stand-in for llama.cpp reads the file that is written: its weights are equal."""
    wide = {**TINY, "num_attention_heads": 2}
    monkeypatch.setitem(shapes.SHAPES, "qwen2.5-0.5b", wide)  # type: ignore[arg-type]
    monkeypatch.setattr(run, "NUM_CURVE_ROUNDS", 2)
    monkeypatch.setattr(run, "WIDTHS", (1, 3))
    monkeypatch.setattr("mars_runtime.lab.benchmark.forward.PROBE_SECONDS", 0.01)
    given: list[GgufWeights] = []

    def start(engine: OtherEngine, interpreter: str, path: Path, num_tokens: int) -> StandIn:
        assert (engine, interpreter, num_tokens) == (LLAMA_CPP, "PYTHON", 128 + 6)
        given.append(read_gguf_weights(path))
        return StandIn()

    monkeypatch.setattr(peers, "ChildEngine", start)
    out = tmp_path / "b.json"
    requests = [
        *("--shape", "qwen2.5-0.5b", "--acceptance", "0.5,0,0.5", "--device", "cpu"),
        *("--dtype", dtype, "--prompts", "2", "--rounds", "2", "--max-new-tokens", "6"),
        *("--threads", "1", "--batch", "1", "--llama-cpp", "PYTHON", "--out", str(out)),
    ]
    assert cli.run(arguments(*requests)) == 0
    document = json.loads(out.read_text())
    names = [peer["peer"] for peer in document["series"][0]["peers"]]
    assert {"AR", "llama.cpp", "lossless τ=0 B=8, acceptance imposed"} <= set(names)
    assert document["subject"]["dtype"] == f"{dtype} weights, int8 products"
    asked_of = [sample["peer"] for sample in document["series"][0]["samples"]]
    assert (asked_of.count("AR"), asked_of.count("transformers generate")) == (4, 1)
    (weights,) = given
    config = shapes.shape_config("qwen2.5-0.5b")
    drawn = shapes.random_weights(config, torch.device("cpu"), torch.bfloat16)
    assert weights.dense.keys() == drawn.keys()
    for name, (kind, values) in weights.dense.items():
        exact = drawn[name].float()
        bits = 4 if dtype == "int4" and "layers" in name else 8
        assert kind == ("F32" if exact.dim() == 1 else {4: "Q4_1", 8: "Q8_0"}[bits])
        assert (values - exact).abs().max() <= exact.abs().max() * (0.07 if bits == 4 else 0.005)


class StandIn:
    """Answers as llama.cpp would, at once."""

    versions: ClassVar[dict[str, str]] = {"llama.cpp": "a stand-in"}

    def ask(self, question: PromptGroup, decoding: AnswerEnd) -> TimedAnswer:
        count = decoding.max_new_tokens
        moments = [0.001 * (at + 1) for at in range(count)]
        return TimedAnswer((one_row([5] * count, moments),), moments[-1], count)

    def close(self) -> None:
        """Nothing is running."""


@dataclass(frozen=True)
class GgufWeights:
    """The kind and the values of each weight of a file, named as in transformers."""

    dense: dict[str, tuple[str, torch.Tensor]]


def read_gguf_weights(path: Path) -> GgufWeights:
    reader = gguf.GGUFReader(path)
    assert str(reader.fields["tokenizer.ggml.model"].contents()) == "none"
    return GgufWeights(
        {
            transformers_name(tensor.name): (
                tensor.tensor_type.name,
                torch.tensor(dequantize(tensor.data, tensor.tensor_type)).reshape(
                    [int(size) for size in tensor.shape][::-1]
                ),
            )
            for tensor in reader.tensors
        }
    )


def test_an_unknown_shape_gets_one_sentence(capsys: pytest.CaptureFixture[str]):
    assert cli.run(arguments("--shape", "gpt-9", "--acceptance", "1")) == 2
    assert "There is no shape 'gpt-9'" in capsys.readouterr().err
