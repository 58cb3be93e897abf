"""Measures the requests that the page offers, one by one: ``python -m app.examples.measure``.

Each is answered three times, as an ordinary model does (AR), as the page opens and at a bold τ
without lossless, and the answers can be read. A table to choose examples by; times are not in it,
for they depend on the machine. Knows no page.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from app.examples.requests import REQUESTS
from app.methods import DEFAULTS
from mars_runtime import folds
from mars_runtime.engine import Engine, Request
from mars_runtime.events import Event
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.settings import DecodeSettings

WAYS = {
    "AR": DecodeSettings("ar"),
    "as the page opens": DEFAULTS,
    "τ 0.5, B 8": DecodeSettings(tau=0.5, block_size=8),
}
HEAD = "| request | tokens | lossless TPF | same | τ 0.5 TPF | leaves AR at |"
SECONDS = 600.0


def main() -> None:
    """Print the table, line by line as it is measured."""
    parser = argparse.ArgumentParser(description="Measure the page's requests, one by one.")
    parser.add_argument("--checkpoint", default="mars-smollm2", help="registry name or path")
    parser.add_argument("--prompt", action="append", help="instead of the page's, repeatable")
    parser.add_argument("--answers", action="store_true", help="print what was answered, too")
    args = parser.parse_args()
    asked = args.prompt or [each for family in REQUESTS.values() for each in family.prompts]
    checkpoint = load_checkpoint(args.checkpoint)
    print(HEAD + "\n| :-- | --: | --: | :-- | --: | --: |", flush=True)
    with Engine(checkpoint, max_runs=1, max_waiting=0) as engine:
        for prompt in asked:
            print("\n".join(lines(prompt, checkpoint, engine, args.answers)), flush=True)


def lines(prompt: str, checkpoint: Checkpoint, engine: Engine, with_answers: bool) -> Iterator[str]:
    """The row of a prompt, then its answers where they are wanted."""
    ids = checkpoint.tokenizer.encode_prompt(prompt)
    runs = {name: _answer(engine, ids, settings) for name, settings in WAYS.items()}
    yield row(prompt, *runs.values())
    if with_answers:
        for name, events in runs.items():
            text = checkpoint.tokenizer.decode(folds.accepted_tokens(events))
            yield f"\n{name}: {text}\n"


def row(
    prompt: str, plain: Sequence[Event], lossless: Sequence[Event], bold: Sequence[Event]
) -> str:
    """One line of the table."""
    differs = folds.first_divergence(lossless, plain)
    leaves = folds.first_divergence(bold, plain)
    cells = [
        prompt.splitlines()[0],
        str(folds.num_tokens(plain)),
        f"{folds.tpf(lossless):.2f}",
        "yes" if differs is None else f"to {differs}",
        f"{folds.tpf(bold):.2f}",
        "–" if leaves is None else str(leaves + 1),
    ]
    return f"| {' | '.join(cells)} |"


def _answer(engine: Engine, ids: Sequence[int], settings: DecodeSettings) -> list[Event]:
    run = engine.submit(Request(ids, settings, SECONDS))
    run.wait()
    return list(run.events_since(0))


if __name__ == "__main__":
    main()
