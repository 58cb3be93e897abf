"""Short races written by hand, and the values in which the server would send them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, zip_longest
from typing import Any

import sample_traces as samples

from app.ui.stream import RunLog
from mars_runtime.settings import DecodeSettings

BOTH = {"mars": "MARS", "ar": "plain AR"}
START = DecodeSettings(tau=0.95, block_size=8)
BOLD = DecodeSettings(tau=0.5, block_size=8)
CAREFUL = DecodeSettings(tau=0.8, block_size=4)
PROSE = samples.Script(
    samples.PROSE, START, moves={9: BOLD, 22: CAREFUL, 23: BOLD, 24: START}, change=(60, " deep")
)
LOSSLESS = samples.Script(samples.PROSE, DecodeSettings(tau=0.0, block_size=8, lossless=True))
EMOJI = samples.Script(samples.EMOJI, START)
BRANCH = samples.Script(samples.EMOJI, START, num_given=6)  # in the middle of a character
HOSTILE = samples.Script(samples.HOSTILE, START)
MATHS = samples.Script(samples.MATHS, START, change=(30, "9"))
_numbers = count()


def log_of(
    lines: Sequence[tuple[str, str]], lanes: Mapping[str, str] = BOTH, **head: Any
) -> RunLog:
    """The log of a run with these lines (lane, line); as on the page, each has its own id."""
    titles = [{"lane": name, "title": title} for name, title in lanes.items()]
    made = RunLog({"run": f"run-{next(_numbers)}", "lanes": titles, "pace": 0, **head})
    for tag, line in lines:
        made.add(tag, line)
    return made


def interleaved(lanes: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """(lane, line) of all lanes by turns."""
    turns = zip_longest(*([(name, line) for line in lines] for name, lines in lanes.items()))
    return [pair for turn in turns for pair in turn if pair is not None]


def finished(script: samples.Script, right: bool | None = None, **head: Any) -> str:
    """A race that is over. right: the verdict on the answer of MARS."""
    made = log_of(interleaved(samples.lanes(script)), **head)
    if right is not None:
        made.add("verdict", {"lane": "mars", "right": right})
        made.add("verdict", {"lane": "ar", "right": True})
    return made.whole()


def running(script: samples.Script, steps: int) -> str:
    """A race in slow motion after some forwards."""
    lines = samples.lanes(replace(script, end=None))
    cut = {name: line[: steps + 2] for name, line in lines.items()}
    return log_of(interleaved(cut), pace=20).whole()


def streaming(script: samples.Script, per_update: int) -> Iterator[str]:
    """The values of a race that grows by so many lines at a time."""
    lines = interleaved(samples.lanes(script))
    growing = log_of([])
    for begin in range(0, len(lines), per_update):
        for tag, line in lines[begin : begin + per_update]:
            growing.add(tag, line)
        yield growing.latest()


def status(text: str, kind: str) -> str:
    """A run with a message before its first forward."""
    made = log_of([])
    made.add("status", {"text": text, "kind": kind})
    return made.whole()


def broken() -> str:
    """A line that is no JSON."""
    return log_of([*interleaved(samples.lanes(MATHS))[:9], ("mars", "{oops")]).whole()
