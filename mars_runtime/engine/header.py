"""The header of a run's trace: on what, with what and when. Knows no events and no drawing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mars_runtime.engine.backend import num_threads
from mars_runtime.engine.request import Request
from mars_runtime.trace import Header

if TYPE_CHECKING:
    from mars_runtime.model.load import Checkpoint


def make_header(
    checkpoint: Checkpoint,
    prompt: str,
    request: Request,
    *,
    task: dict[str, Any] | None = None,
    name: str = "",
) -> Header:
    """The header for the trace of ``request``, which asks ``prompt`` of ``checkpoint``, now."""
    model = checkpoint.model
    return Header(
        checkpoint=checkpoint.name,
        prompt=prompt,
        prompt_ids=tuple(request.prompt_ids),
        settings=request.settings,
        hardware=hardware(model.device),
        dtype=str(model.dtype).removeprefix("torch."),
        versions=versions(),
        threads=num_threads(checkpoint),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        task=task,
        name=name,
    )


@cache
def hardware(device: Any) -> str:
    """The name of the GPU, or of the processor and how many cores this process may use."""
    import torch

    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        cores = os.cpu_count() or 1
    return f"{_processor()}, {cores} {'core' if cores == 1 else 'cores'}"


@cache
def versions() -> dict[str, str]:
    """Versions that a figure depends on."""
    import torch

    try:
        project = importlib.metadata.version("mars-live")
    except importlib.metadata.PackageNotFoundError:  # run from its folder, not installed
        project = _version_in_folder()
    return {"mars-live": project, "torch": torch.__version__, "python": platform.python_version()}


def _version_in_folder() -> str:
    """The version that pyproject.toml gives, read as text: tomllib is not in Python 3.10."""
    try:
        lines = Path(__file__).parents[2].joinpath("pyproject.toml").read_text().splitlines()
    except OSError:
        return "unknown"
    found = [line.split('"')[1] for line in lines if line.startswith("version = ")]
    return found[0] if found else "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine() or "unknown processor"
