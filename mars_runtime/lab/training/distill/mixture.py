"""The prompts that the shipped adapter's texts answer: which kinds, and how much of each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from mars_runtime.lab.training.distill.overlap import Benchmarks
from mars_runtime.lab.training.distill.prompts import chat, code, reading
from mars_runtime.lab.training.distill.prompts.base import Prompt, Turns, interleave
from mars_runtime.lab.training.distill.prompts.texts import Texts

SHARES = {"chat": 0.30, "maths": 0.20, "code": 0.18, "summary": 0.16, "rewriting": 0.16}
"""Shares of prompts. Answers to summaries and rewriting are shorter than those to code."""


def mixture(
    data: Path, written: list[str], benchmarks: Benchmarks, seed: int, count: int
) -> list[Prompt]:
    """The first ``count`` prompts; ``written`` are those the model wrote itself."""
    texts = Texts(data, seed)
    passages = texts.passages()
    asked = reading.questions(texts.questions(), texts.random("reading"))
    half = len(passages) // 2
    sources: dict[str, Iterator[Turns]] = {
        "chat": _chat(texts, written),
        "maths": texts.maths(),
        "code": code.requests(texts.random("code")),
        "summary": reading.alternate(
            reading.summaries(passages[:half], texts.random("summary")), asked
        ),
        "rewriting": reading.rewriting(passages[half:], texts.random("rewriting")),
    }
    mixed = interleave(sources, SHARES)
    clean = (p for p in mixed if not any(map(benchmarks.share_a_run_with, p.turns)))
    return list(islice(clean, count))


def _chat(texts: Texts, written: list[str]) -> Iterator[Turns]:
    """Collected, self-written and drawn requests in turn; then what is left of the endless one."""
    drawn = chat.requests(texts.random("chat"))
    yield from reading.alternate(texts.instructions(), iter([(t,) for t in written]), drawn)
    yield from drawn
