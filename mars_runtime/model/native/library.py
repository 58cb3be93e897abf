"""Compile the C++ sources in this folder to a library, cache it, and declare its API.

The ctypes structures mirror those in ``model.h`` and ``predict.h``, which document the fields.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock

SOURCES = Path(__file__).parent
COMPILERS = ("c++", "g++", "clang++")
PACKAGE = "ziglang"
NO_COMPILER = (
    "This machine has no C++ compiler: run pip install -r requirements-compiler.txt, which makes "
    "models several times as fast."
)
# -ffp-contract=off: fused operations could make the rounding of a row depend on other rows.
FLAGS = ("-O3", "-std=c++17", "-ffp-contract=off", "-shared", "-pthread", "-w")
Flags = tuple[str, ...]
Compiler = tuple[str, ...]  # the command that starts a compiler, without options
IS_WINDOWS, IS_MAC = sys.platform == "win32", sys.platform == "darwin"
# -static: on Windows, a library does not find other libraries in its own folder.
LINKED: Flags = ("-static",) if IS_WINDOWS else ("-fPIC",)
SUFFIX = ".dll" if IS_WINDOWS else ".so"
COMPILE_SECONDS = 600
CHECKSUM = ".sha256"


class CompileError(RuntimeError):
    """The native forward pass is not available. The message is one sentence."""


def compile_library(folder: Path, targets: Sequence[Flags] | None = None) -> Path:
    """Compile the library into ``folder`` if necessary. Of several processes one compiles, the
    others wait. Raises CompileError.

    targets: alternative flags that select a processor; the first that the compiler accepts are
    used. A library without its checksum is compiled again: a damaged one would crash the process.
    """
    compiler, targets = find_compiler(), own_targets() if targets is None else targets
    path = folder / _name(compiler, targets)
    if is_whole(path):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock"), timeout=COMPILE_SECONDS):
            # A whole library is never replaced: on Windows that fails while a process has it open.
            if not is_whole(path):
                _write(path, compiler, targets)
    except OSError as error:
        raise CompileError(
            f"The compiled library can't be stored in {folder} "
            f"({error.strerror or type(error).__name__}): make the folder writable and free some "
            "space, or set MARS_CACHE to another folder."
        ) from error
    return path


def _write(path: Path, compiler: Compiler, targets: Sequence[Flags]) -> None:
    with tempfile.TemporaryDirectory(prefix="native-", dir=path.parent) as temporary:
        output = Path(temporary) / path.name
        _compile(compiler, targets, str(output))
        output.with_suffix(CHECKSUM).write_text(_checksum(output), encoding="ascii")
        for suffix in (CHECKSUM, output.suffix):
            os.replace(output.with_suffix(suffix), path.with_suffix(suffix))


def is_compiled(folder: Path) -> bool:
    """Raises CompileError without a compiler."""
    return is_whole(folder / _name(find_compiler(), own_targets()))


def _name(compiler: Compiler, targets: Sequence[Flags]) -> str:
    parts = [str(FLAGS), str(targets), str(compiler), _compiler_version(compiler), _processor()]
    sources = sorted((*SOURCES.glob("*.h"), *SOURCES.glob("*.cpp")))
    parts += [source.read_text(encoding="utf-8") for source in sources]
    return f"native-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}{SUFFIX}"


def is_whole(path: Path) -> bool:
    try:
        checksum = path.with_suffix(CHECKSUM).read_text(encoding="ascii")
        return path.is_file() and checksum == _checksum(path)
    except (OSError, ValueError):
        return False


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def find_compiler() -> Compiler:
    """Raises CompileError."""
    for name in (os.environ.get("CXX", ""), *COMPILERS):
        path = shutil.which(name) if name else None
        if path:
            return (path,)
    if importlib.util.find_spec(PACKAGE) is not None:
        return sys.executable, "-m", PACKAGE, "c++"
    raise CompileError(NO_COMPILER)


def own_targets() -> tuple[Flags, ...]:
    """Alternative flags, the best first."""
    if platform.machine() not in ("arm64", "aarch64"):
        return ("-march=native",), ("-mcpu=native",), ()
    if not IS_MAC:
        return ("-mcpu=native",), ("-march=native",), ()
    # Apple's compilers do not support the value "native".
    has_products = "FEAT_I8MM: 1" in _sysctl()
    best = "-march=armv8.6-a" if has_products else "-mcpu=apple-m1"
    return (best,), ("-mcpu=apple-m1",), ()


def _compile(compiler: Compiler, targets: Sequence[Flags], target: str) -> None:
    errors = ""
    for flags in targets:
        command = [*compiler, *FLAGS, *LINKED, *flags, str(SOURCES / "native.cpp"), "-o", target]
        done = _run(command, COMPILE_SECONDS)
        if done.returncode == 0:
            return
        errors = errors or done.stderr
    line = next((line for line in errors.splitlines() if "error" in line), "no message")
    raise CompileError(f"{compiler[0]} can't compile the native library: {line[:200]}")


def _run(command: Sequence[str], seconds: int) -> subprocess.CompletedProcess[str]:
    try:
        text: dict[str, Any] = {"encoding": "utf-8", "errors": "replace"}
        return subprocess.run(command, capture_output=True, timeout=seconds, **text)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(
            f"The compiler {command[0]} did not run to its end ({type(error).__name__})."
        ) from error


@cache
def _compiler_version(compiler: Compiler) -> str:
    return _run([*compiler, "--version"], 60).stdout


def _processor() -> str:
    """Machines may share a cache folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not on Linux
        lines = []
    starts = ("flags", "Features", "model\t", "CPU part")
    words = {line for line in lines if line.startswith(starts)}
    return f"{platform.machine()} {platform.processor()} {sorted(words)} {_sysctl()}"


@cache
def _sysctl() -> str:
    if not IS_MAC:
        return ""
    names = ("machdep.cpu", "hw.optional")
    try:
        return _run(["sysctl", *names], 60).stdout
    except CompileError:
        return ""


def _fields(kind: Any, *names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names]


class MatrixStruct(Structure):
    _fields_ = [("data", c_void_p), *_fields(c_int64, "bits", "outs", "ins")]


class LowRankStruct(Structure):
    _fields_ = _fields(MatrixStruct, "a", "b")


class LayerStruct(Structure):
    _fields_ = [
        ("attention_norm", c_void_p),
        ("qkv", MatrixStruct),
        *_fields(c_void_p, "qkv_bias", "query_norm", "key_norm"),
        ("output", MatrixStruct),
        ("feed_norm", c_void_p),
        *_fields(MatrixStruct, "gate_up", "down"),
        *_fields(LowRankStruct, "qkv_low", "output_low", "gate_up_low", "down_low"),
    ]


class SamplerStruct(Structure):
    _fields_ = [
        ("state", MatrixStruct),
        *_fields(c_void_p, "previous", "candidate", "previous_scales", "candidate_scales"),
    ]


class ModelStruct(Structure):
    _fields_ = [
        *_fields(c_int64, "vocab", "hidden", "num_layers", "num_heads", "num_kv", "dim", "feed"),
        ("norm_floor", c_float),
        ("layers", POINTER(LayerStruct)),
        ("final_norm", c_void_p),
        *_fields(MatrixStruct, "embedding", "head"),
        ("mask_id", c_int64),
        ("mask_embeddings", c_void_p),
        ("num_mask_embeddings", c_int64),
        ("sampler", SamplerStruct),
    ]


class FeedStruct(Structure):
    _fields_ = [
        *_fields(c_int64, "num_rows", "num_tokens"),
        ("ids", c_void_p),
        ("cursors", POINTER(c_int64)),
        *_fields(c_void_p, "positions", "roots", "starts", "rotations", "cache"),
        *_fields(c_int64, "layer_stride", "row_stride", "block_stride", "num_threads"),
    ]


class PenaltyStruct(Structure):
    _fields_ = [
        ("first_at", c_void_p),
        ("known", c_int32),
        ("factor", c_float),
        ("num_added", c_int64),
        ("ids", c_void_p),
        ("amounts", c_void_p),
    ]


_STRUCTS = (MatrixStruct, LayerStruct, ModelStruct, FeedStruct, SamplerStruct, PenaltyStruct)
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "mars_path": (c_char_p, []),
    "mars_sizes": (c_int64, [c_int64]),
    "mars_new": (c_void_p, [POINTER(ModelStruct)]),
    "mars_free": (None, [c_void_p]),
    "mars_hidden": (c_int64, [c_void_p, POINTER(FeedStruct), c_void_p]),
    "mars_predict": (
        None,
        [c_void_p, c_int64, c_void_p, c_int64, c_int64, *[c_void_p] * 2, c_int64, *[c_void_p] * 5],
    ),
    "mars_logits": (None, [c_void_p, c_int64, c_void_p, c_int64, c_void_p]),
}


def open_library(path: Path) -> Any:
    """Raises CompileError."""
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise CompileError(
            f"The compiled library {path} can't be opened ({error}): set MARS_CACHE to a folder on "
            "a volume that allows programs."
        ) from error
    for number, structure in enumerate(_STRUCTS):
        if library.mars_sizes(number) != ctypes.sizeof(structure):
            raise CompileError(
                f"{structure.__name__} has another size in the compiled library than in "
                f"library.py: remove {path} to compile it again."
            )
    return library
