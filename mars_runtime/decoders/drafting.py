"""Decide how many drafts and masks each forward feeds, so that tokens per second are highest.

The decision uses two quantities: the cost of a forward of Q tokens on this device
(``ForwardCosts``, measured) and the acceptance rate of drafts, estimated from the row's own text.

- Unverified rows share a forward and one B (``BlockSizes``), chosen from how many mask predictions
  of each row were accepted so far (``Outlook``).
- In lossless mode each row has a ``Drafter``. Every emitted token is AR's own token, so every
  prediction made for its position can be scored for free, drafted or not (``Calibration``). A draft
  is fed if its acceptance probability pays for its position at the current token rate. Masks are
  fed if the drafts they propose pay for them in a later forward.

Where nothing pays, rows take plain AR steps, with an occasional probe.

This is the objective ``time``. With the objective ``passes``, extra positions are treated as nearly
free (as on a GPU) as long as the row runs at ``PACE`` times AR's speed or faster by the committed
costs (``reference_curve``; see ``Reserve`` and ``BlockSizes``). That objective ignores the clock,
so a prompt takes the same forward passes on every machine.

This module works on plain numbers: it uses no tensors, model or clock.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import NamedTuple, Protocol

from mars_runtime.acceptance import Acceptance
from mars_runtime.decoders.forward_costs import Curve, ForwardCosts, reference_curve
from mars_runtime.decoders.lookup import LONGEST
from mars_runtime.events import Proposal
from mars_runtime.settings import MAX_BLOCK_SIZE, MAX_DRAFTS, MAX_FED, DecodeSettings

MIN_GAIN = 1.02  # minimum speed-up over AR; a smaller gain is within the error of the estimates
PROBE_SHARE = 0.025  # upper bound on the share of time spent on probes that find nothing
MAX_SPACING = 128  # maximum number of forwards between probes

# Constants of the objective "passes".
PACE = 0.9  # minimum speed relative to AR, by the committed costs
LEAST_SHARE = 0.05  # minimum share of the cost of extra positions that is counted
ADVANCE, FULL = 2.0, 6.0  # initial and maximum reserve, in AR steps

# Constants of unverified rows.
POSITION_MEMORY = 0.95  # decay of earlier observations with each new one of the same row
PRIOR_WEIGHT = 1.5  # weight of a prior guess, in observations
FIRST_POSITION = 0.6  # prior acceptance probability of the first draft
POSITION_OUTWARD = 0.93  # decay of the prior per position further out
SIZE_PATIENCE = 2  # number of forwards that a choice of B above 1 is kept

# Constants of verified rows.
NUM_SAMPLES = 20  # number of recent forwards used to choose the number of masks
NUM_PROBES = 2  # number of forwards with masks that still count in a stretch without masks
PATIENCE, HASTE = 16, 3  # number of forwards that a choice of masks is kept: confirmed, new
MIN_SPACING = 8  # minimum number of forwards between probes: choosing takes time itself
OUTWARD = 0.95  # decay of the probability per position further out
# Probability that the first mask's proposal is right, and each further one.
FIRST_GUESS = (0.55, 0.5)

EDGES = (0.2, 0.4, 0.6, 0.8, 0.95)  # confidence boundaries between kinds of proposals
# Prior probabilities: of mask proposals by confidence; of the first prompt-lookup token by match
# length; of later lookup tokens (given that those before were right) by match length.
GUESSES = (
    *(0.1, 0.3, 0.45, 0.6, 0.75, 0.9),
    *(0.25, 0.55, 0.63, 0.7),
    *(0.65, 0.75, 0.78, 0.88),
)
FIRST_LOOKUP = len(EDGES) + 1
LATER_LOOKUP = FIRST_LOOKUP + LONGEST
GUESS_WEIGHT = 4.0  # weight of a prior guess, in scored predictions
FLOOR = 0.04  # minimum acceptance probability of a draft: below this it never pays
MEMORY = 0.97  # decay of earlier scores with each new one of the same kind

ALL_ROOTS = range(MAX_DRAFTS + 1)
Chain = list[tuple[int, int]]
"""Predictions of consecutive positions as (token, kind), each conditional on those before it."""


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """How many drafts and masks a forward may feed for a row, besides its emitted tokens.

    num_drafts: maximum number of drafts. num_masks: masks per group. roots: the tokens that a group
    follows, where 0 is the last emitted token and 1 the first draft; None means that one group
    follows the last draft that is fed.
    """

    num_drafts: int
    num_masks: int
    roots: Collection[int] | None = None

    @classmethod
    def of(cls, settings: DecodeSettings, trained: int = MAX_BLOCK_SIZE) -> FeedLimits:
        """Return what settings ask for that leave no choice to this module.

        trained: the B that the model was trained with. It caps B with a draft model, because there
        B belongs to the draft model.
        """
        if settings.method == "jacobi":
            return cls(settings.num_guesses, 0)
        num_drafts = MAX_DRAFTS if settings.is_verified else 0
        size = settings.num_proposals
        size = min(size, trained) if settings.method == "speculative" else size
        return cls(num_drafts, size - 1, ALL_ROOTS if settings.mask_layout == "every" else None)


class Probes:
    """Schedule when to choose again. ``wait`` is the number of forwards until then."""

    def __init__(self) -> None:
        self.wait = 0
        self._spacing = 0  # forwards between the last two probes

    def stand(self, patience: int) -> None:
        """Keep a choice that pays for ``patience`` further forwards."""
        self.wait, self._spacing = patience, 0

    def pause(self, base: int, *, is_probe: bool, has_found: bool) -> None:
        """Schedule the next probe after a choice of plain AR.

        It comes after ``base`` forwards. If this forward was a probe and the stretch before it
        found nothing, the spacing doubles, up to MAX_SPACING.
        """
        if is_probe and not has_found:
            base = min(max(base, 2 * self._spacing), MAX_SPACING)
        self.wait = self._spacing = base


class Reserve:
    """Time budget of a row under the objective ``passes``, in AR steps.

    The budget grows by the time AR would take for the row's tokens at ``PACE`` times its speed, and
    shrinks by the time of the row's own forwards.
    """

    def __init__(self) -> None:
        self._left = ADVANCE

    @property
    def share(self) -> float:
        """Share of the cost of extra positions that counts for the next forward.

        It is 1 when the budget is used up, so the row then minimises time until it has a budget
        again.
        """
        return max(LEAST_SHARE, 1.0 - max(0.0, self._left) / FULL)

    def spend(self, cost: float) -> None:
        """Subtract the cost of a forward, in AR steps."""
        self._left -= cost

    def earn(self, num_tokens: int) -> None:
        """Add the budget earned by emitted tokens."""
        self._left = min(FULL, self._left + num_tokens / PACE)


class AcceptanceCounts:
    """Acceptance counts per position behind AR's own token, given that all before it were
    accepted."""

    def __init__(self, max_running: int) -> None:
        self.taken = [0.0] * max_running
        self.refused = [0.0] * max_running

    def note(self, num_taken: int, is_refused: bool) -> None:
        """Record ``num_taken`` accepted positions and whether the next one was rejected; decay the
        rest."""
        self.taken = [POSITION_MEMORY * count for count in self.taken]
        self.refused = [POSITION_MEMORY * count for count in self.refused]
        for position in range(num_taken):
            self.taken[position] += 1.0
        if is_refused:
            self.refused[num_taken] += 1.0

    def chances(self, first_guess: float) -> list[float]:
        """Return the acceptance probability of each position.

        The prior of a position is a little below the probability of the position before it.
        """
        probabilities, guess = [], first_guess
        for taken, refused in zip(self.taken, self.refused, strict=True):
            chance = (taken + PRIOR_WEIGHT * guess) / (taken + refused + PRIOR_WEIGHT)
            probabilities.append(chance)
            guess = POSITION_OUTWARD * chance
        return probabilities


class Outlook:
    """Acceptance statistics of one row's masks, for one tau, metric and mode.

    made: whether drafts reached tau. agreed: whether AR chose the same token (lossless mode only).
    num_found: tokens emitted so far in addition to AR's own.
    """

    def __init__(self, settings: DecodeSettings, depth: int) -> None:
        self._grounds = _grounds(settings)
        self._is_verified = settings.is_verified
        self._made, self._agreed = AcceptanceCounts(depth), AcceptanceCounts(depth)
        self.num_found = 0

    def fits(self, settings: DecodeSettings) -> bool:
        """Return whether the statistics are valid for these settings."""
        return self._grounds == _grounds(settings)

    def observe(self, judgement: Acceptance, num_fed_drafts: int, block_size: int) -> None:
        """Learn from one forward: its judgement, its number of verified drafts and its B."""
        num_agreed = judgement.num_agreed
        self.num_found += num_agreed
        if num_fed_drafts:
            self._agreed.note(num_agreed, num_agreed < num_fed_drafts)
        if block_size > 1 and num_agreed == num_fed_drafts:
            made = len(judgement.emitted) + len(judgement.drafts) - num_agreed - 1
            self._made.note(made, judgement.stop == "threshold")
            self.num_found += 0 if self._is_verified else made

    def chances(self) -> list[tuple[float, float]]:
        """Return (probability of a draft, probability that AR agrees) per position behind AR's
        token."""
        if not self._is_verified:
            return [(made, 1.0) for made in self._made.chances(FIRST_POSITION)]
        guess = math.sqrt(FIRST_POSITION)
        return list(zip(self._made.chances(guess), self._agreed.chances(guess), strict=True))


def _grounds(settings: DecodeSettings) -> tuple[object, ...]:
    adapted = settings.tau_policy, settings.agreement_target
    return settings.tau, settings.metric, settings.is_verified, adapted


class Masked(Protocol):
    """A row with an outlook, which is created when B is first chosen automatically."""

    outlook: Outlook | None


class BlockSizes:
    """Choose one B per forward for all rows with automatic B, since they share the forward."""

    def __init__(self, costs: ForwardCosts) -> None:
        self._costs = costs
        self._choice = 1
        self._probes = Probes()
        self._num_found = -1  # of all rows at the last choice; -1 forces a new choice

    def choose(self, rows: Sequence[tuple[Masked, DecodeSettings]]) -> int:
        """Return B of the next forward. ``rows`` are those with automatic B, at least one."""
        outlooks = [self._outlook(row, settings) for row, settings in rows]
        num_found = sum(outlook.num_found for outlook in outlooks)
        is_waiting = self._probes.wait > 0 and (self._choice > 1 or num_found == self._num_found)
        if is_waiting and self._num_found >= 0:
            self._probes.wait -= 1
            return self._choice
        has_found, self._num_found = num_found > self._num_found, num_found
        is_fewest = all(settings.auto_objective == "passes" for _, settings in rows)
        return self._look(outlooks, has_found, is_fewest)

    def _outlook(self, row: Masked, settings: DecodeSettings) -> Outlook:
        """Return the row's outlook; create one and force a new choice if the settings changed."""
        if row.outlook is None or not row.outlook.fits(settings):
            row.outlook = Outlook(settings, self._costs.depth)
            self._num_found = -1
        return row.outlook

    def _look(self, outlooks: Sequence[Outlook], has_found: bool, is_fewest: bool) -> int:
        """Evaluate every B and choose one; in a stretch of AR steps, probe."""
        curve = reference_curve() if is_fewest else self._costs.curve(len(outlooks))
        chances = [outlook.chances() for outlook in outlooks]
        sizes = range(2, self._costs.depth + 1)
        rates = {size: rate(size, chances, curve) for size in sizes}
        if is_fewest:
            free = curve.at(LEAST_SHARE)
            rates = {
                size: rate(size, chances, free if rates[size] >= PACE else curve) for size in sizes
            }
        best = max(rates, key=rates.__getitem__, default=1)
        if best > 1 and rates[best] >= MIN_GAIN:
            self._choice = best
            self._probes.stand(SIZE_PATIENCE)
            return best
        is_probe = self._choice == 1 and best > 1
        self._choice = 1  # plain AR until the next probe
        base = self._base_spacing(best, curve)
        self._probes.pause(base, is_probe=is_probe, has_found=has_found)
        return best if is_probe else 1

    def _base_spacing(self, size: int, curve: Curve) -> int:
        """Return the forwards between probes that keep their cost below PROBE_SHARE.

        A draft of a probe is fed again for verification, so a probe may cost twice.
        """
        if size == 1:  # the model was trained to predict one token only
            return MAX_SPACING
        return min(MAX_SPACING, math.ceil(2 * (curve.of(size, size - 1) - 1.0) / PROBE_SHARE))


def rate(size: int, rows: Sequence[Sequence[tuple[float, float]]], curve: Curve) -> float:
    """Return tokens per second with B = ``size``, relative to plain AR steps of the same rows.

    rows: ``Outlook.chances`` of each row. A forward feeds [AR's token | drafts of the previous
    forward | masks], with B - 1 masks behind the row with the most drafts. It emits one token and
    the drafts that AR confirms. A rejected draft invalidates what was drafted behind it, so the
    next forward has nothing to verify.
    """
    tokens = 0.0
    at_most = [1.0] * size  # position k: probability that no row has more than k drafts
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
        for position, chance in enumerate(more):
            at_most[position] *= 1.0 - chance / (1.0 + missed)
    cost = before = 0.0
    for drafts, chance in enumerate(at_most):
        cost += (chance - before) * curve.of(drafts + size, size - 1)
        before = chance
    return tokens / (cost * len(rows))


def chains_of(
    group: Sequence[Proposal], looked_up: Sequence[int], num_matching: int
) -> tuple[Chain, Chain]:
    """Return the chains of predictions by masks and by prompt lookup for the next positions.

    num_matching: length of the match behind ``looked_up``.
    """
    masks = [(proposal.token, bisect_right(EDGES, proposal.confidence)) for proposal in group]
    text = []
    kind = FIRST_LOOKUP + num_matching - 1
    for token in looked_up:
        text.append((token, kind))
        kind = LATER_LOOKUP + num_matching - 1
    return masks, text


class Calibration:
    """Acceptance probabilities by kind of prediction, and predictions not scored yet."""

    def __init__(self) -> None:
        self._right = [guess * GUESS_WEIGHT for guess in GUESSES]
        self._seen = [GUESS_WEIGHT] * len(GUESSES)
        self._open: list[Chain] = []

    def chances(self, chain: Iterable[tuple[int, int]]) -> list[float]:
        """Return the probabilities that the first 1, 2, 3 ... predictions are all right, until
        FLOOR."""
        probabilities, all_right = [], 1.0
        for _, kind in chain:
            all_right *= self._right[kind] / self._seen[kind]
            if all_right < FLOOR:
                break
            probabilities.append(all_right)
        return probabilities

    def expect(self, chain: Chain) -> None:
        """Store predictions for the next positions, to be scored by ``observe``."""
        if chain:
            self._open.append(chain)

    def observe(self, tokens: Sequence[int]) -> None:
        """Score stored predictions against the tokens that were written.

        A chain ends with its first wrong prediction, because the later ones continued another text.
        """
        open_ones, self._open = self._open, []
        for chain in open_ones:
            for (predicted, kind), token in zip(chain, tokens, strict=False):
                is_right = predicted == token
                self._right[kind] = MEMORY * self._right[kind] + is_right
                self._seen[kind] = MEMORY * self._seen[kind] + 1.0
                if not is_right:
                    break
            else:
                if len(chain) > len(tokens):
                    self._open.append(chain[len(tokens) :])


@dataclass(frozen=True, slots=True)
class Course:
    """Parameters that a row uses for several forwards.

    num_masks: masks per group. rate: tokens emitted per cost of one AR step. worth: value, in
    tokens, of starting a forward with proposals, which is the cost of computing them otherwise.
    """

    num_masks: int
    rate: float
    worth: float

    @classmethod
    def of(cls, num_masks: int, rate: float, curve: Curve) -> Course:
        return cls(num_masks, rate, max(0.0, rate * curve.of(1 + num_masks, num_masks) - 1.0))


AR = Course(0, 1.0, 0.0)


class Option(NamedTuple):
    """A candidate for what a forward feeds.

    value: expected tokens minus cost at the course's rate. gain: expected number of accepted
    drafts. going_on: probability that the next forward starts with proposals. width: tokens fed.
    The other fields are those of ``FeedLimits``.
    """

    value: float
    gain: float
    going_on: float
    width: int
    num_drafts: int
    num_masks: int
    roots: tuple[int, ...]

    @property
    def feed(self) -> FeedLimits:
        """The candidate's drafts and masks as a ``FeedLimits``."""
        return FeedLimits(*self[4:])


def best_option(
    chances: Sequence[float], course: Course, curve: Curve, *, may_branch: bool
) -> Option:
    """Return the best candidate with these drafts available.

    chances: probabilities that the first 1, 2, 3 ... drafts are all accepted. Masks are fed
    nowhere, after the last draft or, with ``may_branch``, after the tokens that are most likely to
    be the last accepted ones: a group is useful if all tokens before it are accepted and the next
    one is not.
    """
    plain, extra, _ = curve  # unpacked once: the loop runs thousands of times a second
    masks, rate, worth = course.num_masks, course.rate, course.worth
    most_drafts, gain, alive = len(chances), 0.0, 1.0
    best = -math.inf
    best_fields: tuple[float, float, int, int, int] = (0.0, 0.0, 1, 0, 0)
    # Probability that a token is the last accepted one, and its number.
    ends: list[tuple[float, int]] = []
    roots: list[tuple[float, int]] = []
    for num_drafts in range(most_drafts + 1):
        if num_drafts:
            ends.append((alive - chances[num_drafts - 1], num_drafts - 1))
            alive = chances[num_drafts - 1]
            gain += alive
        value = gain - rate * plain[num_drafts]
        if value + (most_drafts - num_drafts) * alive + worth < best:
            break  # costs only increase from here
        if value > best:
            best, best_fields, roots = value, (gain, 0.0, num_drafts + 1, num_drafts, 0), []
        if not masks:
            continue
        places = [(alive, num_drafts)]
        if may_branch and num_drafts:
            places = sorted([*ends, *places], reverse=True)
        width, going_on = num_drafts + 1, 0.0
        for count, (chance, _) in enumerate(places, 1):
            width += masks
            if width > MAX_FED:
                break
            going_on += chance
            value = gain - rate * (plain[width - 1] + extra) + going_on * worth
            if value > best:
                best, best_fields = value, (gain, going_on, width, num_drafts, masks)
                roots = places[:count]
    return Option(best, *best_fields, tuple(sorted([root for _, root in roots])))


def rate_of(
    num_masks: int,
    samples: Sequence[tuple[Sequence[float], Sequence[float]]],
    curve: Curve,
    *,
    may_branch: bool,
    rate: float,
) -> float:
    """Return the expected tokens per cost of one AR step, with ``num_masks`` masks per group.

    samples: acceptance probabilities of mask and lookup drafts in recent forwards. rate: the
    current rate; only drafts that raise it are fed. A forward that starts without proposals has no
    drafts and feeds one group of masks.
    """
    course = Course.of(num_masks, rate, curve)
    anew = curve.of(1 + num_masks, num_masks)
    tokens = cost = 0.0
    for masks, text in samples:
        option = best_option(masks[:num_masks], course, curve, may_branch=may_branch)
        if text:
            alternative = best_option(text, course, curve, may_branch=may_branch)
            option = alternative if alternative.value > option.value else option
        again = 1.0 - option.going_on if num_masks else 0.0
        tokens += 1.0 + option.gain + again
        cost += curve.of(option.width, option.num_masks) + again * anew
    return tokens / cost


class Stake(NamedTuple):
    """What a row of a batch requests from the next forward.

    width: tokens fed. has_masks: whether masks are among them. promise: expected tokens that they
    gain. rate: tokens of the row per cost of one AR step.
    """

    width: int
    has_masks: bool
    promise: float
    rate: float


PLAIN = Stake(1, False, 0.0, 1.0)
"""The stake of a row that feeds one token, like AR."""


def agreed_width(stakes: Sequence[Stake], curve: Curve) -> int:
    """Return the number of tokens per row that pays for the batch as a whole.

    A forward costs every row as much as the widest one, so a single row that drafts slows down the
    others. Rows that request more than the returned width feed one token.
    """
    rate = sum(stake.rate for stake in stakes)

    def gain(width: int) -> float:
        drafting = [stake for stake in stakes if stake.width <= width]
        masks = 1 if any(stake.has_masks for stake in drafting) else 0
        return sum(stake.promise for stake in drafting) - rate * (curve.of(width, masks) - 1.0)

    return max(sorted({1, *(stake.width for stake in stakes)}), key=gain)


class Drafter:
    """Choose drafts and masks for one lossless row, for one ``basis_of`` its settings."""

    def __init__(self, settings: DecodeSettings, most_masks: int) -> None:
        """most_masks: maximum masks per group, from the model's training; 0 without mask token."""
        self.basis = basis_of(settings)
        self._may_branch = settings.mask_layout == "every"
        self._tau = settings.tau
        self._most_masks = most_masks
        self._calibration = Calibration()
        guess = [FIRST_GUESS[0] * FIRST_GUESS[1] ** position for position in range(most_masks)]
        self._masks: deque[list[float]] = deque([guess], NUM_SAMPLES)
        self._texts: deque[list[float]] = deque(maxlen=NUM_SAMPLES)
        self._chances: list[float] = []  # of the current drafts
        self._course = AR
        self._best_masks, self._rate = min(2, most_masks), 1.0  # of the last choice
        self._num_forwards = 0
        self._probes = Probes()
        self._num_left = 0  # accepted drafts since the last choice
        self._reserve = Reserve() if settings.auto_objective == "passes" else None
        self.stake = PLAIN

    def fits(self, settings: DecodeSettings) -> bool:
        """Return whether the statistics are valid for these settings."""
        return self.basis == basis_of(settings)

    def feed(self, curve: Curve) -> FeedLimits:
        """Return what the next forward feeds."""
        weighed = self._weighed(curve)
        if self._probes.wait <= 0:
            course = self._look(weighed)
        else:
            self._probes.wait -= 1
            course = self._course
        chances = self._chances
        if not curve.is_sure:
            chances, course = [], AR
        option = best_option(chances, course, weighed, may_branch=self._may_branch)
        self.stake = Stake(
            option.width, bool(option.num_masks), option.gain + option.going_on * course.worth,
            course.rate,
        )  # fmt: skip
        if self._reserve is not None:
            self._reserve.spend(curve.of(option.width, option.num_masks))
        return option.feed

    def _weighed(self, curve: Curve) -> Curve:
        """Return the costs of forwards, weighted by the objective."""
        return curve if self._reserve is None else curve.at(self._reserve.share)

    def settle(
        self,
        emitted: Sequence[int],
        num_agreed: int,
        group: Sequence[Proposal],
        looked_up: Sequence[int],
        num_matching: int,
        curve: Curve,
    ) -> tuple[list[int], bool]:
        """Learn from a forward; return the next drafts and whether they come from prompt lookup.

        group: mask proposals behind the last emitted token. looked_up: tokens that prompt lookup
        proposes there, behind a match of ``num_matching`` tokens.
        """
        curve = self._weighed(curve)
        if self._reserve is not None:
            self._reserve.earn(len(emitted))
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
        """Truncate the current drafts to ``num_drafts``, because the text ends there."""
        del self._chances[num_drafts:]

    def _best(self, chances: Sequence[float], curve: Curve) -> float:
        return best_option(chances, self._course, curve, may_branch=self._may_branch).value

    def _extended(self, masks: list[float]) -> list[float]:
        """Extend chances to all masks, decaying the probability by OUTWARD at each position."""
        extended = list(masks)
        before = extended[-2] if len(extended) > 1 else 1.0
        chance = extended[-1] / before if before else 0.0
        while len(extended) < self._most_masks:
            chance *= OUTWARD
            extended.append(extended[-1] * chance)
        return extended

    def _look(self, curve: Curve) -> Course:
        """Evaluate the candidate numbers of masks and choose one; in a stretch without masks,
        probe."""
        has_found, self._num_left = self._num_left > 0, 0
        # A forward without masks, or without a match, has no sample of that source: reuse earlier
        # ones.
        texts: Iterable[list[float]] = self._texts or [[]]
        count = max(len(self._masks), len(self._texts))
        samples = list(islice(zip(cycle(self._masks), cycle(texts), strict=False), count))
        last = self._best_masks
        near = {0, 1, last - 1, last, last + 1, self._most_masks}  # the largest, to see past a dip
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
            self._probes.stand(PATIENCE if is_settled else HASTE)
            return self._course
        is_probe = best > 0 and self._course.num_masks == 0
        # Few old samples, so that they do not outvote a successful probe.
        while len(self._masks) > NUM_PROBES:
            self._masks.popleft()
        self._course = Course(0, plain, 0.0)
        base = self._base_spacing(best, curve)
        self._probes.pause(base, is_probe=is_probe, has_found=has_found)
        if not is_probe:
            return self._course
        # Value proposals at their cost, so that a probe feeds masks whatever they are expected to
        # gain.
        return Course(best, plain, plain * curve.of(1 + best, best) + 1.0)

    def _base_spacing(self, num_masks: int, curve: Curve) -> int:
        """Return the forwards between probes that keep their cost below PROBE_SHARE."""
        if not num_masks:  # the model was trained to predict one token only
            return MAX_SPACING
        forwards = math.ceil((curve.of(1 + num_masks, num_masks) - 1.0) / PROBE_SHARE)
        return max(MIN_SPACING, min(forwards, MAX_SPACING))


def basis_of(settings: DecodeSettings) -> tuple[object, ...]:
    """Return the settings that must be equal for statistics of one row to be valid for another."""
    drafting = (
        settings.tau,
        settings.metric,
        settings.mask_layout,
        settings.lookup,
        settings.auto_objective,
    )
    penalties = settings.repetition_penalty, settings.presence_penalty, settings.frequency_penalty
    filters = settings.top_k, settings.top_p, settings.min_p
    return *drafting, settings.temperature, *filters, *penalties, settings.logit_bias
