"""How much memory an answer takes at its peak, beyond what was there before (weights, code).

In a pass of its own, outside every timing. On a GPU the allocator counts; on a CPU torch's profiler
lists every allocation of tensors, which is exact and does not depend on who ran before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import torch


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """Peak bytes of tensors alive during ``work`` that were not alive before."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        work()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device)) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it prints lines of its own
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        work()
    results = profiler.profiler and profiler.profiler.kineto_results
    assert results is not None, "the profiler has run"
    found = [one for one in results.events() if one.name() == "[memory]"]
    found.sort(key=lambda one: one.start_ns())
    return highest(one.nbytes() for one in found)


def highest(changes: Iterable[int]) -> int:
    """The highest sum on the way through ``changes``, at least 0."""
    level = top = 0
    for change in changes:
        level += change
        top = max(top, level)
    return top
