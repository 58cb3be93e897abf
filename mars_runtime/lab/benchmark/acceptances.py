"""Where the acceptance of a model without real weights is drawn from: given, or recorded.

Recorded is what a benchmark of a real checkpoint wrote down: how many forwards of MARS took so many
tokens, over the families. Knows files and numbers; knows no model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mars_runtime.acceptance import DecodeError
from mars_runtime.decoders.forced import ForcedAcceptance

RECORDED = Path(__file__).parents[3] / "assets" / "results" / "benchmark.json"
"""The committed benchmark of the bundled checkpoint: what is taken where nothing is given."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A histogram, and in words where it comes from."""

    forced: ForcedAcceptance
    source: str


def read_acceptance(given: str | None) -> Acceptance:
    """From "0.55,0.23,0.10,0.12", from the JSON of a benchmark, or, when nothing is given, from the
    committed one. Raises DecodeError, one sentence."""
    if given is not None and not given.endswith(".json"):
        shares = ", ".join(part.strip() for part in given.split(","))
        return Acceptance(ForcedAcceptance.parse(given), f"given shares {shares}")
    path = Path(given) if given is not None else RECORDED
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        peer, counts = recorded_counts(found)
        where = f"{peer} of {found['subject']['name']}, {found['date'][:10]}"
    except (OSError, ValueError, KeyError, TypeError, LookupError) as error:
        raise DecodeError(
            f"No acceptance is recorded in {path.name}: give --acceptance the shares of forwards "
            "that take 1, 2, 3 ... tokens, such as 0.55,0.23,0.10,0.12, or the JSON of a benchmark."
        ) from error
    return Acceptance(ForcedAcceptance.recorded(counts), f"a recorded histogram ({where})")


def recorded_counts(found: dict[str, Any]) -> tuple[str, dict[int, int]]:
    """The first way of MARS of the first series of a benchmark: its name and tokens -> forwards.
    Raises LookupError when there is none."""
    for series in found["series"]:
        for peer in series["peers"]:
            if peer["peer"].startswith("MARS"):
                counts = peer["tokens_per_forward_counts"].items()
                return peer["peer"], {int(taken): int(count) for taken, count in counts}
    raise LookupError("no MARS in it")
