"""Checkpoint files that would take all memory, block the reader or panic: one sentence each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mars_runtime.files.inputs import MAX_BYTES, read_bytes
from mars_runtime.text import TextError, Tokenizer
from tests.attack.attacked import LIMITED, printed
from tests.tiny_checkpoint import write_checkpoint
from tests.tiny_tokenizer import write_tokenizer

READ = f"""{LIMITED}
from mars_runtime.text import TextError
for folder in sys.argv[1:]:
    try:
        {{read}}
    except {{error}} as error:
        print(error, flush=True)
"""
TOKENIZER = READ.format(
    read="from mars_runtime.text import Tokenizer; Tokenizer.from_dir(folder)", error="TextError"
)
CHECKPOINT = READ.format(
    read="import mars_runtime.model.load as load; load.load_checkpoint(folder, device='cpu')",
    error="ValueError",
)
LITTLE, ENOUGH_FOR_TORCH = 2**30, 6 * 2**30


def said(program: str, memory: int, *paths: Path) -> list[str]:
    """A sentence for each path, of one process with so many bytes of memory that reads them."""
    sentences = printed(program, *paths, memory).splitlines()
    assert len(sentences) == len(paths)
    assert all(sentence.endswith(".") for sentence in sentences)
    return sentences


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tokenizer(tmp_path)
    return tmp_path


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "tokenizer.json"
    spec = json.loads(path.read_text(encoding="utf-8"))
    change(spec)
    path.write_text(json.dumps(spec), encoding="utf-8")


def test_ids_that_no_model_has(tmp_path: Path) -> None:
    def added(index: int) -> Callable[[dict[str, Any]], object]:
        return lambda spec: spec["added_tokens"].append({"content": "<far>", "id": index})

    folders = [tmp_path / str(number) for number in range(5)]
    for folder in folders:
        folder.mkdir()
        write_tokenizer(folder)
    for folder, index in zip(folders, (100_000_000, 2**31, -1), strict=False):
        edit(folder, added(index))
    edit(folders[3], lambda spec: spec["model"]["vocab"].update({"zzzz": 100_000_000}))
    decoder = {"added_tokens_decoder": {"100000000": {"content": "<far>"}}}
    (folders[4] / "tokenizer_config.json").write_text(json.dumps(decoder))
    for sentence in said(TOKENIZER, LITTLE, *folders):
        assert "token ids of this tokenizer go from" in sentence


def test_a_panic_of_the_library_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tokenizers

    edit(folder, lambda spec: spec["model"].update({"continuing_subword_prefix": "####"}))
    with pytest.raises(TextError, match="Only byte-level BPE"):
        Tokenizer.from_dir(folder)
    with pytest.raises(BaseException, match="range end") as caught:
        tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert not isinstance(caught.value, Exception)

    def panic(*_: object) -> None:
        raise caught.value

    write_tokenizer(folder)
    monkeypatch.setattr("mars_runtime.text.plain_encoder", panic)
    with pytest.raises(TextError, match="contains no readable tokenizer"):
        Tokenizer.from_dir(folder)


def in_place_of(name: str, folder: Path, place: Callable[[Path], object]) -> Path:
    write_checkpoint(folder)
    if name == "z.safetensors":
        index = {"weight_map": {"model.norm.weight": name}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        (folder / "model.safetensors").unlink()
    (folder / name).unlink(missing_ok=True)
    place(folder / name)
    return folder


@pytest.mark.parametrize(
    ("program", "memory", "names"),
    [
        (TOKENIZER, LITTLE, ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")),
        (CHECKPOINT, ENOUGH_FOR_TORCH, ("model.safetensors", "z.safetensors")),
    ],
    ids=["tokenizer", "checkpoint"],
)
def test_a_pipe_or_an_endless_device_in_place_of_a_file(
    tmp_path: Path, program: str, memory: int, names: Sequence[str]
) -> None:
    places: list[Callable[[Path], object]] = [lambda path: path.symlink_to("/dev/zero"), os.mkfifo]
    folders = {
        in_place_of(name, tmp_path / f"{name} {number}", place): name
        for name in names
        for number, place in enumerate(places)
    }
    if program is CHECKPOINT:
        for name in ("config.json", "tokenizer.json"):  # a hole: it takes no room on the disk
            large = write_checkpoint(tmp_path / f"large {name}")
            os.truncate(large / name, 2**40)
            folders[large] = f"{name} is missing or damaged"
    for sentence, says in zip(said(program, memory, *folders), folders.values(), strict=True):
        assert says in sentence


def test_a_file_just_within_its_bound_is_read(tmp_path: Path) -> None:
    path = tmp_path / "whole"
    path.write_bytes(b"")
    os.truncate(path, MAX_BYTES)
    assert len(read_bytes(path)) == MAX_BYTES
    os.truncate(path, MAX_BYTES + 1)
    with pytest.raises(OSError, match="larger than 64 MB"):
        read_bytes(path)


def test_only_files_inside_a_folder_are_read_from_it(tmp_path: Path) -> None:
    folder, secret = tmp_path / "folder", tmp_path / "secret"
    folder.mkdir()
    for path in (folder / "own", secret):
        path.write_bytes(b"a")
    (folder / "link").symlink_to(secret)
    os.link(secret, folder / "second name")
    assert read_bytes(folder / "own", folder=folder) == b"a"
    for name in ("link", "second name", "../secret"):
        with pytest.raises(FileNotFoundError):
            read_bytes(folder / name, folder=folder)
