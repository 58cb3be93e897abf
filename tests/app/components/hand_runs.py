"""Two short runs written by hand, small enough to judge by eye. Tokens are numbers."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from typing import Any

from mars_runtime.settings import DecodeSettings

END = 50
Slots = list[tuple[int, float]]


def lines(settings: DecodeSettings, rows: list[dict[str, Any]]) -> list[str]:
    """Trace lines of forwards, from the header to the end of the text; drafts are fed again."""
    for before, row in pairwise(rows):
        row["num_pending"] += before["num_drafted"]
    values = [
        {"type": "header", "version": 1, "settings": dataclasses.asdict(settings)},
        {"type": "prefill", "num_tokens": 3, "seconds": 0.1},
        *({"type": "step", "seconds": 0.1, "rows": [row]} for row in rows),
        {"type": "end", "reason": "eos", "message": ""},
    ]
    return [json.dumps(value) for value in values]


def forward(start: int, slots: Slots, count: int, stop: str, drafted: int = 0) -> dict[str, Any]:
    """The row of one forward: (token, confidence) of every slot, of which ``count`` left."""
    return {
        "row": 0,
        "start": start,
        "cursor": 3 + start,
        "num_pending": 1,
        "num_fed": len(slots),
        "proposals": [[token, confidence, [[99, 0.01]]] for token, confidence in slots],
        "accepted": [token for token, _ in slots[:count]],
        "num_drafted": drafted,
        "stop": stop,
    }


# tau 0.9: writes 1 2 | 3 | 5 6 | 7 END. The first refused 3 was right, the 4 behind it was not.
PLAIN_RUN = lines(
    DecodeSettings(tau=0.9, block_size=4),
    [
        forward(0, [(1, 0.99), (2, 0.95), (3, 0.85), (4, 0.5)], 2, "threshold"),
        forward(2, [(3, 0.97), (4, 0.7), (7, 0.6), (8, 0.95)], 1, "threshold"),
        forward(3, [(5, 0.9), (6, 0.92), (END, 0.3), (8, 0.2)], 2, "threshold"),
        forward(5, [(7, 0.9), (END, 0.95)], 2, "eos"),
    ],
)

# Writes 1 | 2 3 | 4 | 5 | 6 END: 2 is confirmed, 9 is replaced by AR's 4, 6 END confirmed.
LOSSLESS_RUN = lines(
    DecodeSettings(tau=0.9, block_size=3, lossless=True),
    [
        forward(0, [(1, 0.99), (2, 0.95), (3, 0.8)], 1, "threshold", drafted=1),
        forward(1, [(2, 0.9), (3, 0.99), (9, 0.95), (5, 0.92)], 2, "block", drafted=2),
        forward(3, [(4, 0.9), (6, 0.9), (5, 0.5), (6, 0.5)], 1, "mismatch"),
        forward(4, [(5, 0.9), (6, 0.95), (END, 0.95)], 1, "block", drafted=2),
        forward(5, [(6, 0.9), (END, 0.95), (8, 0.9)], 2, "eos"),
    ],
)
