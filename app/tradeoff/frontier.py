"""The data of the Frontier tab: measured results of this repository as points, the curves of the
paper, and prompts with bad answers, which a visitor can open as runs.

The prompts with bad answers are examples without measurements; ``evaluate`` measures prompts of the
same types (checkpoints/mars-smollm2/README.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from app.ui.results import RESULTS, read_json, read_sets
from mars_runtime import tasks
from mars_runtime.settings import RECOMMENDED, DecodeSettings, read_settings

FAILURES = Path(__file__).with_name("failures.json")


@dataclass(frozen=True, slots=True)
class Failure:
    """A prompt that the checkpoint answers badly with these settings, and an explanation."""

    title: str
    why: str
    prompt: str
    checkpoint: str = "mars-smollm2"
    settings: DecodeSettings = RECOMMENDED


def frontier_json() -> str:
    """Return the measured sets, the curves of the paper and the failures as JSON."""
    fields = {
        "sets": [asdict(result_set) for result_set in read_sets(RESULTS)],
        "paper": read_json(RESULTS / "paper.json"),
        "failures": [asdict(failure) for failure in failures()],
    }
    return json.dumps(fields, ensure_ascii=False)


def failures() -> Iterator[Failure]:
    """Yield the failures in the order of the file. For an entry with ``kind`` and ``number``
    instead of a prompt, generates the prompt that ``evaluate`` uses.
    """
    for entry in read_json(FAILURES):
        if kind := entry.pop("kind", ""):
            number = entry.pop("number")
            entry["prompt"] = tasks.generate(kind, "eval", 0, number + 1)[number].prompt
        if settings := entry.pop("settings", None):
            entry["settings"] = read_settings(settings)
        yield Failure(**entry)
