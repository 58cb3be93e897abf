"""The compiled library: compiles the C++ next to this file once, caches it, and declares its API.

Uses the machine's own compiler, or that of the package ziglang. The structures mirror those of
``model.h``, which documents them.
"""

from __future__ import annotations

import ctypes
import getpass
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from mars_runtime.machine import is_private

SOURCES = Path(__file__).parent
COMPILERS = ("c++", "g++", "clang++")
PACKAGE = "ziglang"
NO_COMPILER = (
    "This machine has no C++ compiler: run pip install -r requirements-compiler.txt, which makes "
    "models several times as fast."
)
# No contraction of operations: a row's rounding must not depend on the other rows.
FLAGS = ("-O3", "-std=c++17", "-ffp-contract=off", "-shared", "-pthread", "-w")
Flags = tuple[str, ...]
Compiler = tuple[str, ...]
"""The beginning of a compiler's command line."""
IS_WINDOWS, IS_MAC = sys.platform == "win32", sys.platform == "darwin"
# Windows finds no other libraries beside a library, and all its code is position-independent.
LINKED: Flags = ("-static",) if IS_WINDOWS else ("-fPIC",)
SUFFIX = ".dll" if IS_WINDOWS else ".so"
SECONDS = 600
CHECKSUM = ".sha256"


class CompileError(RuntimeError):
    """The library is not available; the message is one sentence that says why."""


def compile_library(folder: Path, targets: Sequence[Flags] | None = None) -> Path:
    """Return the library for this machine, compiled into ``folder`` unless it is there already.

    targets: alternative flags for the processor, those of this one by default; the first ones that
    the compiler accepts are used.
    If ``folder`` is not writable, a temporary folder of this user is used. A checksum is stored
    with the library: loading a damaged one would crash the process, so it is compiled again. Two
    processes may call this at once: each writes its own files, and the last one replaces the
    other's. A third process that sees a mismatch in between compiles again. Raises CompileError.
    """
    compiler, targets = find_compiler(), own_targets() if targets is None else targets
    name = _name(compiler, targets)
    if is_whole(folder / name):
        return folder / name
    folder = folder if _can_write(folder) else _own_folder()
    path = folder / name
    if is_whole(path):
        return path
    try:
        with tempfile.TemporaryDirectory(prefix="native-", dir=folder) as temporary:
            made = Path(temporary) / name
            _compile(compiler, targets, str(made))
            made.with_suffix(CHECKSUM).write_text(_checksum(made), encoding="ascii")
            if path.is_dir():
                shutil.rmtree(path)
            for suffix in (CHECKSUM, made.suffix):
                os.replace(made.with_suffix(suffix), path.with_suffix(suffix))
    except OSError as error:
        raise CompileError(f"The compiled library can't be kept in {folder}.") from error
    return path


def is_compiled(folder: Path) -> bool:
    """Return whether ``compile_library`` would find the library in ``folder``.

    Raises CompileError without a compiler.
    """
    return is_whole(folder / _name(find_compiler(), own_targets()))


def _name(compiler: Compiler, targets: Sequence[Flags]) -> str:
    return f"native-{_digest(compiler, targets)}{SUFFIX}"


def is_whole(path: Path) -> bool:
    """Return whether the library exists and matches its checksum."""
    try:
        checksum = path.with_suffix(CHECKSUM).read_text(encoding="ascii")
        return path.is_file() and checksum == _checksum(path)
    except (OSError, ValueError):
        return False


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _own_folder() -> Path:
    """Return a folder that only this user can write to, since the library in it is executed.

    It is the same at each start. Raises CompileError.
    """
    folder = Path(tempfile.gettempdir()) / f"mars-live-{_user()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise CompileError(f"The compiled library can't be kept in {folder}.") from error
    if not is_private(status):
        raise CompileError(f"{folder} can be written to by other users: remove it.")
    return folder


def _user() -> str:
    """Return the user's name, or number if a container's user has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid()) if hasattr(os, "getuid") else "user"


def find_compiler() -> Compiler:
    """Return the C++ compiler: that of CXX, the first one found, or that of the package.

    Raises CompileError.
    """
    for name in (os.environ.get("CXX", ""), *COMPILERS):
        path = shutil.which(name) if name else None
        if path:
            return (path,)
    if importlib.util.find_spec(PACKAGE) is not None:
        return sys.executable, "-m", PACKAGE, "c++"
    raise CompileError(NO_COMPILER)


def own_targets() -> tuple[Flags, ...]:
    """Return alternative flags that compile for this processor, the best first."""
    if platform.machine() not in ("arm64", "aarch64"):
        return ("-march=native",), ("-mcpu=native",), ()
    if not IS_MAC:
        return ("-mcpu=native",), ("-march=native",), ()
    # Apple's compilers know no native processor.
    has_products = "FEAT_I8MM: 1" in _sysctl()
    best = "-march=armv8.6-a" if has_products else "-mcpu=apple-m1"
    return (best,), ("-mcpu=apple-m1",), ()


def _compile(compiler: Compiler, targets: Sequence[Flags], target: str) -> None:
    errors = ""
    for flags in targets:
        command = [*compiler, *FLAGS, *LINKED, *flags, str(SOURCES / "native.cpp"), "-o", target]
        done = _run(command, SECONDS)
        if done.returncode == 0:
            return
        errors = errors or done.stderr
    line = next((line for line in errors.splitlines() if "error" in line), "no message")
    raise CompileError(f"{compiler[0]} can't compile the native library: {line[:200]}")


def _run(command: Sequence[str], seconds: int) -> subprocess.CompletedProcess[str]:
    """Run a compiler. Raises CompileError if it does not run or finish."""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"{command[0]} did not finish ({type(error).__name__}).") from error


def _digest(compiler: Compiler, targets: Sequence[Flags]) -> str:
    """Return a hash of everything the library depends on."""
    parts = [str(FLAGS), str(targets), str(compiler), _compiler_version(compiler), _processor()]
    sources = sorted((*SOURCES.glob("*.h"), *SOURCES.glob("*.cpp")))
    parts += [source.read_text(encoding="utf-8") for source in sources]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@cache
def _compiler_version(compiler: Compiler) -> str:
    return _run([*compiler, "--version"], 60).stdout


def _processor() -> str:
    """Return the processor's features: machines that differ may share a cache folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not on Linux
        lines = []
    words = {
        line for line in lines if line.startswith(("flags", "Features", "model\t", "CPU part"))
    }
    return f"{platform.machine()} {platform.processor()} {sorted(words)} {_sysctl()}"


@cache
def _sysctl() -> str:
    """Return the name and the features of a Mac's processor; empty elsewhere."""
    if not IS_MAC:
        return ""
    names = ("machdep.cpu", "hw.optional")
    try:
        return subprocess.run(["sysctl", *names], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


class MatrixStruct(Structure):
    _fields_ = [("data", c_void_p), ("bits", c_int64), ("outs", c_int64), ("ins", c_int64)]


class LowRankStruct(Structure):
    _fields_ = [("a", MatrixStruct), ("b", MatrixStruct)]


class LayerStruct(Structure):
    _fields_ = [
        ("attention_norm", c_void_p),
        ("qkv", MatrixStruct),
        ("qkv_bias", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("output", MatrixStruct),
        ("feed_norm", c_void_p),
        ("gate_up", MatrixStruct),
        ("down", MatrixStruct),
        ("qkv_low", LowRankStruct),
        ("output_low", LowRankStruct),
        ("gate_up_low", LowRankStruct),
        ("down_low", LowRankStruct),
    ]


class SamplerStruct(Structure):
    _fields_ = [
        ("state", MatrixStruct),
        ("previous", c_void_p),
        ("candidate", c_void_p),
        ("previous_scales", c_void_p),
        ("candidate_scales", c_void_p),
    ]


class ModelStruct(Structure):
    _fields_ = [
        *[
            (name, c_int64)
            for name in ("vocab", "hidden", "num_layers", "num_heads", "num_kv", "dim", "feed")
        ],
        ("norm_floor", c_float),
        ("layers", POINTER(LayerStruct)),
        ("final_norm", c_void_p),
        ("embedding", MatrixStruct),
        ("head", MatrixStruct),
        ("mask_id", c_int64),
        ("mask_embeddings", c_void_p),
        ("num_mask_embeddings", c_int64),
        ("sampler", SamplerStruct),
    ]


class FeedStruct(Structure):
    _fields_ = [
        ("num_rows", c_int64),
        ("num_tokens", c_int64),
        ("ids", c_void_p),
        ("cursors", POINTER(c_int64)),
        ("positions", c_void_p),
        ("roots", c_void_p),
        ("starts", c_void_p),
        ("turns", c_void_p),
        ("cache", c_void_p),
        ("layer_stride", c_int64),
        ("row_stride", c_int64),
        ("block_stride", c_int64),
        ("num_threads", c_int64),
        ("first_layer", c_int64),
        ("end_layer", c_int64),
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


PARTS = ("products", "attention", "norms", "head", "adapter")
"""The parts that ``mars_clock`` measures, in its order."""

_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "mars_path": (c_char_p, []),
    "mars_sizes": (c_int64, [c_int64]),
    "mars_quantise": (c_int64, [c_void_p, *[c_int64] * 5, c_void_p]),
    "mars_new": (c_void_p, [POINTER(ModelStruct)]),
    "mars_free": (None, [c_void_p]),
    "mars_hidden": (c_int64, [c_void_p, POINTER(FeedStruct), c_void_p]),
    "mars_read": (
        None,
        [c_void_p, c_int64, c_void_p, c_int64, c_int64, *[c_void_p] * 2, c_int64, *[c_void_p] * 5],
    ),
    "mars_logits": (None, [c_void_p, c_int64, c_void_p, c_int64, c_void_p]),
    "mars_clock": (None, [c_void_p, c_int64, POINTER(c_double * len(PARTS))]),
}


def open_library(path: Path) -> Any:
    """Load the library at ``path`` and declare its functions. Raises CompileError."""
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        with suppress(OSError):
            path.unlink()  # compiled again the next time
        raise CompileError(f"The compiled library {path} can't be opened.") from error
    for number, structure in enumerate(
        (MatrixStruct, LayerStruct, ModelStruct, FeedStruct, SamplerStruct, PenaltyStruct)
    ):
        if library.mars_sizes(number) != ctypes.sizeof(structure):
            raise CompileError("The compiled library lays out its memory otherwise than expected.")
    return library
