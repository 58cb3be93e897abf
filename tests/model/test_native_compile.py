"""Compiling the native forward: once, whole or not at all, and what happens where it can't be."""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from native_models import LLAMA, random_weights

from mars_runtime.model import build
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.native import library as compiling
from mars_runtime.model.native.library import (
    NO_COMPILER,
    CompileError,
    compile_library,
    open_library,
)
from mars_runtime.model.native.model import NativeModel
from mars_runtime.model.transformer import Transformer

CPU = torch.device("cpu")


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that writes a word into its target, and counts how often."""
    script = tmp_path / "quick-c++"
    script.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo quick 1; exit; fi\n'
        f"echo run >> {tmp_path}/runs\n"
        'for last; do true; done; printf whole > "$last"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    return script


def runs(compiler: Path) -> int:
    return len((compiler.parent / "runs").read_text().splitlines())


def test_it_is_compiled_once_and_kept_under_a_name_of_all_it_depends_on(
    compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    first = compile_library(folder)
    assert (first.read_text(), compile_library(folder), runs(compiler)) == ("whole", first, 1)
    assert compile_library(folder, [("-march=other",)]) != first
    monkeypatch.setattr(compiling, "_processor", lambda: "another")
    assert compile_library(folder) != first
    monkeypatch.undo()
    other = compiler.with_name("other-c++")
    other.write_text(compiler.read_text())
    other.chmod(0o755)
    monkeypatch.setenv("CXX", str(other))
    assert compile_library(folder) != first
    assert runs(compiler) == 4


def test_many_at_once_all_find_a_whole_library_and_leave_nothing_else(compiler, tmp_path) -> None:
    folder = tmp_path / "kept"
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(lambda _: compile_library(folder), range(8)))
    (path,) = paths
    assert path.read_text() == "whole"
    assert {file.suffix for file in folder.iterdir()} == {".lock", ".sha256", path.suffix}


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "no checksum"])
def test_a_damaged_library_is_compiled_again(compiler: Path, tmp_path: Path, damage: str) -> None:
    """Opening one may end the process with SIGBUS or SIGSEGV, at every start."""
    path = compile_library(tmp_path / "kept")
    if damage == "no checksum":
        path.with_suffix(".sha256").unlink()
    else:
        path.write_text({"cut": "who", "changed": "whale", "empty": ""}[damage])
    assert compile_library(tmp_path / "kept") == path
    assert (path.read_text(), runs(compiler)) == ("whole", 2)


def test_a_folder_that_cannot_be_written_is_one_sentence(compiler: Path, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    with pytest.raises(CompileError, match=r"can't be stored in .* set MARS_CACHE"):
        compile_library(tmp_path / "a file" / "below")


def test_a_library_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    """As on a volume that is mounted noexec."""
    path = tmp_path / "broken.so"
    path.write_text("no library")
    with pytest.raises(CompileError, match=r"can't be opened .* set MARS_CACHE"):
        open_library(path)


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(compiler: Path, tmp_path: Path) -> None:
    text = compiler.read_text().replace('printf whole > "$last"', "echo error: no >&2; exit 1")
    compiler.write_text(text)
    with pytest.raises(CompileError, match="error: no"):
        compile_library(tmp_path / "kept")
    assert {file.suffix for file in (tmp_path / "kept").iterdir()} == {".lock"}


def test_without_a_compiler_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(compiling, "PACKAGE", "not_installed")
    with pytest.raises(CompileError) as raised:
        compile_library(Path("unused"))
    assert str(raised.value) == NO_COMPILER
    assert (Path(__file__).parents[2] / "requirements-compiler.txt").is_file()


def test_where_it_can_not_be_compiled_pytorch_computes_and_the_log_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise CompileError(NO_COMPILER)

    monkeypatch.setattr(build, "native_library", refuse)
    weights = random_weights(LLAMA, 4)
    with caplog.at_level(logging.WARNING):
        model = build.build_model(LLAMA, weights, device=CPU)
    assert isinstance(model, Transformer)
    assert model.arithmetic == "float32"
    assert [record.getMessage().startswith(NO_COMPILER) for record in caplog.records] == [True]
    with pytest.raises(CheckpointError, match="no C\\+\\+ compiler"):
        build.build_model(LLAMA, weights, device=CPU, dtype="int8")


@pytest.fixture
def zig() -> tuple[str, ...]:
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed: pip install -r requirements-compiler.txt")
    return sys.executable, "-m", "ziglang", "c++"


@pytest.mark.slow
def test_the_library_of_the_wheels_compiler_computes_the_same(
    zig: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its folder has a space and letters outside ASCII."""
    own_values = build.native_library()
    monkeypatch.setattr(compiling, "find_compiler", lambda: zig)
    other = open_library(compile_library(tmp_path / "Büro 1"))
    build.check_library(other)
    for bits in (4, 8):
        weights = random_weights(LLAMA, bits)
        ids = torch.randint(5, 140, (1, 30), generator=torch.Generator().manual_seed(1))
        first, second = (NativeModel(LLAMA, weights, library) for library in (own_values, other))
        actual, wanted = (item.hidden(ids, item.new_cache(1, 32)) for item in (first, second))
        assert torch.equal(actual, wanted)


@pytest.mark.slow
@pytest.mark.parametrize(
    "target",
    ["aarch64-macos", "x86_64-macos", "x86_64-windows-gnu", "aarch64-windows-gnu"],
)
def test_it_links_for_other_systems(zig: tuple[str, ...], target: str, tmp_path: Path) -> None:
    flags = ["-static"] if "windows" in target else ["-fPIC"]
    if target == "x86_64-macos":
        flags.append("-mcpu=haswell")
    made = tmp_path / "native.library"
    command = [*zig, *compiling.FLAGS, *flags, "-target", target]
    command += [str(compiling.SOURCES / "native.cpp"), "-o", str(made)]
    subprocess.run(command, check=True)
    data = made.read_bytes()
    assert all(name.encode() in data for name in compiling._FUNCTIONS)


@pytest.mark.parametrize("dtype", ["int4", "int8"])
def test_whole_numbers_are_made_for_a_cpu(dtype: str) -> None:
    with pytest.raises(CheckpointError, match="needs a CPU"):
        build.build_model(LLAMA, random_weights(LLAMA, 4), device=torch.device("cuda"), dtype=dtype)
