#!/usr/bin/env python3
"""Measures the costs by which ``auto`` decides when its objective is the fewest passes.

    python tools/reference_costs.py

Writes mars_runtime/decoders/reference_costs.json: the cost of forwards of 1, 2, 3 ... tokens on
this machine, relative to a forward of one token, with the chat model and its default number of
threads. Every machine uses the committed file, so that a prompt takes the same passes everywhere;
measure again only if the cost of forwards has changed in general. Needs a quiet machine.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mars_runtime.decoders.forward_costs import REFERENCE
from mars_runtime.engine.costs import measure_costs
from mars_runtime.machine import processor
from mars_runtime.model.load import load_checkpoint

CHECKPOINT = "mars-smollm2"


def main() -> None:
    """Measure, print and write."""
    costs = measure_costs(load_checkpoint(CHECKPOINT))
    document = {
        "command": "python tools/reference_costs.py",
        "checkpoint": CHECKPOINT,
        "machine": processor(),
        "plain": [round(cost, 3) for cost in costs.rho[1]],
        "masks": round(costs.masks[1], 3),
    }
    text = json.dumps(document, indent=1)
    REFERENCE.write_text(f"{text}\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
