"""Peers: the same tokens and times that add up, on a checkpoint of toy size; llama.cpp and the
official samplers with stand-ins, and themselves where they can run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mars_runtime import folds, tasks
from mars_runtime.lab.benchmark.elsewhere import (
    Decoding,
    LlamaCpp,
    length_cache,
    load_samplers,
    loader,
    official_ask,
)
from mars_runtime.lab.benchmark.paired import Question, TimedAnswer
from mars_runtime.lab.benchmark.peers import Peers
from mars_runtime.lab.benchmark.plan import BATCHING, GENERATE, LOOKUP, runtime_ways
from mars_runtime.lab.benchmark.run import Series, warmed_up
from mars_runtime.lab.benchmark.targets import Target, checkpoint_target
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.settings import DecodeSettings

LIMIT = 20
TEXTS = ("fox", "A small fox ran over the hills.", "a b c a b c")


@pytest.fixture(scope="module")
def target(foreseeing_folder: Path) -> Target:
    return checkpoint_target(load_checkpoint(str(foreseeing_folder), device="cpu"), {})


@pytest.fixture(scope="module")
def peers(target: Target) -> Iterator[Peers]:
    with Peers(target, runtime_ways([0.9], [4], [0.0], [4], LIMIT)) as found:
        yield found


def ask_all(peers: Peers, target: Target, *texts: str) -> dict[str, TimedAnswer]:
    prompts = tuple(tuple(target.tokenizer.encode_prompt(text)) for text in texts)
    asks = peers.of(len(prompts), max(map(len, prompts)))
    return {name: ask(Question("symbolic", prompts)) for name, ask in asks.items()}


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

    ways = runtime_ways([0.9], [4], [0.0], [4], LIMIT)
    prompt = tuple(target.tokenizer.encode_prompt("fox"))
    with Peers(replace(target, load_transformers=load), ways, [GENERATE]) as found:
        asks = found.of(1, len(prompt))
        assert LOOKUP not in asks
        assert GENERATE in asks
        measured, left_out = warmed_up(Series(1, asks, (Question("symbolic", (prompt,)),)), [1])
    assert "AR" in measured
    assert GENERATE not in measured
    assert left_out == [f"{GENERATE} cannot run here (ImportError: no such package)"]


def test_lossless_counts_only_what_could_leave(peers: Peers, target: Target):
    row = ask_all(peers, target, TEXTS[0])["lossless τ=0 B=4"].rows[0]
    assert row.chunks[0].num_offered == 1
    assert all(chunk.num_tokens <= chunk.num_offered <= 4 for chunk in row.chunks)


def test_other_caches_answer_as_the_cursor_does_where_one_token_leaves(
    peers: Peers, target: Target
):
    ways = runtime_ways([1.0], [2], [], [], LIMIT)
    prompts = tuple(tuple(target.tokenizer.encode_prompt(text)) for text in TEXTS)
    asks = peers.other_caches(ways["MARS τ=1 B=2"], [4, 16])
    assert list(asks) == ["block cache 4", "block cache 16", "no cache"]
    answers = {name: ask(Question("mixed", prompts)) for name, ask in asks.items()}
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


# Takes two tokens per forward, always 7, then EOS; feeds what it took and a block of masks.
STAND_IN = """
from dataclasses import dataclass
import torch

@dataclass
class MARSCachedSampler:
    model: object
    tokenizer: object

    def sample(self, inputs, max_new_tokens, block_size, right_shift_logits, **more):
        assert right_shift_logits and more["temperature"] == 0.0
        tokens = torch.tensor([inputs[0] + [self.tokenizer.mask_token_id] * block_size])
        found = list(inputs[0])
        while len(found) < len(inputs[0]) + 6:
            self.model(tokens)
            found += [7, 7]
            masks = [self.tokenizer.mask_token_id] * block_size
            tokens = torch.tensor([found[-2:] + masks])
        found[-1] = self.tokenizer.eos_token_id
        return torch.tensor([found + [self.tokenizer.pad_token_id] * 3])

@dataclass
class MARSBlockCachedSampler:
    model: object
    tokenizer: object

    def sample(self, inputs, **more):
        longest = max(map(len, inputs))
        for _ in range(4):
            self.model(torch.tensor([[7] * more["block_size"]] * len(inputs)))
        rows = [[self.tokenizer.pad_token_id] * (longest - len(row)) + row + [7, 7, 7]
                for row in inputs]
        return torch.tensor(rows)
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("official")
    (folder / "mars" / "samplers").mkdir(parents=True)
    (folder / "mars" / "__init__.py").write_text("raise ImportError('never imported')")
    (folder / "mars" / "samplers" / "__init__.py").write_text(STAND_IN)
    return folder


@pytest.fixture(scope="module")
def checkpoint(random_folder: Path) -> Checkpoint:
    return load_checkpoint(str(random_folder), device="cpu")


def test_one_prompt_shows_what_each_forward_took(repository: Path, checkpoint: Checkpoint):
    settings = DecodeSettings(block_size=3, max_new_tokens=20)
    ask = official_ask(
        load_samplers(repository), loader(checkpoint)(), checkpoint.tokenizer, settings, 8
    )
    found = ask(Question("symbolic", ((5, 6, 9),)))
    assert found.rows[0].tokens == (7, 7, 7, 7, 7, checkpoint.tokenizer.im_end_id)
    assert [chunk.num_tokens for chunk in found.rows[0].chunks] == [2, 2, 2]
    assert found.num_forwards == 3


def test_a_batch_is_counted_at_its_end(repository: Path, checkpoint: Checkpoint):
    settings = DecodeSettings(block_size=3, max_new_tokens=20)
    ask = official_ask(
        load_samplers(repository), loader(checkpoint)(), checkpoint.tokenizer, settings, 8
    )
    found = ask(Question("mixed", ((5, 6, 9), (5,))))
    assert [row.tokens for row in found.rows] == [(7, 7, 7)] * 2
    assert found.rate("decode") is None
    assert found.num_forwards == 4


def test_what_is_missing_is_said(tmp_path: Path, repository: Path, checkpoint: Checkpoint):
    with pytest.raises(CheckpointError, match="give --official a copy"):
        load_samplers(tmp_path)
    package = tmp_path / "mars" / "samplers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import a_package_that_is_not_there")
    with pytest.raises(CheckpointError, match="cannot be imported"):
        load_samplers(tmp_path)
    (package / "__init__.py").write_text("MARSCachedSampler = None")
    with pytest.raises(CheckpointError, match="have no MARSBlockCachedSampler"):
        load_samplers(tmp_path)
    (package / "__init__.py").write_text("MARSCachedSampler = MARSBlockCachedSampler = int")
    broken = official_ask(
        load_samplers(tmp_path), loader(checkpoint)(), checkpoint.tokenizer, DecodeSettings(), 8
    )
    with pytest.raises(CheckpointError, match="sampler failed"):
        broken(Question("symbolic", ((5, 6),)))


def test_their_cache_is_cropped_to_a_length_and_goes_on_from_there(checkpoint: Checkpoint) -> None:
    model = loader(checkpoint)()
    tokens = torch.tensor([[5, 6, 9, 7, 8]])
    with torch.inference_mode():
        whole = model(tokens).logits
        cache = model(tokens, past_key_values=length_cache(), use_cache=True).past_key_values
        cache.crop(9)
        assert cache.get_seq_length() == 5
        cache.crop(3)
        assert cache.get_seq_length() == 3
        again = model(tokens[:, 3:], past_key_values=cache, use_cache=True).logits
    assert torch.allclose(again, whole[:, 3:], atol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif("MARS_OFFICIAL" not in os.environ, reason="MARS_OFFICIAL names no copy of it")
def test_the_official_sampler_writes_what_we_write() -> None:
    """At τ 0.95 and B 4, on held-out prompts of every family that has an end."""
    from mars_runtime.lab.evaluation.run import eval_model_of

    checkpoint = load_checkpoint("mars-tiny", device="cpu")
    settings = DecodeSettings(tau=0.95, block_size=4, max_new_tokens=64)
    samplers = load_samplers(Path(os.environ["MARS_OFFICIAL"]))
    ask = official_ask(samplers, loader(checkpoint)(), checkpoint.tokenizer, settings, 8)
    decode = eval_model_of(checkpoint).decode
    for family in ("symbolic", "word_problems", "python_functions"):
        for task in tasks.generate(family, "eval", 7, 4):
            prompt = tuple(checkpoint.tokenizer.encode_prompt(task.prompt))
            theirs = ask(Question(family, (prompt,))).rows[0].tokens
            assert list(theirs) == folds.accepted_tokens(decode([prompt], settings))
