"""Weights that are stored compressed: decompressed once, whole, and read like any others."""

from __future__ import annotations

import lzma
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.engines.engines import num_weights
from mars_runtime.model import files
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.files import fingerprint, weight_files
from mars_runtime.model.load import load_checkpoint
from tests.tiny_checkpoint import write_checkpoint

NAME = "model.safetensors"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A checkpoint as it was saved."""
    folder = tmp_path / "plain"
    folder.mkdir()
    return write_checkpoint(folder)


@pytest.fixture
def packed(plain: Path, tmp_path: Path) -> Path:
    """The same with its weights as an archive only."""
    folder = Path(shutil.copytree(plain, tmp_path / "packed"))
    content = (folder / NAME).read_bytes()
    (folder / f"{NAME}.xz").write_bytes(lzma.compress(content, preset=0))
    (folder / NAME).unlink()
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_compressed_checkpoint_loads_as_the_plain_one_does(plain: Path, packed: Path) -> None:
    ours, theirs = (load_checkpoint(str(path), device="cpu") for path in (packed, plain))
    assert fingerprint(ours.weight_files) == fingerprint(theirs.weight_files)
    assert (packed / NAME).read_bytes() == (plain / NAME).read_bytes()
    assert names(packed) == {*names(plain), f"{NAME}.xz"}
    assert num_weights(packed) == num_weights(plain) > 0  # from which the need for memory follows


def test_weights_are_decompressed_once_and_again_when_the_archive_is_newer(packed: Path) -> None:
    (file,) = weight_files(packed)
    content = file.read_bytes()
    file.write_bytes(b"written later")
    assert weight_files(packed) == [file]
    assert file.read_bytes() == b"written later"
    os.utime(file, ns=(0, 0))
    assert weight_files(packed) == [file]
    assert file.read_bytes() == content


def test_threads_that_decompress_at_once_all_find_whole_weights(plain: Path, packed: Path) -> None:
    with ThreadPoolExecutor(6) as pool:
        actual = list(pool.map(lambda _: weight_files(packed)[0].read_bytes(), range(6)))
    assert set(actual) == {(plain / NAME).read_bytes()}
    assert names(packed) == {*names(plain), f"{NAME}.xz"}


@pytest.mark.parametrize("kept", [0.5, 0.99, 0, None])
def test_a_damaged_archive_is_one_sentence_and_leaves_nothing(packed, kept) -> None:
    archive = packed / f"{NAME}.xz"
    content = archive.read_bytes()
    too_long = lzma.compress(bytes(50_000_000), preset=0)  # would fill the disk
    damaged = content[: int(kept * len(content))] if kept else b"no archive"
    archive.write_bytes(too_long if kept is None else damaged)
    before = names(packed)
    with pytest.raises(CheckpointError, match=r"model\.safetensors\.xz is damaged") as caught:
        load_checkpoint(str(packed), device="cpu")
    assert "\n" not in str(caught.value)
    assert names(packed) == before


def test_an_archive_that_is_a_pipe_is_not_waited_for(packed: Path) -> None:
    archive = packed / f"{NAME}.xz"
    archive.unlink()
    os.mkfifo(archive)
    with pytest.raises(CheckpointError, match="not a regular file"):
        weight_files(packed)


def test_a_folder_that_cannot_be_written_is_one_sentence(packed, monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files.tempfile, "TemporaryDirectory", refuse)
    with pytest.raises(CheckpointError, match=r"\(Permission denied\): make .* writable"):
        load_checkpoint(str(packed), device="cpu")


@pytest.fixture
def read_only(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The compressed checkpoint in a read-only folder."""
    monkeypatch.setenv("MARS_CACHE", str(tmp_path / "cache"))
    access = os.access
    monkeypatch.setattr(
        files.os, "access", lambda path, mode: path != packed and access(path, mode)
    )
    return packed


def test_weights_in_a_read_only_folder_are_decompressed_into_the_cache(
    plain: Path, read_only: Path, tmp_path: Path
) -> None:
    before = names(read_only)
    ours, theirs = (load_checkpoint(str(path), device="cpu") for path in (read_only, plain))
    assert fingerprint(ours.weight_files) == fingerprint(theirs.weight_files)
    assert names(read_only) == before
    (file,) = weight_files(read_only)
    assert file.is_relative_to(tmp_path / "cache")
    assert num_weights(read_only) == num_weights(plain)
    changed = file.stat().st_mtime_ns
    assert weight_files(read_only) == [file]
    assert file.stat().st_mtime_ns == changed  # once
    (read_only / f"{NAME}.xz").write_bytes(lzma.compress(b"another release", preset=0))
    assert weight_files(read_only) != [file]  # regardless of the files' times
