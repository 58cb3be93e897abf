"""Checkpoint files that would take all memory, block the reader or panic: one sentence each.

Each case is read in a process of its own with little memory and little time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
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
try:
    {{read}}
except {{error}} as error:
    print(error)
"""
TOKENIZER = READ.format(
    read="from mars_runtime.text import Tokenizer; Tokenizer.from_dir(sys.argv[1])",
    error="TextError",
)
CHECKPOINT = READ.format(
    read="import mars_runtime.model.load as load; load.load_checkpoint(sys.argv[1], device='cpu')",
    error="ValueError",
)
LITTLE, ENOUGH_FOR_TORCH = 2**30, 6 * 2**30


def said(program: str, path: Path, memory: int) -> str:
    """The one sentence of a process with so many bytes of memory that reads ``path``."""
    (sentence,) = printed(program, path, memory).splitlines()
    assert sentence.endswith(".")
    return sentence


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tokenizer(tmp_path)
    return tmp_path


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "tokenizer.json"
    spec = json.loads(path.read_text(encoding="utf-8"))
    change(spec)
    path.write_text(json.dumps(spec), encoding="utf-8")


@pytest.mark.parametrize(
    "change",
    [
        *(lambda spec, index=index: spec["added_tokens"].append({"content": "<far>", "id": index})
          for index in (100_000_000, 2**31, -1)),
        lambda spec: spec["model"]["vocab"].update({"zzzz": 100_000_000}),
        None,
    ],
    ids=["added", "added 2^31", "added -1", "word", "configuration"],
)  # fmt: skip
def test_ids_that_no_model_has(
    folder: Path, change: Callable[[dict[str, Any]], object] | None
) -> None:
    decoder = {"added_tokens_decoder": {"100000000": {"content": "<far>"}}}
    if change is None:
        (folder / "tokenizer_config.json").write_text(json.dumps(decoder))
    else:
        edit(folder, change)
    assert "token ids of this tokenizer go from" in said(TOKENIZER, folder, LITTLE)


@pytest.mark.parametrize("name", ["continuing_subword_prefix", "end_of_word_suffix"])
def test_marks_inside_of_words_panic_nowhere(folder: Path, name: str) -> None:
    edit(folder, lambda spec: spec["model"].update({name: "####"}))
    with pytest.raises(TextError, match="Only byte-level BPE"):
        Tokenizer.from_dir(folder)


def test_a_panic_of_the_library_is_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tokenizers

    broken = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    broken["model"]["continuing_subword_prefix"] = "####"
    with pytest.raises(BaseException, match="range end") as caught:
        tokenizers.Tokenizer.from_str(json.dumps(broken))
    assert not isinstance(caught.value, Exception)

    def panic(*_: object) -> None:
        raise caught.value

    monkeypatch.setattr("mars_runtime.text.plain_encoder", panic)
    with pytest.raises(TextError, match="contains no readable tokenizer"):
        Tokenizer.from_dir(folder)


READ_BY = {
    **dict.fromkeys(("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
                    (TOKENIZER, LITTLE)),
    **dict.fromkeys(("model.safetensors", "z.safetensors", "SHA256SUMS"),
                    (CHECKPOINT, ENOUGH_FOR_TORCH)),
}  # fmt: skip


@pytest.mark.parametrize("name", READ_BY)
def test_a_pipe_or_an_endless_device_in_place_of_a_file(tmp_path: Path, name: str) -> None:
    write_checkpoint(tmp_path)
    program, memory = READ_BY[name]
    path = tmp_path / name
    if name == "z.safetensors":
        index = {"weight_map": {"model.norm.weight": name}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
        (tmp_path / "model.safetensors").unlink()
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")
    assert name in said(program, tmp_path, memory)
    path.unlink()
    os.mkfifo(path)
    assert name in said(program, tmp_path, memory)
    if name == "model.safetensors":
        (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  {name}\n")
        assert f"{name} is listed in SHA256SUMS but cannot be read" in said(
            program, tmp_path, memory
        )


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_configuration_of_gigabytes_is_not_read(tmp_path: Path, name: str) -> None:
    write_checkpoint(tmp_path)
    os.truncate(tmp_path / name, 2**40)  # a hole: it takes no room on the disk
    assert f"{name} is missing or damaged" in said(CHECKPOINT, tmp_path, ENOUGH_FOR_TORCH)


def test_a_file_just_within_its_bound_is_read(tmp_path: Path) -> None:
    path = tmp_path / "whole"
    path.write_bytes(b"")
    os.truncate(path, MAX_BYTES)
    assert len(read_bytes(path)) == MAX_BYTES
    os.truncate(path, MAX_BYTES + 1)
    with pytest.raises(OSError, match="larger than 64 MB"):
        read_bytes(path)
