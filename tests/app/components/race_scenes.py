"""Two short runs written by hand, small enough to judge by eye. Tokens are numbers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import sample_traces as samples
from race_page import Scene, head, interleaved, streamed, value

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


BOTH = {"mars": "MARS", "ar": "plain AR"}
ONE = {"mars": "MARS"}
START = DecodeSettings(tau=0.95, block_size=8)
BOLD = DecodeSettings(tau=0.5, block_size=8)
CAREFUL = DecodeSettings(tau=0.8, block_size=4)


def finished(script: samples.Script, right: bool | None = None, recorded: str = "") -> Scene:
    """A race that is over, sent at once."""

    def play() -> Iterator[str]:
        first = head(f"finished-{id(script)}", BOTH, pace=0, recorded=recorded)
        made = value(first, interleaved(samples.lanes(script)))
        if right is not None:
            made.add("verdict", {"lane": "mars", "right": right})
            made.add("verdict", {"lane": "ar", "right": True})
        yield made.whole()

    return play


def running(script: samples.Script, steps: int) -> Scene:
    """A race in slow motion that stays where it is after some forwards."""

    def play() -> Iterator[str]:
        lines = samples.lanes(replace(script, end=None))
        cut = {name: line[: steps + 2] for name, line in lines.items()}
        first = head(f"running-{id(script)}", BOTH, pace=20)
        yield from streamed(first, interleaved(cut), 6, 0.02)

    return play


def streaming(script: samples.Script, per_update: int = 4, rest: float = 1 / 15) -> Scene:
    """A race as it comes in, about fifteen updates a second."""

    def play() -> Iterator[str]:
        yield from streamed(
            head("stream", BOTH, pace=0), interleaved(samples.lanes(script)), per_update, rest
        )

    return play


def status(text: str, kind: str) -> Scene:
    """A run with a message before its first forward."""

    def play() -> Iterator[str]:
        made = value(head(f"status-{kind}", BOTH), [])
        made.add("status", {"text": text, "kind": kind})
        yield made.whole()

    return play


def refused() -> Iterator[str]:
    """A run that failed: every lane ends with the error message."""
    end = {"type": "end", "reason": "error", "message": "Write a prompt first."}
    yield value(head("refused", BOTH), [(name, json.dumps(end)) for name in BOTH]).whole()


def stopped() -> Iterator[str]:
    """Stopped after twelve forward passes."""
    script = samples.Script(samples.PROSE, START, end="cancelled", steps_shown=12)
    lines = samples.lanes(script)
    end = lines["mars"][-1]
    lines["ar"] = [*lines["ar"][:30], end]
    yield value(head("stopped", BOTH), interleaved(lines)).whole()


def without_checks(lanes: dict[str, list[str]]) -> dict[str, list[str]]:
    """Lanes of a trace that does not tell what AR would have chosen."""

    def plain(line: str) -> str:
        event = json.loads(line)
        for row in event.get("rows", []):
            row.pop("checks", None)
        return json.dumps(event)

    return {name: [plain(line) for line in lines] for name, lines in lanes.items()}


def unchecked(script: samples.Script, lanes: dict[str, str]) -> Scene:
    """A run from before traces recorded that."""

    def play() -> Iterator[str]:
        lines = without_checks(samples.lanes(script, ar="ar" in lanes))
        yield value(head(f"unchecked-{len(lanes)}", lanes), interleaved(lines)).whole()

    return play


def plain_ar() -> Iterator[str]:
    """AR by itself."""
    lines = {"ar": samples.lanes(PROSE)["ar"]}
    yield value(head("plain-ar", {"ar": "plain AR"}), interleaved(lines)).whole()


def broken() -> Iterator[str]:
    """A line that is no JSON."""
    script = samples.Script(samples.MATHS, START)
    lines = interleaved(samples.lanes(script))[:9]
    yield value(head("broken", BOTH), [*lines, ("mars", "{oops")]).whole()


PROSE = samples.Script(
    samples.PROSE, START, moves={9: BOLD, 22: CAREFUL, 23: BOLD, 24: START}, change=(60, " deep")
)
LOSSLESS = samples.Script(samples.PROSE, DecodeSettings(tau=0.0, block_size=8, lossless=True))
CODE = samples.Script(samples.CODE, START)
EMOJI = samples.Script(samples.EMOJI, START)
BRANCH = samples.Script(samples.EMOJI, START, num_given=6)  # in the middle of a character
HOSTILE = samples.Script(samples.HOSTILE, START)
MATHS = samples.Script(samples.MATHS, START, change=(30, "9"))
LOOPING = samples.Script(
    "The wind took the sand, and the sand took the road." + " round and round it went" * 14,
    START,
    end="repeats",
)
LONG = samples.Script("\n\n".join([samples.PROSE] * 19), START, moves={300: BOLD, 500: START})

SCENES: dict[str, Scene] = {
    "prose": finished(PROSE),
    "code": finished(CODE, right=True),
    "emoji": finished(EMOJI),
    "branch": finished(BRANCH),
    "hostile": finished(HOSTILE),
    "maths": finished(MATHS, right=False),
    "running": running(PROSE, 30),
    "lossless": running(LOSSLESS, 18),
    "waiting": status("Waiting: 2 runs are ahead of yours.", "waiting"),
    "refused": refused,
    "stopped": stopped,
    "broken": broken,
    "recorded": finished(MATHS, recorded="2026-11-20"),
    "losslessdone": finished(LOSSLESS),
    "unchecked": unchecked(PROSE, BOTH),
    "uncheckedalone": unchecked(PROSE, ONE),
    "plainar": plain_ar,
    "looping": finished(LOOPING),
}
