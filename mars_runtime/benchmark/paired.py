"""Paired timing: every prompt by every peer, in alternating order, and ratios prompt by prompt.

Knows peers only as functions that time themselves; knows no model and no clock.
"""

from __future__ import annotations

import statistics as plain
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from mars_runtime.evaluation import statistics
from mars_runtime.evaluation.statistics import Estimate

Span = Literal["decode", "whole"]
"""``whole``: from prompt to last token. ``decode``: after the first forward that gave tokens, its
tokens not counted, so prefill is apart for every peer alike."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One answer: ``num_first`` tokens after ``first_seconds``, all of them after ``seconds``.

    num_forwards: model calls that gave tokens.
    """

    tokens: tuple[int, ...]
    num_first: int
    num_forwards: int
    first_seconds: float
    seconds: float

    def rate(self, span: Span) -> float | None:
        """Tokens a second; None for the decode span of an answer that came in one forward."""
        if span == "whole":
            return len(self.tokens) / self.seconds
        later = len(self.tokens) - self.num_first
        return later / (self.seconds - self.first_seconds) if later else None


@dataclass(frozen=True, slots=True)
class Peer:
    """A way to answer a prompt (token ids) on so many CPU threads; ``answer`` times itself."""

    name: str
    threads: int
    answer: Callable[[Sequence[int]], Timing]


@dataclass(frozen=True, slots=True)
class Sample:
    """What one peer made of one prompt in one round."""

    peer: str
    threads: int
    family: str
    prompt: int
    round: int
    timing: Timing


def play(
    peers: Sequence[Peer],
    prompts: Sequence[tuple[str, Sequence[int]]],
    num_rounds: int,
    prepare: Callable[[Peer], None],
) -> Iterator[Sample]:
    """Time every (family, prompt ids) with every peer, ``num_rounds`` times.

    Peers follow each other on the same prompt, forwards and backwards by turns, so that a drift of
    the machine hits all alike. ``prepare`` is called before each answer, outside the clock.
    """
    for number in range(num_rounds):
        for index, (family, ids) in enumerate(prompts):
            is_forwards = (number + index) % 2 == 0
            for peer in peers if is_forwards else reversed(peers):
                prepare(peer)
                yield Sample(peer.name, peer.threads, family, index, number, peer.answer(ids))


def best_threads(samples: Sequence[Sample]) -> dict[str, int]:
    """For each peer the thread count with the most tokens a second over all given samples."""
    tokens: dict[tuple[str, int], int] = {}
    seconds: dict[tuple[str, int], float] = {}
    for one in samples:
        key = (one.peer, one.threads)
        tokens[key] = tokens.get(key, 0) + len(one.timing.tokens)
        seconds[key] = seconds.get(key, 0.0) + one.timing.seconds
    rates = {key: tokens[key] / seconds[key] for key in tokens}
    best: dict[str, int] = {}
    for peer, threads in sorted(rates, key=lambda key: rates[key]):
        best[peer] = threads
    return best


def ratio(
    samples: Sequence[Sample], peer: str, baseline: str, families: Sequence[str], span: Span
) -> Estimate | None:
    """How many times the tokens a second of ``baseline``: pairs of the same prompt and round.

    A prompt's ratio is the median over its rounds; families count alike (``median_ratio``). None
    where a family has no pair. ``samples`` hold one thread count a peer.
    """
    groups = [_prompt_ratios(samples, peer, baseline, family, span) for family in families]
    return statistics.median_ratio(groups) if groups and all(groups) else None


def agreement(samples: Sequence[Sample], peer: str, baseline: str) -> float | None:
    """Share of pairs with the very same tokens."""
    pairs = _pairs(samples, peer, baseline)
    return sum(one.tokens == other.tokens for one, other in pairs) / len(pairs) if pairs else None


def _prompt_ratios(
    samples: Sequence[Sample], peer: str, baseline: str, family: str, span: Span
) -> list[float]:
    by_prompt: dict[int, list[Sample]] = {}
    for one in samples:
        if one.family == family:
            by_prompt.setdefault(one.prompt, []).append(one)
    found = []
    for group in by_prompt.values():
        ratios = []
        for timing, base in _pairs(group, peer, baseline):
            top, bottom = timing.rate(span), base.rate(span)
            if top is not None and bottom is not None:
                ratios.append(top / bottom)
        if ratios:
            found.append(plain.median(ratios))
    return found


def _pairs(samples: Sequence[Sample], peer: str, baseline: str) -> list[tuple[Timing, Timing]]:
    """Timings of both on the same prompt in the same round."""
    ones = {(s.prompt, s.round): s.timing for s in samples if s.peer == peer}
    others = {(s.prompt, s.round): s.timing for s in samples if s.peer == baseline}
    return [(ones[key], others[key]) for key in ones if key in others]
