"""Measures methods on the page's examples: ``python -m tools.measure_presets``.

One run covers the page's initial settings, AR with prompt lookup, and settings that keep unverified
tokens. The Live tab takes its presets from the result. Tokens per forward do not depend on the
machine if B is a number. Speed does, so every method answers every prompt between two answers of
AR, and is compared with the time that AR's mean pace would need for as many tokens. Both figures
are ratios of sums over the same prompts, so a long answer has the same weight in both.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from app.ui.controls import DEFAULTS
from app.ui.examples import CHAT, TASKS, ExampleBook
from mars_runtime import folds
from mars_runtime.events import Event
from mars_runtime.outputs import path_of, write_text
from mars_runtime.provenance import provenance
from mars_runtime.settings import AR_LOOKUP, AUTO, DecodeSettings, describe
from mars_runtime.statistics import ratio_of_sums, wilson
from tools.measure_examples import CHECKPOINTS, ExampleRunner

TAUS = (0.95, 0.9, 0.8, 0.7, 0.5)
BLOCK_SIZES: dict[str, tuple[Any, ...]] = {CHAT: (2, 3, AUTO), TASKS: (4, 8, AUTO)}
NUM_PROMPTS = 10
NUM_TOKENS = {CHAT: 64, TASKS: 96}


@dataclass(frozen=True, slots=True)
class PresetAnswer:
    """Figures of one answer.

    tokens: all tokens of the answer. The other figures count only up to a loop in the text.
    seconds: decoding time.
    """

    tokens: tuple[int, ...]
    num_tokens: int
    num_forwards: int
    seconds: float

    @classmethod
    def of(cls, events: Sequence[Event]) -> PresetAnswer:
        """Return the answer from the events of its run."""
        counted = folds.up_to_loop(events)
        return cls(
            tuple(folds.accepted_tokens(events)),
            folds.num_tokens(counted),
            folds.num_forwards(counted),
            folds.decode_seconds(counted),
        )

    @property
    def pace(self) -> float:
        """Seconds per token."""
        return self.seconds / self.num_tokens


def main() -> None:
    """Measure, print progress and write ``--out``."""
    parser = argparse.ArgumentParser(description="Measure methods on the page's examples.")
    parser.add_argument("--out", type=path_of, default=Path("runs/page_ways.json"))
    args = parser.parse_args()
    result = {"kind": "page ways", "version": 1, **provenance(*CHECKPOINTS.values())}
    result["ways"] = [row for kind in CHECKPOINTS for row in ways(kind)]
    write_text(args.out, json.dumps(result, ensure_ascii=False, indent=1))
    print(f"Written to {args.out}")


def prompts_of(kind: str) -> list[str]:
    """Return prompts that the checkpoint can answer, from the families in turn."""
    return ExampleBook().several(kind, 0, NUM_PROMPTS)


def ways(kind: str) -> Iterator[dict[str, Any]]:
    """Yield a row for AR, then one row for each method.

    A row has tokens per forward pass, the share of answers with exactly AR's tokens, and the speed
    relative to AR.
    """
    name, most = CHECKPOINTS[kind], NUM_TOKENS[kind]
    plain = DecodeSettings("ar", max_new_tokens=most)
    verified = (AR_LOOKUP, DEFAULTS)
    compared = [plain, *(replace(settings, max_new_tokens=most) for settings in verified)] + [
        DecodeSettings(tau=tau, block_size=block_size, max_new_tokens=most)
        for tau in TAUS
        for block_size in BLOCK_SIZES[kind]
    ]
    answers = ExampleRunner(name)
    by_prompt: list[list[PresetAnswer]] = []
    ar_seconds: list[list[float]] = []
    answers.events(prompts_of(kind)[0], plain)  # warm-up
    for prompt in prompts_of(kind):
        by_method, by_ar = [], []
        before = PresetAnswer.of(answers.events(prompt, plain))
        for settings in compared:
            answer = PresetAnswer.of(answers.events(prompt, settings))
            after = PresetAnswer.of(answers.events(prompt, plain))
            by_ar.append((before.pace + after.pace) / 2 * answer.num_tokens)
            by_method.append(answer)
            before = after
        ar_seconds.append(by_ar)
        by_prompt.append(by_method)
        print(f"{name}: {prompt.splitlines()[0][:60]}", flush=True)
    answers.close()
    for place, settings in enumerate(compared):
        column = [row[place] for row in by_prompt]
        same = sum(
            answer.tokens == row[0].tokens for answer, row in zip(column, by_prompt, strict=True)
        )
        row = {
            "checkpoint": name,
            "settings": asdict(settings),
            "num_answers": len(column),
            "tpf": asdict(
                ratio_of_sums(
                    [float(answer.num_tokens) for answer in column],
                    [float(answer.num_forwards) for answer in column],
                )
            ),
            "agreement": asdict(wilson(same, len(column))),
            "speed": asdict(
                ratio_of_sums(
                    [row[place] for row in ar_seconds], [answer.seconds for answer in column]
                )
            ),
        }
        print(f"{describe(settings)}: {row['tpf']} {row['agreement']} {row['speed']}", flush=True)
        yield row


if __name__ == "__main__":
    main()
