"""Checkpoints carry the sums of their files, so that one flipped bit is refused."""

from __future__ import annotations

import hashlib
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from mars_runtime.model.checksums import SUMS, check_sums
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.registry import REGISTRY, registry

BUNDLED = sorted({name for entry in registry().values() for name in (entry.path, entry.adapter)
                  if name})  # fmt: skip
READ = {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
        "adapter.json"}  # fmt: skip


def copy_of(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(REGISTRY.parent / name, folder / name))


def flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


@pytest.mark.parametrize("name", BUNDLED)
def test_what_is_bundled_agrees_with_its_sums_and_all_that_is_read_has_one(name: str) -> None:
    folder = REGISTRY.parent / name
    check_sums(folder)
    listed = {line.split()[1] for line in (folder / SUMS).read_text().splitlines()}
    names = {path.name for path in folder.iterdir()}
    assert listed >= {each for each in names if each in READ or each.endswith(".safetensors")}


@pytest.mark.parametrize("name", BUNDLED)
def test_a_flipped_bit_is_refused_in_any_file(name: str, tmp_path: Path) -> None:
    folder, rng = copy_of(name, tmp_path), random.Random(name)
    for line in (folder / SUMS).read_text().splitlines():
        path = folder / line.split()[1]
        whole = path.read_bytes()
        for _ in range(2 if path.suffix == ".safetensors" else 5):
            flip(path, rng)
            with pytest.raises(CheckpointError, match=f"{path.name} is damaged"):
                check_sums(folder)
            path.write_bytes(whole)
    check_sums(folder)


def test_a_flipped_bit_of_weights_is_one_sentence_at_load(tmp_path: Path) -> None:
    folder = copy_of("mars-tiny", tmp_path)
    flip(folder / "model.safetensors", random.Random(1))
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(str(folder), device="cpu")
    assert "\n" not in str(caught.value)
    assert "restore the checkpoint" in str(caught.value)


def test_a_flipped_bit_of_the_sums_is_refused(tmp_path: Path) -> None:
    folder, rng = copy_of("mars-tiny", tmp_path), random.Random(2)
    whole = (folder / SUMS).read_bytes()
    for _ in range(20):
        flip(folder / SUMS, rng)
        with pytest.raises(CheckpointError):
            check_sums(folder)
        (folder / SUMS).write_bytes(whole)


def test_a_damaged_adapter_is_refused_before_it_is_read(tmp_path: Path) -> None:
    from dataclasses import replace

    from mars_runtime.model import load

    folder = copy_of("mars-smollm2", tmp_path)
    flip(folder / "adapter-2-of-3.safetensors", random.Random(3))
    entry = replace(registry()["mars-smollm2"], adapter=folder.name)
    with pytest.raises(CheckpointError, match=r"adapter-2-of-3\.safetensors is damaged"):
        load._adapter(entry, tmp_path, None)  # type: ignore[arg-type]


def test_a_file_that_is_gone_and_weights_that_came_are_refused(tmp_path: Path) -> None:
    folder = copy_of("ar-tiny", tmp_path)
    (folder / "more.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"more\.safetensors is not listed"):
        check_sums(folder)
    (folder / "more.safetensors").unlink()
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json cannot be read"):
        check_sums(folder)


def test_a_folder_without_sums_is_not_checked(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    check_sums(tmp_path)


def test_a_sum_names_nothing_outside_its_folder(tmp_path: Path) -> None:
    digits = hashlib.sha256(b"").hexdigest()
    (tmp_path / SUMS).write_text(f"{digits}  ../secret\n")
    with pytest.raises(CheckpointError, match=f"{SUMS} is damaged"):
        check_sums(tmp_path)


def test_the_command_that_makes_them(tmp_path: Path) -> None:
    folder = copy_of("mars-tiny", tmp_path)
    before = (folder / SUMS).read_text()
    command = "sha256sum *.json *.jinja *.safetensors > SHA256SUMS"
    assert command in (REGISTRY.parent / "README.md").read_text()
    subprocess.run(["sh", "-c", f"LC_ALL=C {command}"], cwd=folder, check=True)
    assert sorted((folder / SUMS).read_text().splitlines()) == sorted(before.splitlines())
