"""Draft models behind the engine: refusals, company, and what a draft has to share with its target.

On the bundled pair, which shares a tokenizer.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mars_runtime import folds
from mars_runtime.engine import Engine, Request, RequestError
from mars_runtime.engine.backend import CheckpointBackend
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.drafts import Drafts, share_vocabulary
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.model.registry import REGISTRY
from mars_runtime.settings import DecodeSettings
from tests.tiny_checkpoint import write_checkpoint

AR = DecodeSettings("ar", max_new_tokens=24)
SPECULATIVE = DecodeSettings("speculative", draft="ar-tiny", max_new_tokens=24)


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return load_checkpoint("mars-tiny", device="cpu", dtype="fp32")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = write_checkpoint(tmp_path_factory.mktemp("random"))
    return load_checkpoint(str(folder), device="cpu")


def test_runs_share_forwards_and_each_writes_ar(checkpoint: Checkpoint) -> None:
    asks = ["Tom has 5 apples and eats 2.", "Write a function that adds two numbers."]
    kinds = [AR, SPECULATIVE, replace(SPECULATIVE, draft="mars-tiny", masked="draft", block_size=8)]
    prompts = [checkpoint.tokenizer.encode_prompt(ask) for ask in asks]
    with Engine(checkpoint, max_runs=6) as engine:
        runs = [engine.submit(Request(ids, kind)) for ids in prompts for kind in kinds]
        assert all(run.wait(120) for run in runs)
        race = engine.race([Request(prompts[0], kind) for kind in kinds])
        assert all(run.wait(120) for run in race)
    found = [folds.accepted_tokens(run.events_since(0)) for run in [*runs, *race]]
    assert found[0] == found[1] == found[2]
    assert found[3] == found[4] == found[5]
    assert found[6] == found[7] == found[8] == found[0]
    steps = race[1].events_since(0)
    assert folds.num_draft_forwards(steps) > folds.num_forwards(steps) > 1


def test_refusals_are_one_sentence(checkpoint: Checkpoint, stranger: Checkpoint) -> None:
    known, unknown = CheckpointBackend(checkpoint), CheckpointBackend(stranger)
    ids = [5, 6]
    for backend, draft, said in (
        (unknown, "", "No smaller checkpoint here shares the vocabulary"),
        (unknown, "ar-tiny", "do not share a vocabulary"),
        (known, "/etc", "is no checkpoint of the registry"),
        (known, "mars-7b-blk4", "on this machine"),
    ):
        with pytest.raises(RequestError, match=said) as caught:
            backend.check(Request(ids, replace(SPECULATIVE, draft=draft)))
        assert str(caught.value).endswith(".")
        assert "\n" not in str(caught.value)


def test_a_draft_with_less_room_than_its_target_is_asked_for_no_more(tmp_path: Path) -> None:
    """The target of a registry of its own, whose usual draft holds 64 tokens."""
    for name, room in (("target", 512), ("draft", 64)):
        write_checkpoint(tmp_path / name, max_positions=room)
    lines = [
        {"name": "target", "path": "target", "block_size": 4, "draft": "draft"},
        {"name": "draft", "path": "draft", "block_size": 1},
    ]
    path = tmp_path / "registry.json"
    path.write_text(json.dumps(lines))
    target = load_checkpoint("target", device="cpu", registry_path=path)
    assert Drafts(target, path).load().name == "draft"
    backend = CheckpointBackend(target, registry_path=path)
    ids = target.tokenizer.encode_prompt("Hello")
    backend.check(Request(ids, DecodeSettings("speculative", max_new_tokens=20)))
    with pytest.raises(RequestError, match="The draft model holds 64 tokens"):
        backend.check(Request(ids, DecodeSettings("speculative", max_new_tokens=200)))


def test_a_draft_is_loaded_once_and_a_model_drafts_for_itself(checkpoint: Checkpoint) -> None:
    drafts = Drafts(checkpoint)
    assert drafts.load("ar-tiny") is drafts.load("ar-tiny")
    assert drafts.load("mars-tiny") is checkpoint
    with pytest.raises(CheckpointError):
        drafts.load("nobody")


def test_vocabularies_are_compared_by_what_ids_mean(
    checkpoint: Checkpoint, stranger: Checkpoint
) -> None:
    again = load_checkpoint("ar-tiny", device="cpu").tokenizer
    assert share_vocabulary(checkpoint.tokenizer, again)
    assert not share_vocabulary(checkpoint.tokenizer, stranger.tokenizer)


def test_every_usual_draft_is_in_the_registry() -> None:
    lines = json.loads(REGISTRY.read_text())
    names = {line["name"] for line in lines}
    assert {line["draft"] for line in lines if "draft" in line} <= names
