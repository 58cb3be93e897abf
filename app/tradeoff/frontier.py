"""What the Frontier tab draws: measured results of this repository as points, the paper's as
separate curves, and requests that fail, which open as runs.

The failing requests have no figures of their own: ``evaluate`` measures their kinds
(checkpoints/mars-smollm2/README.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from app.ui.results import RESULTS, read_json, read_sets
from mars_runtime import tasks
from mars_runtime.settings import RECOMMENDED, DecodeSettings

FAILURES = Path(__file__).with_name("failures.json")


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that fails with this checkpoint and these settings, and an explanation."""

    title: str
    why: str
    prompt: str
    checkpoint: str = "mars-smollm2"
    settings: DecodeSettings = RECOMMENDED


def frontier_json() -> str:
    """Return all measured sets, the paper's curves and the failures as JSON for the view."""
    told = {
        "sets": [asdict(one) for one in read_sets(RESULTS)],
        "paper": read_json(RESULTS / "paper.json"),
        "failures": [asdict(one) for one in failures()],
    }
    return json.dumps(told, ensure_ascii=False)


def failures() -> Iterator[Failure]:
    """Yield the failures in their listed order. An entry with a kind and a number gets that prompt
    of ``evaluate``.
    """
    for told in read_json(FAILURES):
        if kind := told.pop("kind", ""):
            number = told.pop("number")
            told["prompt"] = tasks.generate(kind, "eval", 0, number + 1)[number].prompt
        if settings := told.pop("settings", None):
            told["settings"] = DecodeSettings(**settings)
        yield Failure(**told)
