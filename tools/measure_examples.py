"""Counts tokens and forwards on the page's examples: ``python -m tools.measure_examples``.

Measures each request with plain AR, lossless, and unverified at a low τ, and the prompts that Grid
and Batch open with. The settings do not depend on the cost of a forward, so no figure depends on
the machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.throughput.batch_tab import NUM_TOKENS as BATCH_TOKENS
from app.tradeoff.grid_order import (
    LOSSLESS_TAU,
    USUAL_BLOCK_SIZES,
    USUAL_TAUS,
    GridOrder,
    Threshold,
)
from app.tradeoff.grid_tab import NUM_TOKENS as GRID_TOKENS
from app.ui.controls import DEFAULTS, FIXED_BLOCK_SIZE, settings_for
from app.ui.examples import BATCH, CHAT, GRID, REQUESTS, TASKS
from mars_runtime import folds
from mars_runtime.engine import Engine, Request
from mars_runtime.events import Event
from mars_runtime.model.load import load_checkpoint
from mars_runtime.outputs import path_of, write_text
from mars_runtime.provenance import provenance
from mars_runtime.settings import DecodeSettings

CHECKPOINTS = {CHAT: "mars-smollm2", TASKS: "mars-tiny"}
WAYS = {
    "ar": settings_for("ar", DEFAULTS),
    "lossless": replace(DEFAULTS, block_size=FIXED_BLOCK_SIZE),
    "bold": replace(DEFAULTS, lossless=False, tau=0.5, block_size=8),
}
BATCH_WAYS = [
    DecodeSettings(tau=tau, block_size=block_size, max_new_tokens=BATCH_TOKENS)
    for tau, block_size in ((0.7, 4), (0.7, 2), (0.9, 4))
]
SECONDS = 600.0


class ExampleRunner:
    """Runs one checkpoint, one answer at a time."""

    def __init__(self, name: str) -> None:
        self._checkpoint = load_checkpoint(name)
        self._engine = Engine(self._checkpoint, max_runs=1, max_waiting=0)

    def events(self, prompt: str, settings: DecodeSettings) -> list[Event]:
        """Return the events of one answer."""
        ids = self._checkpoint.tokenizer.encode_prompt(prompt)
        run = self._engine.submit(Request(ids, settings, SECONDS))
        run.wait()
        return list(run.events_since(0))

    def text(self, events: Sequence[Event]) -> str:
        """Return the text of the answer."""
        return self._checkpoint.tokenizer.decode(folds.accepted_tokens(events))

    def close(self) -> None:
        self._engine.close()


def main() -> None:
    """Measure, print progress and write ``--out``."""
    parser = argparse.ArgumentParser(description="Count on what the page offers to click.")
    parser.add_argument("--answers", action="store_true", help="also print the answers")
    parser.add_argument("--out", type=path_of, default=Path("runs/page_examples.json"))
    args = parser.parse_args()
    result = {"kind": "page examples", "version": 1, **provenance(*CHECKPOINTS.values())}
    result["grids"] = []
    for kind, name in CHECKPOINTS.items():
        answers = ExampleRunner(name)
        result["grids"].append({"checkpoint": name, **grid(GRID[kind][0], answers)})
        if kind == CHAT:
            result["batch"] = batch(BATCH[kind], answers)
            prompts = [prompt for family in REQUESTS.values() for prompt in family.prompts]
            result["requests"] = list(requests(prompts, answers, args.answers))
        answers.close()
    write_text(args.out, json.dumps(result, ensure_ascii=False, indent=1))
    print(f"Written to {args.out}")


def requests(
    prompts: Sequence[str], answers: ExampleRunner, with_text: bool
) -> Iterator[dict[str, Any]]:
    """Yield the figures of each prompt.

    They are the tokens of AR's answer, tokens per forward pass, and the position (from 1) of the
    first token at which the lossless and the unverified text differ from AR's text, or None if they
    do not differ.
    """
    for prompt in prompts:
        runs = {way: answers.events(prompt, settings) for way, settings in WAYS.items()}
        row = {"prompt": prompt, "num_tokens": folds.num_tokens(runs["ar"])}
        for way in ("lossless", "bold"):
            leaves = folds.first_divergence(runs[way], runs["ar"])
            row[way] = {**counts(runs[way]), "leaves": None if leaves is None else leaves + 1}
        print(json.dumps(row, ensure_ascii=False), flush=True)
        if with_text:
            for way, events in runs.items():
                print(f"\n{way}: {answers.text(events)}\n", flush=True)
        yield row


def grid(prompt: str, answers: ExampleRunner) -> Mapping[str, Any]:
    """Return the cells that the Grid tab opens with, plain AR first."""
    thresholds = [*map(Threshold, USUAL_TAUS), Threshold(LOSSLESS_TAU, is_lossless=True)]
    order = GridOrder(prompt, tuple(thresholds), USUAL_BLOCK_SIZES, GRID_TOKENS, "", 1)
    cells = []
    for name, settings in order.cells():
        events = answers.events(prompt, settings)
        way = {"tau": settings.tau, "block_size": settings.block_size}
        cells.append({"cell": name, **way, "lossless": settings.lossless, **counts(events)})
        print(json.dumps(cells[-1]), flush=True)
    return {"prompt": prompt, "cells": cells}


def batch(prompts: Sequence[str], answers: ExampleRunner) -> list[dict[str, Any]]:
    """Return the tokens and forward passes over all rows of the Batch tab's initial prompts,
    unverified. Each prompt is decoded on its own, because a row decodes the same in a batch.
    """
    cells = []
    for settings in BATCH_WAYS:
        rows = [counts(answers.events(prompt, settings)) for prompt in prompts]
        total = {key: sum(row[key] for row in rows) for key in ("num_tokens", "num_forwards")}
        tpf = total["num_tokens"] / total["num_forwards"]
        way = {"tau": settings.tau, "block_size": settings.block_size}
        cells.append({**way, **total, "tpf": tpf})
        print(json.dumps(cells[-1]), flush=True)
    return cells


def counts(events: Sequence[Event]) -> dict[str, Any]:
    """Return the number of tokens and forward passes of an answer, counted up to a loop in its
    text.
    """
    counted = folds.up_to_loop(events)
    return {
        "num_tokens": folds.num_tokens(counted),
        "num_forwards": folds.num_forwards(counted),
        "tpf": folds.tpf(events),
    }


if __name__ == "__main__":
    main()
