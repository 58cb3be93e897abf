"""Runs with exclusive use of the device, and draft models in the engine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import ScriptedModel, foresight_script
from test_company import IDS, ModelBackend
from torch import Tensor

from mars_runtime.engine import Engine, Request, RequestError, Run, device
from mars_runtime.engine.backend import CheckpointBackend
from mars_runtime.model.load import Checkpoint, Drafts, load_checkpoint
from mars_runtime.runs import folds
from mars_runtime.runs.events import End, Event, Prefill, RowStep, Step, Stop
from mars_runtime.runs.folds import row_steps
from mars_runtime.settings import DecodeSettings
from tests.engine.scripted import Script, Settings, request, scripted_step, steps
from tests.tiny_checkpoint import write_checkpoint


def decoder_steps(settings: Settings, stops: list[list[Stop]]) -> Iterator[Event]:
    yield Prefill(2)
    for start, pair in enumerate(stops):
        alone = [scripted_step(start, 7, settings(), stop).rows[0] for stop in pair]
        yield Step(tuple(replace(step, row=row) for row, step in enumerate(alone)))


@pytest.mark.parametrize(
    ("final", "reason"),
    [(["eos", "eos"], "eos"), (["eos", "limit"], "limit"), (["eos", "block"], "error")],
)
def test_a_solo_run_has_any_rows_and_ends_when_its_decoder_does(final, reason) -> None:
    with Engine(Script()) as engine:
        settings = request().settings
        stops: list[list[Stop]] = [["eos", "block"], ["eos", "block"], final]
        run = engine.run_decoder(lambda *parts: decoder_steps(parts[2], stops), settings)
        events = list(run)
    assert [len(step.rows) for step in steps(run)] == [2, 2, 2]
    assert all(event.seconds > 0 for event in events if not isinstance(event, End))
    end = folds.end(events)
    assert end.reason == reason


SETTINGS = DecodeSettings(tau=0.0, block_size=4, max_new_tokens=16)
SCRIPT = foresight_script(4, eos_share=0.0)


class SlowReading(ScriptedModel):
    """A second passes whenever the head is put on a forward once more."""

    now, num_reads = 0, 0

    def hidden(self, tokens: Tensor, cache: Any, branches: Any = None) -> Any:
        self.num_reads = 0
        return super().hidden(tokens, cache, branches)

    def logits(self, hidden: Any, head: Any) -> Tensor:
        self.num_reads += 1
        self.now += 10**9 * (self.num_reads > 1)
        return super().logits(hidden, head)


def steps_and_seconds(run: Run) -> list[tuple[RowStep, float]]:
    assert run.wait(120)
    return list(row_steps(run.events_since(0)))


def test_checks_stay_out_of_the_time_of_their_step(monkeypatch: pytest.MonkeyPatch) -> None:
    model = SlowReading(SCRIPT)
    clock = SimpleNamespace(monotonic=time.monotonic, perf_counter_ns=lambda: model.now)
    monkeypatch.setattr(device, "time", clock)
    asking = Request([5, 6], SETTINGS, is_checked=True)
    quiet = replace(asking, is_checked=False)
    with Engine(ModelBackend(model, IDS, 60)) as engine:
        alone = engine.race([asking, quiet])
        actual_steps, expected = map(steps_and_seconds, alone)
        shared = [engine.submit(request) for request in (asking, quiet)]
        found_too, expected_too = map(steps_and_seconds, shared)
    assert model.now > 0
    assert all(step.checks == () for step, _ in [*expected, *expected_too])
    for ours, theirs in ((actual_steps, expected), (found_too, expected_too)):
        assert [replace(step, checks=()) for step, _ in ours] == [step for step, _ in theirs]
        assert [len(step.checks) for step, _ in ours] == [0, 3, 3, 3]
        assert not any(seconds for _, seconds in ours)


SPECULATIVE = DecodeSettings("speculative", draft="ar-tiny", max_new_tokens=24)


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return load_checkpoint("mars-tiny", device="cpu", dtype="fp32")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = write_checkpoint(tmp_path_factory.mktemp("random"))
    return load_checkpoint(str(folder), device="cpu")


def test_refusals_are_one_sentence(checkpoint: Checkpoint, stranger: Checkpoint) -> None:
    known, unknown = CheckpointBackend(checkpoint), CheckpointBackend(stranger)
    ids = [5, 6]
    for backend, draft, said in (
        (unknown, "", "The registry names no draft model for"),
        (unknown, "ar-tiny", "do not share a vocabulary"),
        (known, "/etc", "is not in the registry"),
        (known, "mars-7b-blk4", "on this machine"),
    ):
        with pytest.raises(RequestError, match=said) as caught:
            backend.check(Request(ids, replace(SPECULATIVE, draft=draft)))
        assert str(caught.value).endswith(".")
        assert "\n" not in str(caught.value)


def test_a_draft_with_less_room_than_its_target_is_asked_for_no_more(tmp_path: Path) -> None:
    """The target of a separate registry with a default draft of 64 tokens."""
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
    with pytest.raises(RequestError, match="The draft model supports 64 tokens"):
        backend.check(Request(ids, DecodeSettings("speculative", max_new_tokens=200)))
