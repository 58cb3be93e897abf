"""Sentences that visitors read do not name the server's folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.engines.engines import Load, Served, Tell, UnavailableError
from mars_runtime.model.config import CheckpointError


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("{}/model.safetensors is missing.", "model.safetensors is missing."),
        (
            "One could not be written to {} (no room).",
            "One could not be written to mars (no room).",
        ),
        ("{}/a and {}/b: see https://x.org/y/z.", "a and b: see https://x.org/y/z."),
    ],
)
def test_a_checkpoint_that_fails_does_not_name_its_folder(
    tmp_path: Path, said: str, read: str
) -> None:
    folder = tmp_path / "mars"

    def bring(tell: Tell) -> Served:
        raise CheckpointError(said.replace("{}", str(folder)))

    load = Load("a checkpoint", bring)
    with pytest.raises(UnavailableError) as raised:
        load.wait(30)
    assert str(raised.value) == load.failure == load.trouble == read
