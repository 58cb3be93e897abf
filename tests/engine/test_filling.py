"""Block diffusion behind the engine: offered only to a checkpoint that says it was trained so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mars_runtime import folds
from mars_runtime.decoders import diffusion
from mars_runtime.engine import Engine, Request, RequestError
from mars_runtime.engine.backend import CheckpointBackend
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.settings import DecodeSettings
from tests.tiny_checkpoint import write_checkpoint

FILL = DecodeSettings("block_diffusion", tau=0.01, max_new_tokens=24)
AR = DecodeSettings("ar", max_new_tokens=24)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder: Path = write_checkpoint(tmp_path_factory.mktemp("twin"))
    config = json.loads((folder / "config.json").read_text())
    del config["mars_block_size"]
    (folder / "config.json").write_text(json.dumps(config | {"block_diffusion_size": 8}))
    return load_checkpoint(str(folder), device="cpu")


def test_a_twin_says_so_and_is_fed_no_masks_as_mars(twin: Checkpoint) -> None:
    assert (twin.diffusion_size, twin.block_size) == (8, 1)


def test_a_run_by_itself_and_in_company_is_the_decoder(twin: Checkpoint) -> None:
    ids = twin.tokenizer.encode_prompt("Count 12 foxes")
    wanted = folds.accepted_tokens(
        list(diffusion.decode(twin.model, twin.tokenizer, ids, lambda: FILL, 8))
    )
    with Engine(twin, max_runs=4) as engine:
        runs = [engine.submit(Request(ids, now)) for now in (AR, FILL, AR, FILL)]
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
    with pytest.raises(RequestError, match="plain was not trained to fill blocks"):
        backend.check(Request([5, 6], FILL))
