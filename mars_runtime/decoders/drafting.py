"""How many drafts and masks a forward is worth: what promises the most tokens per second.

Two things decide it: what a forward of Q tokens costs on this device (``ForwardCosts``, measured)
and how often drafts turn out right, learnt from the row's own text.

- Unverified rows share a forward and one B (``BlockSizes``), chosen by how far the masks of each
  have foreseen so far (``Outlook``).
- In lossless mode (``Drafter``, one a row) every emitted token is AR's own, so whatever was
  predicted for its position is judged for nothing, drafted or not (``Calibration``). A draft is fed
  if the chance that it leaves pays for its positions at the rate of the run; masks are fed if what
  they propose pays for them later.

Where nothing pays, plain AR steps are taken, with a probe now and then.

That is the objective of least time. Where fewest passes are the objective, further positions are
taken to be nearly free, as they are on a GPU, as long as rows are ``PACE`` times as fast as AR by
the committed costs (``reference_curve``; ``Reserve``; ``BlockSizes``). Then nothing that a clock or
an earlier run says counts, so that a prompt takes the same passes on every machine. Pure numbers:
no tensors, model or clock.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import NamedTuple, Protocol

from mars_runtime.acceptance import Judgement
from mars_runtime.decoders.forward_costs import Curve, ForwardCosts, reference_curve
from mars_runtime.decoders.lookup import LONGEST
from mars_runtime.events import Proposal
from mars_runtime.settings import MAX_BLOCK_SIZE, MAX_DRAFTS, MAX_FED, DecodeSettings

MIN_GAIN = 1.02  # over AR: less than that is within the error of what is known
PROBE_SHARE = 0.025  # of the time, at most, goes into probes that find nothing
MAX_SPACING = 128  # forwards from probe to probe, at most

# Where fewest passes are the objective.
PACE = 0.9  # of AR's speed by the committed costs, that it may cost
LEAST_SHARE = 0.05  # of what further positions cost, that counts at least
ADVANCE, FULL = 2.0, 6.0  # AR steps in reserve at first, and from which on no more are counted

# Of unverified rows.
POSITION_MEMORY = 0.95  # what is left of an observation after one more that observed something
PRIOR_WEIGHT = 1.5  # a guess counts as so many observations
FIRST_POSITION = 0.6  # that the first draft leaves, before anything was seen
POSITION_OUTWARD = 0.93  # each position further out is trusted a little less than the one before it
SIZE_PATIENCE = 2  # further forwards that a choice above 1 stands

# Of verified rows.
NUM_SAMPLES = 20  # forwards by which the number of masks is chosen
NUM_LESSONS = 5  # of those, from the row before
NUM_PROBES = 2  # forwards with masks that count still in a stretch without
PATIENCE, HASTE = 16, 3  # forwards that a choice of masks stands, an old and a new one
MIN_SPACING = 8  # forwards from probe to probe, at least: a look costs time of its own
OUTWARD = 0.95  # each position further out is trusted a little less than the one before it
FIRST_GUESS = (0.55, 0.5)  # chance of the first mask's proposal, and of each further one

EDGES = (0.2, 0.4, 0.6, 0.8, 0.95)  # of confidence, between kinds of proposals
# Chances before anything was seen: of proposals by confidence; of the first token looked up, and of
# those behind one that was right, by the length of the match.
GUESSES = (
    *(0.1, 0.3, 0.45, 0.6, 0.75, 0.9),
    *(0.25, 0.55, 0.63, 0.7),
    *(0.65, 0.75, 0.78, 0.88),
)
FIRST_LOOKUP = len(EDGES) + 1
LATER_LOOKUP = FIRST_LOOKUP + LONGEST
ALONE, SECONDED, OPPOSED = range(3)  # what the other source of drafts says of the same position
DOUBT = 0.4  # how much of a doubt is left where both say the same; of a chance where they differ
GUESS_WEIGHT = 4.0  # a guess counts as so many predictions that were judged
FLOOR = 0.04  # a draft that leaves less often than this pays nowhere
LESSON_WEIGHT = 8.0  # and what another text taught for so many
MEMORY = 0.97  # what is left of a judgement after one more of the same kind

ALL_ROOTS = range(MAX_DRAFTS + 1)
Chain = list[tuple[int, int]]
"""Predictions of consecutive positions, each given those before it: (token, kind)."""


@dataclass(frozen=True, slots=True)
class Feed:
    """What a forward may feed for a row beside the tokens that left: at most ``num_drafts`` drafts,
    ``num_masks`` masks in a group; ``roots``: after which tokens a group stands, 0 for the last one
    that left, 1 for the first draft; None: after the last draft that is fed."""

    num_drafts: int
    num_masks: int
    roots: Collection[int] | None = None

    @classmethod
    def of(cls, settings: DecodeSettings, trained: int = MAX_BLOCK_SIZE) -> Feed:
        """What settings ask that leave nothing to be chosen. trained: the B that the model was
        trained with, which counts beside a draft model: there B is the draft's first of all."""
        if settings.method == "jacobi":
            return cls(settings.num_guesses, 0)
        num_drafts = MAX_DRAFTS if settings.is_verified else 0
        size = settings.num_proposals
        size = min(size, trained) if settings.method == "speculative" else size
        return cls(num_drafts, size - 1, ALL_ROOTS if settings.groups == "every" else None)


class Probes:
    """When to look anew at what pays. wait: forwards until the next look."""

    def __init__(self) -> None:
        self.wait = 0
        self._spacing = 0  # forwards between the last two probes

    def stand(self, patience: int) -> None:
        """What pays was found; it stands for so many further forwards."""
        self.wait, self._spacing = patience, 0

    def pause(self, base: int, *, is_probe: bool, has_found: bool) -> None:
        """Nothing pays. The next look is ``base`` forwards away, or where this one is a probe and
        the stretch before it found nothing, twice as far as the last one was."""
        if is_probe and not has_found:
            base = min(max(base, 2 * self._spacing), MAX_SPACING)
        self.wait = self._spacing = base


class Reserve:
    """What a row may spend on fewest passes: the time that AR would have taken for its tokens at
    ``PACE`` times its speed, less what its own forwards took, in AR steps."""

    def __init__(self) -> None:
        self._left = ADVANCE

    @property
    def share(self) -> float:
        """Of what further positions cost, what counts for the next forward: all of it where nothing
        is left, so that least time is the aim until something is."""
        return max(LEAST_SHARE, 1.0 - max(0.0, self._left) / FULL)

    def spend(self, cost: float) -> None:
        """A forward of so many AR steps."""
        self._left -= cost

    def earn(self, num_tokens: int) -> None:
        """Tokens that left."""
        self._left = min(FULL, self._left + num_tokens / PACE)


class Evidence:
    """What happened at each position behind AR's own token, given that all went well before it."""

    def __init__(self, max_running: int) -> None:
        self.taken = [0.0] * max_running
        self.refused = [0.0] * max_running

    def note(self, num_taken: int, is_refused: bool) -> None:
        """The first positions were taken, the one behind them perhaps refused. All else fades."""
        self.taken = [POSITION_MEMORY * count for count in self.taken]
        self.refused = [POSITION_MEMORY * count for count in self.refused]
        for position in range(num_taken):
            self.taken[position] += 1.0
        if is_refused:
            self.refused[num_taken] += 1.0

    def chances(self, first_guess: float) -> list[float]:
        """That each position is taken; one never seen is taken to be a little worse than the one
        before it."""
        found, guess = [], first_guess
        for taken, refused in zip(self.taken, self.refused, strict=True):
            chance = (taken + PRIOR_WEIGHT * guess) / (taken + refused + PRIOR_WEIGHT)
            found.append(chance)
            guess = POSITION_OUTWARD * chance
        return found


class Outlook:
    """How far the masks of one row foresee, by its own forwards under one tau, metric and mode.

    made: were drafts accepted by tau? agreed: did AR choose the same (``lossless`` alone asks)?
    num_found: tokens beyond AR's own that left so far.
    """

    def __init__(self, settings: DecodeSettings, depth: int) -> None:
        self._grounds = _grounds(settings)
        self._is_verified = settings.is_verified
        self._made, self._agreed = Evidence(depth), Evidence(depth)
        self.num_found = 0

    def fits(self, settings: DecodeSettings) -> bool:
        """Whether what was seen still counts under these settings."""
        return self._grounds == _grounds(settings)

    def observe(self, judgement: Judgement, num_fed_drafts: int, block_size: int) -> None:
        """Learn from one forward: its judgement, how many drafts it verified, the B in force."""
        num_agreed = judgement.num_agreed
        self.num_found += num_agreed
        if num_fed_drafts:
            self._agreed.note(num_agreed, num_agreed < num_fed_drafts)
        if block_size > 1 and num_agreed == num_fed_drafts:
            made = len(judgement.emitted) + len(judgement.drafts) - num_agreed - 1
            self._made.note(made, judgement.stop == "threshold")
            self.num_found += 0 if self._is_verified else made

    def chances(self) -> list[tuple[float, float]]:
        """For each position behind AR's token: that a draft is made there, and that AR agrees."""
        if not self._is_verified:
            return [(made, 1.0) for made in self._made.chances(FIRST_POSITION)]
        guess = math.sqrt(FIRST_POSITION)
        return list(zip(self._made.chances(guess), self._agreed.chances(guess), strict=True))


def _grounds(settings: DecodeSettings) -> tuple[object, ...]:
    adapted = settings.threshold, settings.target
    return settings.tau, settings.metric, settings.is_verified, adapted


class Masked(Protocol):
    """A row whose masks have an outlook, from the first time that B is left to be chosen."""

    outlook: Outlook | None


class BlockSizes:
    """Chooses the B of each forward for the rows that leave it to be chosen. They share one B,
    because they share the forward."""

    def __init__(self, costs: ForwardCosts) -> None:
        self._costs = costs
        self._choice = 1
        self._probes = Probes()
        self._num_found = -1  # by all rows, when last looked at; -1 is unlike any number

    def choose(self, asked: Sequence[tuple[Masked, DecodeSettings]]) -> int:
        """B of the next forward; ``asked`` are the rows concerned, at least one."""
        outlooks = [self._outlook(row, settings) for row, settings in asked]
        found = sum(outlook.num_found for outlook in outlooks)
        is_waiting = self._probes.wait > 0 and (self._choice > 1 or found == self._num_found)
        if is_waiting and self._num_found >= 0:
            self._probes.wait -= 1
            return self._choice
        has_found, self._num_found = found > self._num_found, found
        is_fewest = all(settings.aim == "passes" for _, settings in asked)
        return self._look(outlooks, has_found, is_fewest)

    def _outlook(self, row: Masked, settings: DecodeSettings) -> Outlook:
        """That of the row; a new one, and a look at once, when it begins or was steered."""
        if row.outlook is None or not row.outlook.fits(settings):
            row.outlook = Outlook(settings, self._costs.depth)
            self._num_found = -1
        return row.outlook

    def _look(self, outlooks: Sequence[Outlook], has_found: bool, is_fewest: bool) -> int:
        """Weigh all B again; in a stretch of AR steps, probe."""
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
        self._choice = 1  # AR from here on
        base = self._base_spacing(best, curve)
        self._probes.pause(base, is_probe=is_probe, has_found=has_found)
        return best if is_probe else 1

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
    at_most = [1.0] * size  # position k: chance that no row has more than k drafts
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
    """What masks, and what the text behind ``num_matching`` tokens that were the same, say of the
    positions to be written next. A kind tells what the other says, up to the first difference."""
    shared = min(len(group), len(looked_up))
    parting = 0
    while parting < shared and group[parting].token == looked_up[parting]:
        parting += 1
    views = [SECONDED] * parting + [OPPOSED] * (parting < shared)
    views += [ALONE] * (max(len(group), len(looked_up)) - len(views))
    masks = [
        (proposal.token, bisect_right(EDGES, proposal.confidence) + view * len(GUESSES))
        for proposal, view in zip(group, views, strict=False)
    ]
    text = []
    kind = FIRST_LOOKUP + num_matching - 1
    for token, view in zip(looked_up, views, strict=False):
        text.append((token, kind + view * len(GUESSES)))
        kind = LATER_LOOKUP + num_matching - 1
    return masks, text


class Calibration:
    """Chances by kind, and the predictions whose positions are not written yet."""

    def __init__(self, before: Calibration | None = None) -> None:
        """``before``: of another text; what was found there counts a little more than a guess."""
        if before is None:
            seconded = [1.0 - DOUBT * (1.0 - guess) for guess in GUESSES]
            opposed = [DOUBT * guess for guess in GUESSES]
            guesses = (*GUESSES, *seconded, *opposed)
            self._right = [guess * GUESS_WEIGHT for guess in guesses]
            self._seen = [GUESS_WEIGHT] * len(guesses)
        else:
            counts = list(zip(before._right, before._seen, strict=True))
            self._seen = [min(seen, LESSON_WEIGHT) for _, seen in counts]
            self._right = [right * min(1.0, LESSON_WEIGHT / seen) for right, seen in counts]
        self._open: list[Chain] = []

    def chances(self, chain: Iterable[tuple[int, int]]) -> list[float]:
        """That the first 1, 2, 3 ... predictions are all right, as far as that is above FLOOR."""
        found, all_right = [], 1.0
        for _, kind in chain:
            all_right *= self._right[kind] / self._seen[kind]
            if all_right < FLOOR:
                break
            found.append(all_right)
        return found

    def expect(self, chain: Chain) -> None:
        """Predictions for the positions to be written next."""
        if chain:
            self._open.append(chain)

    def observe(self, tokens: Sequence[int]) -> None:
        """These tokens were written: judge what was predicted for their positions. A chain ends
        with its first wrong prediction, for what was predicted behind it continued another text."""
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
    roots: tuple[int, ...]

    @property
    def feed(self) -> Feed:
        """What is fed."""
        return Feed(*self[4:])


def best_option(
    chances: Sequence[float], course: Course, curve: Curve, *, may_branch: bool
) -> Option:
    """The best way to feed a forward with these drafts in hand.

    chances: that the first 1, 2, 3 ... drafts all leave. Masks stand nowhere, after the last draft,
    or where they may branch after those tokens that are the likeliest to be the last ones to leave:
    a group is of use where all before it leaves and nothing behind it does.
    """
    plain, extra, _ = curve  # what follows runs thousands of times a second
    masks, rate, worth = course.num_masks, course.rate, course.worth
    most, gain, alive = len(chances), 0.0, 1.0
    best = -math.inf
    found: tuple[float, float, int, int, int] = (0.0, 0.0, 1, 0, 0)
    ends: list[tuple[float, int]] = []  # chance that the text leaves up to a token, and which
    roots: list[tuple[float, int]] = []
    for num_drafts in range(most + 1):
        if num_drafts:
            ends.append((alive - chances[num_drafts - 1], num_drafts - 1))
            alive = chances[num_drafts - 1]
            gain += alive
        value = gain - rate * plain[num_drafts]
        if value + (most - num_drafts) * alive + worth < best:
            break  # costs only rise from here on
        if value > best:
            best, found, roots = value, (gain, 0.0, num_drafts + 1, num_drafts, 0), []
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
                best, found = value, (gain, going_on, width, num_drafts, masks)
                roots = places[:count]
    return Option(best, *found, tuple(sorted([root for _, root in roots])))


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


class Stake(NamedTuple):
    """What a row of a batch wants from the next forward.

    width: tokens fed, and whether masks are among them. promise: tokens that they are worth to the
    row. rate: tokens of the row that leave for the cost of one AR step.
    """

    width: int
    has_masks: bool
    promise: float
    rate: float


PLAIN = Stake(1, False, 0.0, 1.0)
"""A row that feeds one token, as AR does."""


def agreed_width(stakes: Sequence[Stake], curve: Curve) -> int:
    """How many tokens per row pay for the batch as a whole.

    A forward costs all of its rows as much as the widest one, so a row that drafts alone takes time
    from the others. Rows that want more than the width that is returned feed one token.
    """
    rate = sum(stake.rate for stake in stakes)

    def gain(width: int) -> float:
        kept = [stake for stake in stakes if stake.width <= width]
        masks = 1 if any(stake.has_masks for stake in kept) else 0
        return sum(stake.promise for stake in kept) - rate * (curve.of(width, masks) - 1.0)

    return max(sorted({1, *(stake.width for stake in stakes)}), key=gain)


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
        guess = [FIRST_GUESS[0] * FIRST_GUESS[1] ** position for position in range(most_masks)]
        self._masks: deque[list[float]] = deque([guess], NUM_SAMPLES)
        self._texts: deque[list[float]] = deque(maxlen=NUM_SAMPLES)
        self._chances: list[float] = []  # of the drafts in hand
        self._course = AR
        self._best_masks, self._rate = min(2, most_masks), 1.0  # as of the last look
        if before is not None:
            self._masks.extend(list(before._masks)[-NUM_LESSONS:])
            self._best_masks, self._rate = before._best_masks, before._rate
        self._num_forwards = 0
        self._probes = Probes()
        self._num_left = 0  # drafts that left since the last look
        self._reserve = Reserve() if settings.aim == "passes" else None
        self.stake = PLAIN

    def fits(self, settings: DecodeSettings) -> bool:
        """Whether what was seen still counts under these settings."""
        return self.basis == basis_of(settings)

    @property
    def is_taught(self) -> bool:
        """Whether later rows may learn from this one: where passes must repeat, they may not."""
        return self._reserve is None

    def feed(self, curve: Curve) -> Feed:
        """What the next forward feeds."""
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
        """What forwards cost, as far as it counts for the aim."""
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
        """Learn from a forward and say what to draft, and whether that was looked up.

        group: proposals behind the last emitted token. looked_up: what the text proposes there,
        behind ``num_matching`` tokens that were the same.
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
        """So many drafts are in hand and no more: one of them ends the text."""
        del self._chances[num_drafts:]

    def _best(self, chances: Sequence[float], curve: Curve) -> float:
        return best_option(chances, self._course, curve, may_branch=self._may_branch).value

    def _extended(self, masks: list[float]) -> list[float]:
        """With a guess for the positions further out, each trusted a little less than the one
        before it."""
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
            self._probes.stand(PATIENCE if is_settled else HASTE)
            return self._course
        is_probe = best > 0 and self._course.num_masks == 0
        while len(self._masks) > NUM_PROBES:  # a probe that finds something must not be outvoted
            self._masks.popleft()
        self._course = Course(0, plain, 0.0)
        base = self._base_spacing(best, curve)
        self._probes.pause(base, is_probe=is_probe, has_found=has_found)
        if not is_probe:
            return self._course
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
    way = settings.tau, settings.metric, settings.groups, settings.lookup, settings.aim
    penalties = settings.repetition_penalty, settings.presence_penalty, settings.frequency_penalty
    filters = settings.top_k, settings.top_p, settings.min_p
    return *way, settings.temperature, *filters, *penalties, settings.logit_bias
