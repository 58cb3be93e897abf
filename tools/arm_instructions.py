"""Count the instructions of forward passes of the native library on emulated ARM processors.

    python tools/arm_instructions.py

Compiles tests/model/native/kernels.cpp for each kind of processor, runs it with qemu-aarch64 and
prints, in millions of instructions, what one forward pass of 1, 2, 4, 8 and 16 tokens with their
predictions takes: SmolLM2-135M's shape, 4-bit layers, an 8-bit head, 96 tokens of context at most.
Needs qemu-user and g++-aarch64-linux-gnu.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from mars_runtime.model.native.library import FLAGS, SOURCES  # noqa: E402

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
SOURCE = ROOT / "tests" / "model" / "native" / "kernels.cpp"
WIDTHS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Processor:
    """A type of ARM processor: compiler flags, an emulated processor with exactly these features,
    and the code path that the library selects on it.
    """

    flags: tuple[str, ...]
    emulated: str
    path: str


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
        "-static",
        f"-I{SOURCES}",
        str(SOURCE),
        "-o",
        str(target),
    ]
    subprocess.run(command, check=True)


def count(processor: Processor, program: Path, arguments: list[str]) -> int:
    """Return how many instructions a run of the program executes.

    The emulator logs each block of instructions when it translates the block and when it executes
    it.
    """
    log = ["-d", "nochain,exec,in_asm", "-D", "/dev/stdout"]
    command = [EMULATOR, "-cpu", processor.emulated, *log, str(program), *arguments]
    sizes: dict[str, int] = {}
    block, total = "", 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if line.startswith("Trace"):
                total += sizes[line.split("/")[1].lstrip("0")]
            elif line.startswith("IN:"):
                block = ""
            elif line.startswith("0x"):
                block = block or line[2 : line.index(":")].lstrip("0")
                sizes[block] = (
                    sizes[block] + 1 if line[2:].lstrip("0").split(":")[0] != block else 1
                )
    return total


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, processor in PROCESSORS.items():
            program = Path(folder) / name
            compile_kernels(processor.flags, program)
            counts = []
            for width in WIDTHS:
                before, after = (
                    count(processor, program, [number, str(width)]) for number in ("0", "1")
                )
                counts.append(f"{(after - before) / 1e6:.1f}")
            print(f"{name}: {', '.join(counts)}", flush=True)


if __name__ == "__main__":
    main()
