"""The compiled library: compiles the C++ next to this file once, caches it, and declares its API.

Uses the machine's own compiler. The structures mirror those of ``model.h``, which documents them.
"""

from __future__ import annotations

import ctypes
import getpass
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent
COMPILERS = ("c++", "g++", "clang++")
# No contraction of operations: a row's rounding must not depend on the other rows.
FLAGS = ("-O3", "-std=c++17", "-ffp-contract=off", "-shared", "-fPIC", "-pthread", "-w")
Flags = tuple[str, ...]
TARGETS: tuple[Flags, ...] = (("-march=native",), ("-mcpu=native",), ())
SECONDS = 300
CHECKSUM = ".sha256"


class CompileError(RuntimeError):
    """The library is not available; the message is one sentence that says why."""


def compile_library(folder: Path, targets: Sequence[Flags] = TARGETS) -> Path:
    """Return the library for this machine, compiled into ``folder`` unless it is there already.

    targets: alternative flags for the processor; the first ones that the compiler accepts are used.
    If ``folder`` is not writable, a temporary folder of this user is used. A checksum is stored
    with the library: loading a damaged one would crash the process, so it is compiled again. Two
    processes may call this at once: each writes its own files, and the last one replaces the
    other's. A third process that sees a mismatch in between compiles again. Raises CompileError.
    """
    compiler = find_compiler()
    name = f"native-{_digest(compiler, targets)}.so"
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


def is_whole(path: Path) -> bool:
    """Return whether the library exists and matches its checksum."""
    try:
        kept = path.with_suffix(CHECKSUM).read_text(encoding="ascii")
        return path.is_file() and kept == _checksum(path)
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
        found = folder.lstat()
    except OSError as error:
        raise CompileError(f"The compiled library can't be kept in {folder}.") from error
    is_ours = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    if not stat.S_ISDIR(found.st_mode) or not is_ours or found.st_mode & 0o022:
        raise CompileError(f"{folder} may be written to by others: remove it.")
    return folder


def _user() -> str:
    """Return the user's name, or number if a container's user has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def find_compiler() -> str:
    """Return the C++ compiler: that of CXX, or the first one found. Raises CompileError."""
    for name in (os.environ.get("CXX", ""), *COMPILERS):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise CompileError("This machine has no C++ compiler.")


def _compile(compiler: str, targets: Sequence[Flags], target: str) -> None:
    said = ""
    for flags in targets:
        command = [compiler, *FLAGS, *flags, str(SOURCES / "native.cpp"), "-o", target]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompileError(f"{compiler} did not finish ({type(error).__name__}).") from error
        if done.returncode == 0:
            return
        said = said or done.stderr
    line = next((line for line in said.splitlines() if "error" in line), "no message")
    raise CompileError(f"{compiler} can't compile the native library: {line[:200]}")


def _digest(compiler: str, targets: Sequence[Flags]) -> str:
    """Return a hash of everything the library depends on."""
    parts = [str(FLAGS), str(targets), _compiler_version(compiler), _processor()]
    sources = sorted((*SOURCES.glob("*.h"), *SOURCES.glob("*.cpp")))
    parts += [source.read_text(encoding="utf-8") for source in sources]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@cache
def _compiler_version(compiler: str) -> str:
    try:
        asked = [compiler, "--version"]
        return subprocess.run(asked, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"{compiler} does not run ({type(error).__name__}).") from error


def _processor() -> str:
    """Return the processor's features: machines that differ may share a cache folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not on Linux
        lines = []
    words = {
        line for line in lines if line.startswith(("flags", "Features", "model\t", "CPU part"))
    }
    return f"{platform.machine()} {platform.processor()} {sorted(words)}"


class Matrix(Structure):
    _fields_ = [("data", c_void_p), ("bits", c_int64), ("outs", c_int64), ("ins", c_int64)]


class LowRank(Structure):
    _fields_ = [("a", Matrix), ("b", Matrix)]


class Layer(Structure):
    _fields_ = [
        ("attention_norm", c_void_p),
        ("qkv", Matrix),
        ("qkv_bias", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("output", Matrix),
        ("feed_norm", c_void_p),
        ("gate_up", Matrix),
        ("down", Matrix),
        ("qkv_low", LowRank),
        ("output_low", LowRank),
        ("gate_up_low", LowRank),
        ("down_low", LowRank),
    ]


class Sampler(Structure):
    _fields_ = [
        ("state", Matrix),
        ("previous", c_void_p),
        ("candidate", c_void_p),
        ("previous_scales", c_void_p),
        ("candidate_scales", c_void_p),
    ]


class Spec(Structure):
    _fields_ = [
        *[
            (name, c_int64)
            for name in ("vocab", "hidden", "num_layers", "num_heads", "num_kv", "dim", "feed")
        ],
        ("norm_floor", c_float),
        ("layers", POINTER(Layer)),
        ("final_norm", c_void_p),
        ("embedding", Matrix),
        ("head", Matrix),
        ("mask_id", c_int64),
        ("mask_embeddings", c_void_p),
        ("num_mask_embeddings", c_int64),
        ("sampler", Sampler),
    ]


class Feed(Structure):
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


class Penalty(Structure):
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
    "mars_new": (c_void_p, [POINTER(Spec)]),
    "mars_free": (None, [c_void_p]),
    "mars_hidden": (c_int64, [c_void_p, POINTER(Feed), c_void_p]),
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
        path.unlink(missing_ok=True)  # compiled again the next time
        raise CompileError(f"The compiled library {path} can't be opened.") from error
    for number, structure in enumerate((Matrix, Layer, Spec, Feed, Sampler, Penalty)):
        if library.mars_sizes(number) != ctypes.sizeof(structure):
            raise CompileError("The compiled library lays out its memory otherwise than expected.")
    return library
