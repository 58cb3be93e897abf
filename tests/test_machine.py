"""What is asked of the system this runs on."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from mars_runtime.machine import return_freed_memory

MIB = 2**20


def resident() -> int:
    """Bytes of this process that are in memory."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_what_was_freed_goes_back_to_the_system() -> None:
    blocks = [b"x" * 50_000 for _ in range(4_000)]
    kept = blocks[::100]  # blocks between them: the heap cannot simply shrink
    del blocks
    before = resident()
    return_freed_memory()
    assert before - resident() > 150 * MIB
    assert len(kept) == 40
