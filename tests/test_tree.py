"""The tracked files stay small enough for a machine with little disk. Weights are tracked only
compressed; the files that are decompressed next to them are not tracked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MOST = 56 << 20
"""Bytes; a machine with a GPU takes a tree of 64 MiB."""


def test_the_tracked_files_fit() -> None:
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is not a clone of the repository, or git is not installed")
    names = [os.fsdecode(name) for name in listed.split(b"\0") if name]
    sizes = {name: (ROOT / name).lstat().st_size for name in names if os.path.lexists(ROOT / name)}
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:5]
    total = sum(sizes.values())
    assert total <= MOST, f"{total / 2**20:.1f} MiB are tracked, the largest files are {largest}"
    assert not [name for name in sizes if name.endswith(".safetensors")]
