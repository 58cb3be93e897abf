"""Checkpoint files that would take all memory, block the reader or panic: one sentence each.

Each case is read in a process of its own with little memory and little time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mars_runtime.inputs import MAX_BYTES, read_bytes
from mars_runtime.text import TextError, Tokenizer
from tests.tiny_checkpoint import write_checkpoint
from tests.tiny_tokenizer import write_tokenizer

ROOT = Path(__file__).parents[2]
SECONDS = 120
READ = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
from mars_runtime.text import TextError
try:
    {read}
except {error} as error:
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
    """What a process prints that reads ``path`` with so many bytes of memory: one sentence."""
    words = [sys.executable, "-c", program, str(path), str(memory)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-2000:]
    (sentence,) = done.stdout.splitlines()
    assert sentence.endswith(".")
    assert "Traceback" not in done.stderr
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


@pytest.mark.parametrize("index", [100_000_000, 2**31, -1])
def test_an_added_token_with_an_id_that_no_model_has(folder: Path, index: int) -> None:
    edit(folder, lambda spec: spec["added_tokens"].append({"content": "<far>", "id": index}))
    assert "token ids of this tokenizer go from" in said(TOKENIZER, folder, LITTLE)


def test_a_word_with_an_id_that_no_model_has(folder: Path) -> None:
    edit(folder, lambda spec: spec["model"]["vocab"].update({"zzzz": 100_000_000}))
    assert "token ids of this tokenizer go from" in said(TOKENIZER, folder, LITTLE)


def test_ids_of_the_configuration_are_bounded_too(folder: Path) -> None:
    decoder = {"added_tokens_decoder": {"100000000": {"content": "<far>"}}}
    (folder / "tokenizer_config.json").write_text(json.dumps(decoder))
    assert "token ids of this tokenizer go from" in said(TOKENIZER, folder, LITTLE)


@pytest.mark.parametrize("name", ["continuing_subword_prefix", "end_of_word_suffix"])
def test_marks_inside_of_words_panic_nowhere(folder: Path, name: str) -> None:
    edit(folder, lambda spec: spec["model"].update({name: "####"}))
    with pytest.raises(TextError, match="without marks inside of words"):
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
    with pytest.raises(TextError, match="holds no tokenizer that can be read"):
        Tokenizer.from_dir(folder)


FILES = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_or_an_endless_device_as_a_tokenizer(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("/dev/zero")
    assert name in said(TOKENIZER, folder, LITTLE)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert name in said(TOKENIZER, folder, LITTLE)


@pytest.mark.parametrize("name", ["model.safetensors", "z.safetensors", "SHA256SUMS"])
def test_a_pipe_or_an_endless_device_among_the_files_of_a_checkpoint(
    tmp_path: Path, name: str
) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    assert name in said(CHECKPOINT, tmp_path, ENOUGH_FOR_TORCH)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    assert name in said(CHECKPOINT, tmp_path, ENOUGH_FOR_TORCH)


def test_sums_of_a_pipe_are_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  model.safetensors\n")
    (tmp_path / "model.safetensors").unlink()
    os.mkfifo(tmp_path / "model.safetensors")
    assert "model.safetensors cannot be read" in said(CHECKPOINT, tmp_path, ENOUGH_FOR_TORCH)


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
