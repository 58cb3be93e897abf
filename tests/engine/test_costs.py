"""What forwards cost, measured when the engine warms up, and drafts that fill its batch."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from mars_runtime.decoders import diffusion
from mars_runtime.engine import Engine, Request, RequestError, costs
from mars_runtime.engine.backend import CheckpointBackend
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.runs import folds
from mars_runtime.settings import DecodeSettings
from tests.tiny_checkpoint import write_checkpoint


class Timer:
    """One token takes 2 s, each further one 0.2 s, and masks 0.4 s and 0.1 s each."""

    has_mask = True

    def __init__(self, checkpoint: object, num_rows: int) -> None:
        pass

    def seconds(self, shape: tuple[int, int]) -> float:
        width, num_masks = shape
        assert num_masks < width, "AR's own token is never a mask"
        return 2 + 0.2 * (width - 1) + (0.4 + 0.1 * num_masks if num_masks else 0.0)


class MasklessTimer(Timer):
    has_mask = False


CHECKPOINT = SimpleNamespace(block_size=8, model=SimpleNamespace(threads=None))


def test_tokens_and_masks_are_measured_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "_Timer", Timer)
    monkeypatch.setattr(costs, "MASKED", (1, 3, 7))
    actual = costs.measure_costs(CHECKPOINT, 4)  # type: ignore[arg-type]
    assert (actual.depth, actual.seconds) == (8, 2.0)
    assert actual.rho[1][:4] == pytest.approx((1.0, 1.1, 1.2, 1.3))
    assert actual.masks[1] == pytest.approx((0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55))
    assert actual.masks[4] == actual.masks[1]


class HeatedTimer(Timer):
    """The four steps behind one of 16 tokens take a second longer than others."""

    hot = 0

    def seconds(self, shape: tuple[int, int]) -> float:
        taken = super().seconds(shape) + (1.0 if self.hot else 0.0)
        self.hot = 4 if shape[0] == 16 else max(0, self.hot - 1)
        return taken


def test_one_token_is_not_timed_behind_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "MANY", (*range(1, 10), 12, 16))
    monkeypatch.setattr(costs, "_Timer", HeatedTimer)
    monkeypatch.setattr(costs, "SHORT_STEP_SECONDS", 3.0)  # so that MANY lengths are timed
    actual = costs.measure_costs(CHECKPOINT)  # type: ignore[arg-type]
    assert (actual.seconds, actual.rho[1][:4]) == (2.0, (1.0, 1.1, 1.2, 1.3))


def test_masks_cost_nothing_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "_Timer", MasklessTimer)
    assert costs.measure_costs(CHECKPOINT).masks == {1: ()}  # type: ignore[arg-type]


@pytest.mark.parametrize("damage", [None, "", "[]", '{"rho": {"1": []}, "masks": {}}'])
def test_costs_are_measured_once_per_machine(
    damage: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later engine reads them, and measures again if the file is damaged."""
    checkpoint = load_checkpoint("mars-tiny")
    monkeypatch.setattr(costs, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(costs, "MOST_SPREAD", math.inf)  # The machine of the tests may be busy.
    first = costs.stored_costs(checkpoint, 2)
    (file,) = tmp_path.glob("costs/*.json")
    monkeypatch.setattr(costs, "_Timer", Timer)
    if damage is None:
        assert costs.stored_costs(checkpoint, 2) == first
    else:
        file.write_text(damage)
        assert costs.stored_costs(checkpoint, 2).seconds == 2.0
    assert costs.stored_costs(checkpoint, 4).seconds == 2.0  # other shapes, another file


class BusyTimer(Timer):
    """Three of four steps take twice as long."""

    def __init__(self, checkpoint: object, num_rows: int) -> None:
        self.num_steps = Counter[tuple[int, int]]()

    def seconds(self, shape: tuple[int, int]) -> float:
        self.num_steps[shape] += 1
        return super().seconds(shape) * (2.0 if self.num_steps[shape] % 4 else 1.0)


@pytest.mark.parametrize(("timer", "is_stored"), [(Timer, True), (BusyTimer, False)])
def test_costs_of_a_busy_machine_are_not_stored(
    timer: type[Timer], is_stored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(costs, "_Timer", timer)
    monkeypatch.setattr(costs, "ROUNDS", range(8, 9))
    costs.stored_costs(load_checkpoint("mars-tiny"), 1)
    assert bool(list(tmp_path.glob("costs/*.json"))) == is_stored


FILL = DecodeSettings("block_diffusion", tau=0.01, max_new_tokens=24)
AR = DecodeSettings("ar", max_new_tokens=24)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder: Path = write_checkpoint(tmp_path_factory.mktemp("twin"))
    config = json.loads((folder / "config.json").read_text())
    del config["mars_block_size"]
    (folder / "config.json").write_text(json.dumps(config | {"block_diffusion_size": 8}))
    return load_checkpoint(str(folder), device="cpu")


def test_a_run_by_itself_and_in_company_is_the_decoder(twin: Checkpoint) -> None:
    ids = twin.tokenizer.encode_prompt("Count 12 foxes")
    wanted = folds.accepted_tokens(
        list(diffusion.decode(twin.model, twin.tokenizer, ids, lambda: FILL, 8))
    )
    with Engine(twin, max_runs=4) as engine:
        runs = [engine.submit(Request(ids, settings)) for settings in (AR, FILL, AR, FILL)]
        runs += engine.race([Request(ids, FILL), Request(ids, AR)])
        assert all(run.wait(120) for run in runs)
        runs += engine.race([Request(ids, FILL)])
        assert runs[-1].wait(120)
    texts = [folds.accepted_tokens(run.events_since(0)) for run in runs]
    assert texts[1] == texts[3] == texts[4] == texts[6] == wanted
    assert texts[0] == texts[2] == texts[5]


def test_any_other_checkpoint_refuses_it_in_a_sentence(tmp_path: Path) -> None:
    other = load_checkpoint(str(write_checkpoint(tmp_path / "plain")), device="cpu")
    backend = CheckpointBackend(other)
    with pytest.raises(RequestError, match="plain was not trained for block diffusion"):
        backend.check(Request([5, 6], FILL))
