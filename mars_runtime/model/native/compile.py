"""Compile the C++ beside this file with the machine's own compiler, once, and keep the result.

Knows compilers and files; knows nothing of what is compiled.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent
COMPILERS = ("c++", "g++", "clang++")
# Fused operations only where they are written: how a row is rounded must not depend on its company.
FLAGS = ("-O3", "-std=c++17", "-ffp-contract=off", "-shared", "-fPIC", "-pthread", "-w")
Flags = tuple[str, ...]
TARGETS: tuple[Flags, ...] = (("-march=native",), ("-mcpu=native",), ())
SECONDS = 300


class CompileError(RuntimeError):
    """There is no library; one sentence that says why."""


def compile_library(folder: Path, targets: Sequence[Flags] = TARGETS) -> Path:
    """The library for this machine, compiled into ``folder`` if it is not there already.

    targets: flags that name a processor, of which the first that the compiler knows are taken.
    Where ``folder`` cannot be written the library goes into a temporary one. Two processes may do
    this at once: each writes a file of its own, and the last to finish replaces the other's by its
    equal.
    Raises CompileError.
    """
    compiler = find_compiler()
    path = folder / f"native-{_digest(compiler, targets)}.so"
    if path.is_file():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(".so", "native-", path.parent)
    except OSError:
        path = Path(tempfile.mkdtemp(prefix="mars-live-")) / path.name
        handle, temporary = tempfile.mkstemp(".so", "native-", path.parent)
    os.close(handle)
    try:
        _compile(compiler, targets, temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise CompileError(f"The compiled library can't be kept in {path.parent}.") from error
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path


def find_compiler() -> str:
    """The C++ compiler: what CXX names, or the first there is. Raises CompileError."""
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
    """Of all that the library depends on."""
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
    """What the processor can do: a cache folder may be shared by unlike machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not on Linux
        lines = []
    words = {
        line for line in lines if line.startswith(("flags", "Features", "model\t", "CPU part"))
    }
    return f"{platform.machine()} {platform.processor()} {sorted(words)}"
