"""How many drafts and masks a lossless forward is worth: what promises the most tokens per second.

Two things decide it: what a forward of Q tokens costs on this device, and the chances of drafts,
learnt from the row's own text (``calibration.py``). A draft is fed if the chance that it leaves
pays for its positions at the rate of the run; masks are fed if what they propose pays for them
later. Where none pay, plain AR steps are taken, with a probe now and then. Pure numbers: knows no
tensors, model or clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import NamedTuple

from mars_runtime.decoders.adaptive import MAX_SPACING, MIN_GAIN, PROBE_SHARE, Curve
from mars_runtime.decoders.calibration import Calibration, chains_of
from mars_runtime.decoders.feed import Feed
from mars_runtime.events import Proposal
from mars_runtime.settings import MAX_FED, DecodeSettings

NUM_SAMPLES = 20  # forwards by which the number of masks is chosen
NUM_LESSONS = 5  # of those, from the row before
NUM_PROBES = 2  # forwards with masks that count still in a stretch without
PATIENCE, HASTE = 16, 3  # forwards that a choice of masks stands, an old and a new one
MIN_SPACING = 8  # forwards from probe to probe, at least: a look costs time of its own
OUTWARD = 0.95  # each place further out is trusted a little less than the one before it
FIRST_GUESS = (0.55, 0.5)  # chance of the first mask's proposal, and of each further one


@dataclass(frozen=True, slots=True)
class Course:
    """What is steered by for some forwards.

    num_masks: of a group. rate: tokens that leave for the cost of one AR step. worth: of having
    proposals when a forward begins, in tokens: what it costs to come by them otherwise.
    """

    num_masks: int
    rate: float
    worth: float

    @classmethod
    def of(cls, num_masks: int, rate: float, curve: Curve) -> Course:
        return cls(num_masks, rate, max(0.0, rate * curve.of(1 + num_masks, num_masks) - 1.0))


AR = Course(0, 1.0, 0.0)


class Option(NamedTuple):
    """A way to feed a forward. value: tokens it promises, less what it costs at the rate of the
    course. gain: drafts that it promises to leave. going_on: chance that the next forward begins
    with proposals. width: tokens fed. The others are of Feed."""

    value: float
    gain: float
    going_on: float
    width: int
    num_drafts: int
    num_masks: int
    is_every: bool

    @property
    def feed(self) -> Feed:
        """What is fed."""
        return Feed(*self[4:])


def best_option(
    chances: Sequence[float], course: Course, curve: Curve, *, may_branch: bool
) -> Option:
    """The best way to feed a forward with these drafts in hand.

    chances: that the first 1, 2, 3 ... drafts all leave. Masks stand nowhere, after the last draft,
    or where they may branch after each one.
    """
    plain, extra = curve  # what follows runs thousands of times a second
    masks, rate, worth = course.num_masks, course.rate, course.worth
    most, gain, alive = len(chances), 0.0, 1.0
    best = -math.inf
    found: tuple[float, float, int, int, int, bool] = (0.0, 0.0, 1, 0, 0, False)
    for num_drafts in range(most + 1):
        if num_drafts:
            alive = chances[num_drafts - 1]
            gain += alive
        value = gain - rate * plain[num_drafts]
        if value + (most - num_drafts) * alive + worth < best:
            break  # costs only rise from here on
        if value > best:
            best, found = value, (gain, 0.0, num_drafts + 1, num_drafts, 0, False)
        if not masks:
            continue
        width = num_drafts + 1 + masks
        value = gain - rate * (plain[width - 1] + extra) + alive * worth
        if value > best:
            best, found = value, (gain, alive, width, num_drafts, masks, False)
        width = (num_drafts + 1) * (1 + masks)
        if may_branch and num_drafts and width <= MAX_FED:
            value = gain - rate * (plain[width - 1] + extra) + worth
            if value > best:
                best, found = value, (gain, 1.0, width, num_drafts, masks, True)
    return Option(best, *found)


def rate_of(
    num_masks: int,
    samples: Sequence[tuple[Sequence[float], Sequence[float]]],
    curve: Curve,
    *,
    may_branch: bool,
    rate: float,
) -> float:
    """Tokens that leave for the cost of an AR step, with so many masks in a group.

    samples: chances of what masks, and of what the text proposed, in forwards of late. rate: what
    the run gives now, for what pays depends on it. A forward that begins without proposals has no
    drafts and feeds a group of masks.
    """
    course = Course.of(num_masks, rate, curve)
    anew = curve.of(1 + num_masks, num_masks)
    tokens = cost = 0.0
    for masks, text in samples:
        option = best_option(masks[:num_masks], course, curve, may_branch=may_branch)
        if text:
            other = best_option(text, course, curve, may_branch=may_branch)
            option = other if other.value > option.value else option
        again = 1.0 - option.going_on if num_masks else 0.0
        tokens += 1.0 + option.gain + again
        cost += curve.of(option.width, option.num_masks) + again * anew
    return tokens / cost


class Drafter:
    """Steers one lossless row under one tau, metric and way of drafting."""

    def __init__(
        self, settings: DecodeSettings, most_masks: int, before: Drafter | None = None
    ) -> None:
        """most_masks: of a group, as the model was trained; 0 without a mask token. before: of the
        latest row under such settings, whose lessons count until this row has taught its own."""
        self.basis = basis_of(settings)
        self._may_branch = settings.groups == "every"
        self._tau = settings.tau
        self._most_masks = most_masks
        self._calibration: Calibration = Calibration(before._calibration if before else None)
        guess = [FIRST_GUESS[0] * FIRST_GUESS[1] ** place for place in range(most_masks)]
        self._masks: deque[list[float]] = deque([guess], NUM_SAMPLES)
        self._texts: deque[list[float]] = deque(maxlen=NUM_SAMPLES)
        self._chances: list[float] = []  # of the drafts in hand
        self._course = AR
        self._best_masks, self._rate = min(2, most_masks), 1.0  # as of the last look
        if before is not None:
            self._masks.extend(list(before._masks)[-NUM_LESSONS:])
            self._best_masks, self._rate = before._best_masks, before._rate
        self._num_forwards = 0
        self._wait = 0  # forwards until the next look
        self._spacing = 0  # forwards between the last two probes
        self._num_left = 0  # drafts that left since the last look

    def fits(self, settings: DecodeSettings) -> bool:
        """Whether what was seen still counts under these settings."""
        return self.basis == basis_of(settings)

    def feed(self, curve: Curve) -> Feed:
        """What the next forward feeds."""
        if self._wait <= 0:
            course = self._look(curve)
        else:
            self._wait -= 1
            course = self._course
        return best_option(self._chances, course, curve, may_branch=self._may_branch).feed

    def settle(
        self,
        emitted: Sequence[int],
        num_agreed: int,
        group: Sequence[Proposal],
        looked_up: Sequence[int],
        num_matching: int,
        curve: Curve,
    ) -> tuple[list[int], bool]:
        """Learn from a forward and say what to draft, and whether that was looked up.

        group: proposals behind the last emitted token. looked_up: what the text proposes there,
        behind ``num_matching`` tokens that were the same.
        """
        self._calibration.observe(emitted)
        self._num_forwards += 1
        self._num_left += num_agreed
        chain, text_chain = chains_of(group, looked_up, num_matching)
        self._calibration.expect(chain)
        num_sure = 0
        while num_sure < len(group) and group[num_sure].confidence >= self._tau:
            num_sure += 1
        masks = self._calibration.chances(chain[:num_sure])
        if group:
            self._masks.append(self._extended(masks) if len(masks) == len(group) else masks)
        text = self._calibration.chances(text_chain)
        self._calibration.expect(text_chain[: len(text) + 1])
        self._texts.append(text)
        self._chances = masks
        if text and self._best(text, curve) > self._best(masks, curve):
            self._chances = text
            return list(looked_up[: len(text)]), True
        return [proposal.token for proposal in group[: len(masks)]], False

    def cut(self, num_drafts: int) -> None:
        """So many drafts are in hand and no more: one of them ends the text."""
        del self._chances[num_drafts:]

    def _best(self, chances: Sequence[float], curve: Curve) -> float:
        return best_option(chances, self._course, curve, may_branch=self._may_branch).value

    def _extended(self, masks: list[float]) -> list[float]:
        """With a guess for the places further out, each trusted a little less than the one before
        it."""
        found = list(masks)
        before = found[-2] if len(found) > 1 else 1.0
        chance = found[-1] / before if before else 0.0
        while len(found) < self._most_masks:
            chance *= OUTWARD
            found.append(found[-1] * chance)
        return found

    def _look(self, curve: Curve) -> Course:
        """Weigh all numbers of masks anew; in a stretch without, probe."""
        has_found, self._num_left = self._num_left > 0, 0
        # Forwards without masks, or without a match, tell nothing of the other source.
        texts: Iterable[list[float]] = self._texts or [[]]
        count = max(len(self._masks), len(self._texts))
        samples = list(islice(zip(cycle(self._masks), cycle(texts), strict=False), count))
        last = self._best_masks
        near = {0, 1, last - 1, last, last + 1, self._most_masks}  # the last, for beyond a cliff
        rates = {
            masks: rate_of(masks, samples, curve, may_branch=self._may_branch, rate=self._rate)
            for masks in sorted(near)
            if 0 <= masks <= self._most_masks
        }
        plain = max(1.0, rates.pop(0))
        best = self._best_masks = max(rates, key=rates.__getitem__, default=0)
        self._rate = max(plain, rates.get(best, 0.0))
        if best and rates[best] >= MIN_GAIN * plain:
            self._course = Course.of(best, rates[best], curve)
            is_settled = best == last and self._num_forwards > NUM_SAMPLES
            self._wait, self._spacing = PATIENCE if is_settled else HASTE, 0
            return self._course
        was_drafting = self._course.num_masks > 0
        while len(self._masks) > NUM_PROBES:  # a probe that finds something must not be outvoted
            self._masks.popleft()
        self._course = Course(0, plain, 0.0)
        base = self._base_spacing(best, curve)
        if was_drafting or not best:
            self._wait = self._spacing = base
            return self._course
        self._spacing = base if has_found else min(max(base, 2 * self._spacing), MAX_SPACING)
        self._wait = self._spacing
        # As if proposals were worth what they cost: a probe feeds masks whatever they promise.
        return Course(best, plain, plain * curve.of(1 + best, best) + 1.0)

    def _base_spacing(self, num_masks: int, curve: Curve) -> int:
        """Forwards from probe to probe that keep the cost of probes below PROBE_SHARE."""
        if not num_masks:  # the model was trained to foresee nothing
            return MAX_SPACING
        forwards = math.ceil((curve.of(1 + num_masks, num_masks) - 1.0) / PROBE_SHARE)
        return max(MIN_SPACING, min(forwards, MAX_SPACING))


def basis_of(settings: DecodeSettings) -> tuple[object, ...]:
    """What settings must share for the same lessons to hold."""
    way = settings.tau, settings.metric, settings.groups, settings.lookup
    return *way, settings.temperature, settings.top_p
