"""Which B is worth its cost: the block size that promises the most tokens per second.

Two things decide it: what a forward of Q tokens costs on this device (``ForwardCosts``, measured)
and how far the masks of a row have foreseen so far (``Outlook``, observed). Where no B pays, plain
AR steps are taken, with a probe now and then. Pure numbers: knows no tensors, model or clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mars_runtime.acceptance import Judgement
from mars_runtime.settings import MAX_FED, DecodeSettings

MEMORY = 0.95  # what is left of an observation after one more forward that observed something
PRIOR_WEIGHT = 1.5  # a guess counts as so many observations
FIRST_GUESS = 0.6  # that the first draft leaves, before anything was seen
OUTWARD = 0.93  # each place further out is trusted a little less than the one before it
MIN_GAIN = 1.02  # over AR: less than that is within the error of what is known
PROBE_SHARE = 0.025  # of the time, at most, goes into probes that find nothing
MAX_SPACING = 128  # forwards from probe to probe, at most
MAX_LESSONS = 32
PATIENCE = 2  # further forwards that a choice above 1 stands


class Curve(NamedTuple):
    """What forwards of one number of rows cost, in forwards of one token per row.

    plain: of 1, 2, 3 ... tokens per row. masks: what it adds that there are masks among them, for
    an adapter that they go through.
    """

    plain: Sequence[float]
    masks: float = 0.0

    def of(self, width: int, num_masks: int) -> float:
        """The cost of ``width`` tokens per row, ``num_masks`` of them in a group."""
        return self.plain[width - 1] + (self.masks if num_masks else 0.0)


@dataclass(frozen=True, slots=True)
class ForwardCosts:
    """What forwards cost on one device.

    depth: the B that the model was trained with, the most that is ever chosen.
    rho: number of rows -> times of forwards of 1, 2, 3 ... tokens per row over that of 1.
    masks: number of rows -> what masks add to a forward, over the same.
    seconds: of a forward of one token for the fewest rows; 0 if not told.
    lessons: what earlier runs on this device taught whoever chooses by these costs.
    fewer: the same with fewer threads, by their number, where ``in_force`` tells how many forwards
    get now.
    """

    depth: int
    rho: Mapping[int, tuple[float, ...]]
    seconds: float = 0.0
    masks: Mapping[int, float] = field(default_factory=dict)
    lessons: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)
    fewer: Mapping[int, ForwardCosts] = field(default_factory=dict, repr=False)
    in_force: Callable[[], int] | None = field(default=None, compare=False, repr=False)
    _curves: dict[int, Curve] = field(default_factory=dict, compare=False, repr=False)

    def learn(self, basis: Hashable, lesson: Any) -> None:
        """Keep a lesson; of more than MAX_LESSONS the oldest is forgotten, for what they are kept
        under is asked by whoever sends requests."""
        self.lessons.pop(basis, None)
        self.lessons[basis] = lesson
        if len(self.lessons) > MAX_LESSONS:
            del self.lessons[next(iter(self.lessons))]

    def curve(self, num_rows: int) -> Curve:
        """Up to MAX_FED tokens, for the next larger batch that was measured or else the largest,
        with the threads now in force; what was not measured costs in proportion."""
        now = self.fewer.get(self.in_force(), self) if self.in_force is not None else self
        if num_rows not in now._curves:
            now._curves[num_rows] = now._curve(num_rows)
        return now._curves[num_rows]

    def _curve(self, num_rows: int) -> Curve:
        enough = [rows for rows in self.rho if rows >= num_rows]
        nearest = min(enough) if enough else max(self.rho)
        known = self.rho[nearest]
        longer = range(len(known) + 1, MAX_FED + 1)
        plain = [*known, *(known[-1] * length / len(known) for length in longer)]
        return Curve(plain, self.masks.get(nearest, 0.0))


class Evidence:
    """What happened at each place behind AR's own token, given that all went well before it."""

    def __init__(self, max_running: int) -> None:
        self.taken = [0.0] * max_running
        self.refused = [0.0] * max_running

    def note(self, num_taken: int, is_refused: bool) -> None:
        """The first places were taken, the one behind them perhaps refused. All else fades."""
        self.taken = [MEMORY * count for count in self.taken]
        self.refused = [MEMORY * count for count in self.refused]
        for place in range(num_taken):
            self.taken[place] += 1.0
        if is_refused:
            self.refused[num_taken] += 1.0

    def chances(self, first_guess: float) -> list[float]:
        """That each place is taken; one never seen is taken to be a little worse than the one
        before it."""
        found, guess = [], first_guess
        for taken, refused in zip(self.taken, self.refused, strict=True):
            chance = (taken + PRIOR_WEIGHT * guess) / (taken + refused + PRIOR_WEIGHT)
            found.append(chance)
            guess = OUTWARD * chance
        return found


class Outlook:
    """How far the masks of one row foresee, by its own forwards under one tau, metric and mode.

    made: were drafts accepted by tau? agreed: did AR choose the same (``lossless`` alone asks)?
    num_found: tokens beyond AR's own that left so far.
    """

    def __init__(self, settings: DecodeSettings, depth: int) -> None:
        self._basis = _basis(settings)
        self._is_verified = settings.is_verified
        self._made, self._agreed = Evidence(depth), Evidence(depth)
        self.num_found = 0

    def fits(self, settings: DecodeSettings) -> bool:
        """Whether what was seen still counts under these settings."""
        return self._basis == _basis(settings)

    def observe(self, verdict: Judgement, num_fed_drafts: int, block_size: int) -> None:
        """Learn from one forward: its verdict, how many drafts it verified, the B in force."""
        num_agreed = verdict.num_agreed
        self.num_found += num_agreed
        if num_fed_drafts:
            self._agreed.note(num_agreed, num_agreed < num_fed_drafts)
        if block_size > 1 and num_agreed == num_fed_drafts:
            made = len(verdict.emitted) + len(verdict.drafts) - num_agreed - 1
            self._made.note(made, verdict.stop == "threshold")
            self.num_found += 0 if self._is_verified else made

    def chances(self) -> list[tuple[float, float]]:
        """For each place behind AR's token: that a draft is made there, and that AR agrees."""
        if not self._is_verified:
            return [(made, 1.0) for made in self._made.chances(FIRST_GUESS)]
        guess = math.sqrt(FIRST_GUESS)
        return list(zip(self._made.chances(guess), self._agreed.chances(guess), strict=True))


class Pilot:
    """Chooses the B of each forward for the rows that leave it to be chosen. They share one B,
    because they share the forward."""

    def __init__(self, costs: ForwardCosts) -> None:
        self._costs = costs
        self._outlooks: dict[int, Outlook] = {}
        self._choice = 1
        self._wait = 0  # forwards until the next look
        self._spacing = 0  # forwards between the last two probes
        self._num_found = -1  # by all rows, when last looked at; -1 is unlike any number

    def block_size(self, asked: Mapping[int, DecodeSettings]) -> int:
        """B of the next forward; ``asked`` are the rows concerned, at least one, by number."""
        outlooks = [self._outlook(number, settings) for number, settings in asked.items()]
        found = sum(outlook.num_found for outlook in outlooks)
        is_waiting = self._wait > 0 and (self._choice > 1 or found == self._num_found)
        if is_waiting and self._num_found >= 0:
            self._wait -= 1
            return self._choice
        has_found, self._num_found = found > self._num_found, found
        return self._look(outlooks, has_found)

    def observe(
        self, number: int, verdict: Judgement, num_fed_drafts: int, block_size: int
    ) -> None:
        """Learn from a forward of the row; as ``Outlook.observe``."""
        self._outlooks[number].observe(verdict, num_fed_drafts, block_size)

    def forget(self, number: int) -> None:
        """The row is gone; its number may be used anew."""
        self._outlooks.pop(number, None)

    def _outlook(self, number: int, settings: DecodeSettings) -> Outlook:
        """That of the row; a new one, and a look at once, when it begins or was steered."""
        outlook = self._outlooks.get(number)
        if outlook is None or not outlook.fits(settings):
            outlook = self._outlooks[number] = Outlook(settings, self._costs.depth)
            self._num_found = -1
        return outlook

    def _look(self, outlooks: Sequence[Outlook], has_found: bool) -> int:
        """Weigh all B anew; in a stretch of AR steps, probe."""
        curve = self._costs.curve(len(outlooks))
        chances = [outlook.chances() for outlook in outlooks]
        sizes = range(2, self._costs.depth + 1)
        rates = {size: rate(size, chances, curve) for size in sizes}
        best = max(rates, key=rates.__getitem__, default=1)
        if best > 1 and rates[best] >= MIN_GAIN:
            self._choice, self._wait, self._spacing = best, PATIENCE, 0
            return best
        base = self._base_spacing(best, curve)
        if self._choice > 1 or best == 1:  # AR from here on
            self._choice, self._wait, self._spacing = 1, base, base
            return 1
        self._spacing = base if has_found else min(max(base, 2 * self._spacing), MAX_SPACING)
        self._wait = self._spacing
        return best

    def _base_spacing(self, size: int, curve: Curve) -> int:
        """Forwards from probe to probe that keep the cost of probes below PROBE_SHARE. What a probe
        drafts is fed once more, so it may cost twice."""
        if size == 1:  # the model was trained to foresee nothing
            return MAX_SPACING
        return min(MAX_SPACING, math.ceil(2 * (curve.of(size, size - 1) - 1.0) / PROBE_SHARE))


def rate(size: int, rows: Sequence[Sequence[tuple[float, float]]], curve: Curve) -> float:
    """Tokens per second with B = ``size``, in the measure of AR steps of the same rows.

    rows: for each row its ``Outlook.chances``. A forward feeds [AR's token | drafts of the forward
    before | masks], B - 1 masks behind the row with the most drafts. It gives one token and those
    drafts that AR confirms; a draft that it does not confirm spoils what was drafted behind it, so
    that the next forward has none to verify.
    """
    tokens = 0.0
    at_most = [1.0] * size  # place k: chance that no row has more than k drafts
    for chances in rows:
        gained, missed = 1.0, 0.0
        drafted = alive = 1.0
        more = []
        for made, agreed in chances[: size - 1]:
            drafted *= made
            more.append(drafted)
            missed += alive * made * (1.0 - agreed)
            alive *= made * agreed
            gained += alive
        tokens += (gained + missed) / (1.0 + missed)
        for place, chance in enumerate(more):
            at_most[place] *= 1.0 - chance / (1.0 + missed)
    cost = before = 0.0
    for drafts, chance in enumerate(at_most):
        cost += (chance - before) * curve.of(drafts + size, size - 1)
        before = chance
    return tokens / (cost * len(rows))


def _basis(settings: DecodeSettings) -> tuple[object, ...]:
    adapted = settings.threshold, settings.target
    return settings.tau, settings.metric, settings.is_verified, adapted
