"""The kernels of the native forward against plain loops in C++, on this processor and on emulated
ARM processors, bit for bit the same for any number of rows and threads.

The program tests/model/native/kernels.cpp checks; it needs neither Python nor PyTorch, so it can be
compiled for any processor. Its logits are compared here with those of the portable kernels.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from native_models import NEEDED, TARGETS

from mars_runtime.model.native.library import COMPILERS, FLAGS, SOURCES

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
SOURCE = Path(__file__).with_name("native") / "kernels.cpp"


@dataclass(frozen=True, slots=True)
class Processor:
    """A type of ARM processor: compiler flags, an emulated processor with exactly these features,
    and the code path that the library selects on it.
    """

    flags: tuple[str, ...]
    emulated: str
    path: str


# Half the time of a compilation. The library itself is tested as it ships (test_law_bitwise.py).
QUICKLY = "-O1"
PROCESSORS = {
    "dotprod and i8mm": Processor(("-march=armv8.2-a+dotprod+i8mm",), "max", "NEON i8mm"),
    "dotprod": Processor(("-mcpu=cortex-a76",), "cortex-a76", "NEON dotprod"),
    "neither": Processor(("-march=armv8-a",), "cortex-a53", "portable"),
}


def compile_kernels(
    flags: tuple[str, ...], target: Path, compiler: Sequence[str] = (COMPILER,)
) -> None:
    """Compile the kernels with the flags of the library into a statically linked program."""
    flags_kept = [flag for flag in FLAGS if flag != "-shared"]
    command = [
        *compiler,
        *flags_kept,
        *flags,
        QUICKLY,
        "-static",
        f"-I{SOURCES}",
        str(SOURCE),
        "-o",
        str(target),
    ]
    subprocess.run(command, check=True)


PATHS = {"AVX2 and VNNI": "AVX2 and VNNI", "AVX2": "AVX2"}


@cache
def host_compiler() -> tuple[str, ...]:
    actual = next(filter(None, map(shutil.which, COMPILERS)), None)
    if actual is None:
        pytest.skip("this machine has no C++ compiler")
    return (actual,)


def checked(command: list[str]) -> tuple[str, list[float]]:
    """Run the program, which must report no failure; return its path and its logits."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("logit")]
    assert done.returncode == 0, "\n".join([*lines, done.stderr])
    logits = [float(line.split()[1]) for line in done.stdout.splitlines() if line[:5] == "logit"]
    assert len(logits) > 100
    return lines[0].removeprefix("path "), logits


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Logits of the portable kernels on this processor."""
    program = tmp_path_factory.mktemp("portable") / "kernels"
    compile_kernels((), program, host_compiler())
    path, logits = checked([str(program)])
    assert path == "portable"
    return logits


def assert_near(actual: list[float], wanted: list[float]) -> None:
    """Assert that they differ by what another order of operations in fp32 explains."""
    assert max(map(abs, wanted)) > 1
    assert actual == pytest.approx(wanted, rel=1e-3, abs=1e-2)


@pytest.mark.parametrize("target", sorted(set(TARGETS) - {"plain"}))
def test_on_this_processor(target: str, tmp_path: Path, portable: list[float]) -> None:
    needed = NEEDED.get(target)
    if needed and needed not in Path("/proc/cpuinfo").read_text(encoding="utf-8").split():
        pytest.skip(f"this processor has no {needed}")
    program = tmp_path / "kernels"
    compile_kernels(TARGETS[target] or ("-march=native",), program, host_compiler())
    path, logits = checked([str(program)])
    assert path == PATHS.get(target, path)
    assert_near(logits, portable)


@pytest.mark.parametrize("name", sorted(PROCESSORS))
def test_on_an_emulated_arm_processor(name: str, tmp_path: Path, portable: list[float]) -> None:
    for needed in (COMPILER, EMULATOR):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed (Debian: qemu-user g++-aarch64-linux-gnu)")
    processor, program = PROCESSORS[name], tmp_path / "kernels"
    compile_kernels(processor.flags, program)
    path, logits = checked([EMULATOR, "-cpu", processor.emulated, str(program)])
    assert path == processor.path
    assert_near(logits, portable)
