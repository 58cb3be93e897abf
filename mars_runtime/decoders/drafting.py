"""Decide how many drafts and masks each forward pass feeds, to maximise tokens per second.

The decision uses two quantities: the measured cost of a forward pass of Q tokens on this device
(``ForwardCosts``), and the acceptance rate of drafts, estimated from the row's own text.

- Unverified rows share one B (``BlockSizes``). It is chosen from how many mask proposals of each
  row were accepted so far (``AcceptanceEstimate``).
- In lossless mode each row has a ``Drafter``. Every emitted token is AR's own token, so every
  earlier prediction for its position can be scored for free, drafted or not (``Calibration``). A
  draft is fed if its acceptance probability justifies the cost of its position at the current token
  rate. Masks are fed if the drafts that they propose justify their cost in a later forward pass.

If no draft or mask is worth its cost, rows take plain AR steps, and from time to time a probe tries
to draft again.

These are the rules of the objective ``time``. With the objective ``passes``, extra positions count
as nearly free (as on a GPU) as long as the row is at least MIN_SPEED times as fast as AR. The speed
is computed from the costs in ``reference_curve``, not measured (see ``TimeBudget`` and
``BlockSizes``). This objective does not depend on the clock, so a prompt takes the same forward
passes on every machine.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import NamedTuple, Protocol

from mars_runtime.acceptance import accept_prefix
from mars_runtime.decoders.decision import Acceptance
from mars_runtime.decoders.forward_costs import Curve, ForwardCosts, reference_curve
from mars_runtime.decoders.lookup import MAX_MATCH
from mars_runtime.decoders.methods import MAX_BLOCK_SIZE, MAX_DRAFTS
from mars_runtime.runs.events import Proposal
from mars_runtime.settings import MAX_FED, DecodeSettings

MIN_GAIN = 1.02  # minimum speed-up over AR; a smaller gain is within the error of the estimates
PROBE_SHARE = 0.025  # upper bound on the share of time spent on unsuccessful probes
MAX_SPACING = 128  # maximum number of forward passes between probes

# Constants that only the objective "passes" uses.
MIN_SPEED = 0.9  # minimum speed relative to AR, computed from ``reference_curve``
LEAST_SHARE = 0.05  # minimum weight of the cost of extra positions
INITIAL_BUDGET, MAX_BUDGET = 2.0, 6.0  # initial and maximum time budget, in AR steps

# Constants that are used only to choose the B of unverified rows.
POSITION_DECAY = 0.95  # decay of the acceptance counts at each new observation
PRIOR_WEIGHT = 1.5  # number of observations that a prior probability counts as
FIRST_POSITION = 0.6  # prior acceptance probability of the first draft
POSITION_PRIOR_DECAY = 0.93  # prior of a position, divided by the probability of the one before
SIZE_PASSES = 2  # forward passes before a B above 1 is chosen again

# Constants that are used only to choose the drafts and masks of verified rows.
NUM_SAMPLES = 20  # number of recent forward passes from which the number of masks is chosen
NUM_PROBES = 2  # number of mask samples that are kept when no masks are chosen
# Passes before the number of masks is chosen again, if it stayed the same and if it changed.
PASSES_IF_SETTLED, PASSES_IF_CHANGED = 16, 3
MIN_SPACING = 8  # minimum number of forward passes between probes, because a choice takes time
MASK_DECAY = 0.95  # assumed decay of the acceptance probability from mask to mask
# Prior probability of a correct proposal: of the first mask, and of each further mask.
FIRST_GUESS = (0.55, 0.5)

EDGES = (0.2, 0.4, 0.6, 0.8, 0.95)  # confidences that separate the categories of mask proposals
GUESSES = (
    *(0.1, 0.3, 0.45, 0.6, 0.75, 0.9),
    *(0.25, 0.55, 0.63, 0.7),
    *(0.65, 0.75, 0.78, 0.88),
)
"""Prior acceptance probability of each category of predictions.

The categories are: mask proposals by confidence, the first token of prompt lookup by match length,
and later lookup tokens by match length, given that the tokens before were right.
"""
FIRST_LOOKUP = len(EDGES) + 1
LATER_LOOKUP = FIRST_LOOKUP + MAX_MATCH
GUESS_WEIGHT = 4.0  # number of scored predictions that a prior probability counts as
MIN_PROBABILITY = 0.04  # drafts with a lower acceptance probability are never worth their cost
SCORE_DECAY = 0.97  # decay of a category's earlier scores at each new score

ALL_ROOTS = range(MAX_DRAFTS + 1)
Chain = list[tuple[int, int]]
"""Predictions for consecutive positions as (token, category).

Each prediction assumes that those before it are right.
"""


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """Maximum number of drafts and masks that a forward pass may feed for a row.

    num_drafts: maximum number of drafts.
    num_masks: masks per group.
    roots: the tokens after which a group of masks is fed (0: the last emitted token, 1: the first
        draft). None means one group, after the last draft.
    """

    num_drafts: int
    num_masks: int
    roots: Collection[int] | None = None

    @classmethod
    def of(cls, settings: DecodeSettings, trained: int = MAX_BLOCK_SIZE) -> FeedLimits:
        """Return the limits for settings with a fixed B.

        ``trained`` is the B that the model was trained with.
        """
        num_drafts, num_masks = settings.facts.max_fed(settings, trained)
        return cls(num_drafts, num_masks, ALL_ROOTS if settings.mask_layout == "every" else None)


class Probes:
    """Schedules when a row's draft policy, or the common B, is chosen again.

    ``wait`` is the number of forward passes until the next choice.
    """

    def __init__(self) -> None:
        self.wait = 0
        self._spacing = 0  # forward passes between the last two probes

    def keep_choice(self, patience: int) -> None:
        """Do not choose again for ``patience`` forward passes."""
        self.wait, self._spacing = patience, 0

    def pause(self, base: int, *, is_probe: bool, has_gained: bool) -> None:
        """Schedule the next probe after plain AR was chosen.

        The probe comes after ``base`` forward passes. If this forward pass was a probe and nothing
        has been accepted since the last choice, the spacing doubles, up to MAX_SPACING.
        """
        if is_probe and not has_gained:
            base = min(max(base, 2 * self._spacing), MAX_SPACING)
        self.wait = self._spacing = base


class TimeBudget:
    """Time budget of a row with the objective ``passes``, in units of an AR step.

    Emitted tokens add the time that AR would need for them at MIN_SPEED times its speed. The row's
    forward passes subtract their time.
    """

    def __init__(self) -> None:
        self._left = INITIAL_BUDGET

    @property
    def share(self) -> float:
        """Weight of the cost of extra positions in the next forward pass, at most 1.

        It is 1 when no budget is left: extra positions then count at their full cost.
        """
        return max(LEAST_SHARE, 1.0 - max(0.0, self._left) / MAX_BUDGET)

    def spend(self, cost: float) -> None:
        """Subtract the cost of a forward pass, in AR steps."""
        self._left -= cost

    def earn(self, num_tokens: int) -> None:
        """Add the time that AR would need for these tokens at MIN_SPEED times its speed."""
        self._left = min(MAX_BUDGET, self._left + num_tokens / MIN_SPEED)


class AcceptanceCounts:
    """Counts of accepted and rejected drafts for each position after AR's own token.

    A position is counted only if all positions before it were accepted.
    """

    def __init__(self, max_running: int) -> None:
        self.accepted = [0.0] * max_running
        self.rejected = [0.0] * max_running

    def add(self, num_accepted: int, is_rejected: bool) -> None:
        """Add one observation; the counts of earlier ones decay.

        The first ``num_accepted`` positions were accepted. ``is_rejected`` is whether the next
        position was rejected. If it is false, the result of the next position is unknown.
        """
        self.accepted = [POSITION_DECAY * count for count in self.accepted]
        self.rejected = [POSITION_DECAY * count for count in self.rejected]
        for position in range(num_accepted):
            self.accepted[position] += 1.0
        if is_rejected:
            self.rejected[num_accepted] += 1.0

    def chances(self, first_guess: float) -> list[float]:
        """Return the acceptance probability of each position.

        The prior of the first position is ``first_guess``. The prior of a further position is
        slightly below the probability of the one before.
        """
        probabilities, guess = [], first_guess
        for accepted, rejected in zip(self.accepted, self.rejected, strict=True):
            chance = (accepted + PRIOR_WEIGHT * guess) / (accepted + rejected + PRIOR_WEIGHT)
            probabilities.append(chance)
            guess = POSITION_PRIOR_DECAY * chance
        return probabilities


class AcceptanceEstimate:
    """Acceptance statistics of one row's masks, valid for one combination of settings.

    _drafted: how often proposals reached τ.
    _agreed: how often AR chose the same token (lossless mode only).
    num_gained: number of tokens emitted so far in addition to AR's own.
    """

    def __init__(self, settings: DecodeSettings, depth: int) -> None:
        self._basis = _basis(settings)
        self._is_verified = settings.is_verified
        self._drafted, self._agreed = AcceptanceCounts(depth), AcceptanceCounts(depth)
        self.num_gained = 0

    def fits(self, settings: DecodeSettings) -> bool:
        """Return whether the statistics are valid for these settings."""
        return self._basis == _basis(settings)

    def observe(self, acceptance: Acceptance, num_fed_drafts: int, block_size: int) -> None:
        """Update the statistics with the result, number of verified drafts and B of a pass."""
        num_agreed = acceptance.num_agreed
        self.num_gained += num_agreed
        if num_fed_drafts:
            self._agreed.add(num_agreed, num_agreed < num_fed_drafts)
        if block_size > 1 and num_agreed == num_fed_drafts:
            made = len(acceptance.emitted) + len(acceptance.drafts) - num_agreed - 1
            self._drafted.add(made, acceptance.stop == "threshold")
            self.num_gained += 0 if self._is_verified else made

    def chances(self) -> list[tuple[float, float]]:
        """Return two probabilities for each position after AR's own token.

        The first is the probability that a proposal reaches τ. The second is the probability that
        AR then chooses the same token; it is 1 for unverified rows.
        """
        if not self._is_verified:
            return [(made, 1.0) for made in self._drafted.chances(FIRST_POSITION)]
        guess = math.sqrt(FIRST_POSITION)
        return list(zip(self._drafted.chances(guess), self._agreed.chances(guess), strict=True))


def _basis(settings: DecodeSettings) -> tuple[object, ...]:
    adapted = settings.tau_policy, settings.agreement_target
    return settings.tau, settings.metric, settings.is_verified, adapted


class EstimatedRow(Protocol):
    """A row with acceptance statistics, which are created when B is first chosen automatically."""

    estimate: AcceptanceEstimate | None


class BlockSizes:
    """Chooses a common B for all unverified rows with automatic B, because they share forward
    passes.
    """

    def __init__(self, costs: ForwardCosts) -> None:
        self._costs = costs
        self._choice = 1
        self._probes = Probes()
        self._num_gained = -1  # tokens gained by all rows up to the last choice; -1: choose B now

    def choose(self, rows: Sequence[tuple[EstimatedRow, DecodeSettings]]) -> int:
        """Return B for the next forward pass.

        ``rows`` are the rows with automatic B, at least one.
        """
        estimates = [self._estimate(row, settings) for row, settings in rows]
        num_gained = sum(estimate.num_gained for estimate in estimates)
        is_waiting = self._probes.wait > 0 and (self._choice > 1 or num_gained == self._num_gained)
        if is_waiting and self._num_gained >= 0:
            self._probes.wait -= 1
            return self._choice
        has_gained, self._num_gained = num_gained > self._num_gained, num_gained
        is_fewest = all(settings.auto_objective == "passes" for _, settings in rows)
        return self._choose_size(estimates, has_gained, is_fewest)

    def _estimate(self, row: EstimatedRow, settings: DecodeSettings) -> AcceptanceEstimate:
        """Return the row's statistics; reset them and the choice of B if the settings changed."""
        if row.estimate is None or not row.estimate.fits(settings):
            row.estimate = AcceptanceEstimate(settings, self._costs.depth)
            self._num_gained = -1
        return row.estimate

    def _choose_size(
        self, estimates: Sequence[AcceptanceEstimate], has_gained: bool, is_fewest: bool
    ) -> int:
        """Compare all values of B and choose the best; if it is 1, probe from time to time."""
        curve = reference_curve() if is_fewest else self._costs.curve(len(estimates))
        chances = [estimate.chances() for estimate in estimates]
        sizes = range(2, self._costs.depth + 1)
        rates = {size: rate(size, chances, curve) for size in sizes}
        if is_fewest:
            free = curve.at(LEAST_SHARE)
            rates = {
                size: rate(size, chances, free if rates[size] >= MIN_SPEED else curve)
                for size in sizes
            }
        best = max(rates, key=rates.__getitem__, default=1)
        if best > 1 and rates[best] >= MIN_GAIN:
            self._choice = best
            self._probes.keep_choice(SIZE_PASSES)
            return best
        is_probe = self._choice == 1 and best > 1
        self._choice = 1  # plain AR until the next probe
        base = self._base_spacing(best, curve)
        self._probes.pause(base, is_probe=is_probe, has_gained=has_gained)
        return best if is_probe else 1

    def _base_spacing(self, size: int, curve: Curve) -> int:
        """Return after how many forward passes to probe, so that probes cost at most PROBE_SHARE.

        The extra positions of a probe may cost twice, because its drafts are fed again for
        verification.
        """
        if size == 1:  # The model was trained to predict only one token.
            return MAX_SPACING
        return min(MAX_SPACING, math.ceil(2 * (curve.of(size, size - 1) - 1.0) / PROBE_SHARE))


def rate(size: int, rows: Sequence[Sequence[tuple[float, float]]], curve: Curve) -> float:
    """Return the tokens per second with B = ``size``, relative to plain AR steps of the same rows.

    ``rows`` contains the result of ``AcceptanceEstimate.chances`` for each row. A forward pass
    feeds [AR's token | drafts of the previous pass | masks], with B - 1 masks in the row with the
    most drafts. It emits one token and the drafts that AR confirms. A rejected draft makes the
    drafts after it useless, so the next forward pass has nothing to verify.
    """
    tokens = 0.0
    at_most = [1.0] * size  # at index k: probability that every row has at most k drafts
    for chances in rows:
        gained, missed = 1.0, 0.0
        drafted = alive = 1.0
        more_drafts = []
        for made, agreed in chances[: size - 1]:
            drafted *= made
            more_drafts.append(drafted)
            missed += alive * made * (1.0 - agreed)
            alive *= made * agreed
            gained += alive
        tokens += (gained + missed) / (1.0 + missed)
        for position, chance in enumerate(more_drafts):
            at_most[position] *= 1.0 - chance / (1.0 + missed)
    cost = before = 0.0
    for drafts, chance in enumerate(at_most):
        cost += (chance - before) * curve.of(drafts + size, size - 1)
        before = chance
    return tokens / (cost * len(rows))


def chains_of(
    group: Sequence[Proposal], looked_up: Sequence[int], num_matching: int
) -> tuple[Chain, Chain]:
    """Return two chains for the next positions: mask proposals and tokens of prompt lookup.

    ``num_matching`` is the length of the match that produced ``looked_up``.
    """
    masks = [(proposal.token, bisect_right(EDGES, proposal.confidence)) for proposal in group]
    text = []
    category = FIRST_LOOKUP + num_matching - 1
    for token in looked_up:
        text.append((token, category))
        category = LATER_LOOKUP + num_matching - 1
    return masks, text


class Calibration:
    """Acceptance probability of each category of predictions.

    It also stores predictions for positions that have not been emitted yet, to score them later.
    """

    def __init__(self) -> None:
        self._right = [guess * GUESS_WEIGHT for guess in GUESSES]
        self._total = [GUESS_WEIGHT] * len(GUESSES)
        self._unscored: list[Chain] = []

    def chances(self, chain: Iterable[tuple[int, int]]) -> list[float]:
        """Return the probabilities that the first 1, 2, 3 ... predictions are all correct.

        The list ends before the first probability below MIN_PROBABILITY.
        """
        probabilities, all_right = [], 1.0
        for _, category in chain:
            all_right *= self._right[category] / self._total[category]
            if all_right < MIN_PROBABILITY:
                break
            probabilities.append(all_right)
        return probabilities

    def store(self, chain: Chain) -> None:
        """Store predictions for the next positions, to be scored by ``observe``."""
        if chain:
            self._unscored.append(chain)

    def observe(self, tokens: Sequence[int]) -> None:
        """Score the stored predictions against the emitted tokens.

        A chain is scored up to its first wrong prediction; the later ones assumed another text.
        """
        unscored, self._unscored = self._unscored, []
        for chain in unscored:
            for (predicted, category), token in zip(chain, tokens, strict=False):
                is_right = predicted == token
                self._right[category] = SCORE_DECAY * self._right[category] + is_right
                self._total[category] = SCORE_DECAY * self._total[category] + 1.0
                if not is_right:
                    break
            else:
                if len(chain) > len(tokens):
                    self._unscored.append(chain[len(tokens) :])


@dataclass(frozen=True, slots=True)
class DraftPolicy:
    """How a row drafts during several forward passes.

    num_masks: masks per group.
    rate: expected number of emitted tokens in the time of one AR step.
    worth: value, in tokens, of having proposals when a forward pass starts. It is the cost of an
        extra pass that computes them, minus the token that the extra pass emits.
    """

    num_masks: int
    rate: float
    worth: float

    @classmethod
    def of(cls, num_masks: int, rate: float, curve: Curve) -> DraftPolicy:
        return cls(num_masks, rate, max(0.0, rate * curve.of(1 + num_masks, num_masks) - 1.0))


AR_POLICY = DraftPolicy(0, 1.0, 0.0)


class Candidate(NamedTuple):
    """One choice of the drafts and masks that a forward pass could feed.

    value: expected number of tokens minus the cost, converted to tokens at the policy's rate.
    gain: expected number of accepted drafts.
    continues: probability that the next forward pass starts with proposals.
    width: number of fed tokens.
    num_drafts, num_masks, roots: as in ``FeedLimits``.
    """

    value: float
    gain: float
    continues: float
    width: int
    num_drafts: int
    num_masks: int
    roots: tuple[int, ...]

    @property
    def feed(self) -> FeedLimits:
        """Limits that make a forward pass feed exactly this candidate."""
        return FeedLimits(*self[4:])


def best_candidate(
    chances: Sequence[float], policy: DraftPolicy, curve: Curve, *, may_branch: bool
) -> Candidate:
    """Return the best candidate for the next forward pass, given the available drafts.

    ``chances`` are the probabilities that the first 1, 2, 3 ... drafts are all accepted. A
    candidate may have no masks or one group of masks after the last draft. With ``may_branch``,
    groups instead follow the tokens that are most likely to be the last accepted ones. A group is
    useful only if all tokens before it are accepted and the next one is not.
    """
    plain, extra, _ = curve  # unpacked once, because the loop runs thousands of times a second
    masks, rate, worth = policy.num_masks, policy.rate, policy.worth
    most_drafts, gain, alive = len(chances), 0.0, 1.0
    best = -math.inf
    best_fields: tuple[float, float, int, int, int] = (0.0, 0.0, 1, 0, 0)
    # For tokens before the last draft: (probability of being the last accepted one, number).
    ends: list[tuple[float, int]] = []
    roots: list[tuple[float, int]] = []
    for num_drafts in range(most_drafts + 1):
        if num_drafts:
            ends.append((alive - chances[num_drafts - 1], num_drafts - 1))
            alive = chances[num_drafts - 1]
            gain += alive
        value = gain - rate * plain[num_drafts]
        if value + (most_drafts - num_drafts) * alive + worth < best:
            break  # Further drafts cost more than they can gain.
        if value > best:
            best, best_fields, roots = value, (gain, 0.0, num_drafts + 1, num_drafts, 0), []
        if not masks:
            continue
        last_accepted = [(alive, num_drafts)]
        if may_branch and num_drafts:
            last_accepted = sorted([*ends, *last_accepted], reverse=True)
        width, continues = num_drafts + 1, 0.0
        for count, (chance, _) in enumerate(last_accepted, 1):
            width += masks
            if width > MAX_FED:
                break
            continues += chance
            value = gain - rate * (plain[width - 1] + extra) + continues * worth
            if value > best:
                best, best_fields = value, (gain, continues, width, num_drafts, masks)
                roots = last_accepted[:count]
    return Candidate(best, *best_fields, tuple(sorted([root for _, root in roots])))


def rate_of(
    num_masks: int,
    samples: Sequence[tuple[Sequence[float], Sequence[float]]],
    curve: Curve,
    *,
    may_branch: bool,
    rate: float,
) -> float:
    """Return the expected tokens in the time of an AR step, with ``num_masks`` masks per group.

    samples: acceptance probabilities of mask drafts and lookup drafts in recent forward passes.
    rate: the current rate; only drafts that increase it are fed.

    A forward pass that starts without proposals has no drafts and feeds one group of masks.
    """
    policy = DraftPolicy.of(num_masks, rate, curve)
    restart_cost = curve.of(1 + num_masks, num_masks)
    tokens = cost = 0.0
    for masks, text in samples:
        candidate = best_candidate(masks[:num_masks], policy, curve, may_branch=may_branch)
        if text:
            alternative = best_candidate(text, policy, curve, may_branch=may_branch)
            candidate = alternative if alternative.value > candidate.value else candidate
        restarts = 1.0 - candidate.continues if num_masks else 0.0
        tokens += 1.0 + candidate.gain + restarts
        cost += curve.of(candidate.width, candidate.num_masks) + restarts * restart_cost
    return tokens / cost


class FeedRequest(NamedTuple):
    """What a row requests the next forward pass to feed; ``best_width`` decides for the batch.

    width: number of tokens to feed.
    has_masks: whether some of the fed tokens are masks.
    expected_gain: expected number of tokens gained by feeding them.
    rate: tokens that the row emits in the time of one AR step.
    """

    width: int
    has_masks: bool
    expected_gain: float
    rate: float


AR_REQUEST = FeedRequest(1, False, 0.0, 1.0)
"""The request of a row that feeds one token, as AR does."""


def best_width(requests: Sequence[FeedRequest], curve: Curve) -> int:
    """Return the number of tokens per row that is best for the batch as a whole.

    A forward pass costs every row as much as the longest one, so a single row that drafts slows
    down the others. Rows that request more than the returned width feed one token.
    """
    rate = sum(request.rate for request in requests)

    def gain(width: int) -> float:
        drafting = [request for request in requests if request.width <= width]
        masks = 1 if any(request.has_masks for request in drafting) else 0
        return sum(request.expected_gain for request in drafting) - rate * (
            curve.of(width, masks) - 1.0
        )

    return max(sorted({1, *(request.width for request in requests)}), key=gain)


class Drafter:
    """Chooses drafts and masks for one lossless row.

    Its statistics are valid while ``basis_of`` the row's settings stays the same.
    """

    def __init__(self, settings: DecodeSettings, most_masks: int) -> None:
        """``most_masks`` is the maximum number of masks per group, from the model's training; 0
        means none.
        """
        self.basis = basis_of(settings)
        self._may_branch = settings.mask_layout == "every"
        self._tau = settings.tau
        self._most_masks = most_masks
        self._calibration = Calibration()
        guess = [FIRST_GUESS[0] * FIRST_GUESS[1] ** position for position in range(most_masks)]
        self._masks: deque[list[float]] = deque([guess], NUM_SAMPLES)
        self._texts: deque[list[float]] = deque(maxlen=NUM_SAMPLES)
        self._chances: list[float] = []  # acceptance probabilities of the current drafts
        self._policy = AR_POLICY
        self._best_masks, self._rate = min(2, most_masks), 1.0  # set by ``_choose_policy``
        self._num_forwards = 0
        self._probes = Probes()
        self._num_accepted = 0  # accepted drafts since the last choice
        self._budget = TimeBudget() if settings.auto_objective == "passes" else None
        self.request = AR_REQUEST

    def fits(self, settings: DecodeSettings) -> bool:
        """Return whether the statistics are valid for these settings."""
        return self.basis == basis_of(settings)

    def feed(self, curve: Curve) -> FeedLimits:
        """Return the limits under which the next forward pass feeds the best candidate."""
        weighted = self._weighted(curve)
        if self._probes.wait <= 0:
            policy = self._choose_policy(weighted)
        else:
            self._probes.wait -= 1
            policy = self._policy
        chances = self._chances
        if not curve.is_sure:
            chances, policy = [], AR_POLICY
        candidate = best_candidate(chances, policy, weighted, may_branch=self._may_branch)
        expected_gain = candidate.gain + candidate.continues * policy.worth
        self.request = FeedRequest(
            candidate.width, candidate.num_masks > 0, expected_gain, policy.rate
        )
        if self._budget is not None:
            self._budget.spend(curve.of(candidate.width, candidate.num_masks))
        return candidate.feed

    def _weighted(self, curve: Curve) -> Curve:
        """Return the costs for the row's objective; with ``passes``, extra tokens cost less."""
        return curve if self._budget is None else curve.at(self._budget.share)

    def update(
        self,
        emitted: Sequence[int],
        num_agreed: int,
        group: Sequence[Proposal],
        looked_up: Sequence[int],
        num_matching: int,
        curve: Curve,
    ) -> tuple[list[int], bool]:
        """Update the statistics with a forward pass and return the next drafts.

        group: mask proposals after the last emitted token.
        looked_up: tokens from prompt lookup for the same positions.
        num_matching: length of the match that produced ``looked_up``.

        Returns the drafts and whether they come from prompt lookup.
        """
        curve = self._weighted(curve)
        if self._budget is not None:
            self._budget.earn(len(emitted))
        self._calibration.observe(emitted)
        self._num_forwards += 1
        self._num_accepted += num_agreed
        chain, text_chain = chains_of(group, looked_up, num_matching)
        self._calibration.store(chain)
        confidences = [proposal.confidence for proposal in group]
        num_sure = accept_prefix([1.0, *confidences], self._tau) - 1
        masks = self._calibration.chances(chain[:num_sure])
        if group:
            self._masks.append(self._extended(masks) if len(masks) == len(group) else masks)
        text = self._calibration.chances(text_chain)
        self._calibration.store(text_chain[: len(text) + 1])
        self._texts.append(text)
        self._chances = masks
        if text and self._best(text, curve) > self._best(masks, curve):
            self._chances = text
            return list(looked_up[: len(text)]), True
        return [proposal.token for proposal in group[: len(masks)]], False

    def truncate(self, num_drafts: int) -> None:
        """Keep only the first ``num_drafts`` drafts, because the text ends after them."""
        del self._chances[num_drafts:]

    def _best(self, chances: Sequence[float], curve: Curve) -> float:
        return best_candidate(chances, self._policy, curve, may_branch=self._may_branch).value

    def _extended(self, masks: list[float]) -> list[float]:
        """Extend acceptance probabilities to the maximum number of masks by MASK_DECAY."""
        extended = list(masks)
        before = extended[-2] if len(extended) > 1 else 1.0
        chance = extended[-1] / before if before else 0.0
        while len(extended) < self._most_masks:
            chance *= MASK_DECAY
            extended.append(extended[-1] * chance)
        return extended

    def _choose_policy(self, curve: Curve) -> DraftPolicy:
        """Compare the candidate numbers of masks and choose one; without masks, probe from time to
        time.
        """
        has_gained, self._num_accepted = self._num_accepted > 0, 0
        # Some forward passes had no masks or no lookup match, so the shorter list is repeated.
        texts: Iterable[list[float]] = self._texts or [[]]
        count = max(len(self._masks), len(self._texts))
        samples = list(islice(zip(cycle(self._masks), cycle(texts), strict=False), count))
        last = self._best_masks
        # The maximum is tried too, because rates may fall before they rise to the best one.
        candidates = {0, 1, last - 1, last, last + 1, self._most_masks}
        rates = {
            masks: rate_of(masks, samples, curve, may_branch=self._may_branch, rate=self._rate)
            for masks in sorted(candidates)
            if 0 <= masks <= self._most_masks
        }
        plain = max(1.0, rates.pop(0))
        best = self._best_masks = max(rates, key=rates.__getitem__, default=0)
        self._rate = max(plain, rates.get(best, 0.0))
        if best and rates[best] >= MIN_GAIN * plain:
            self._policy = DraftPolicy.of(best, rates[best], curve)
            is_settled = best == last and self._num_forwards > NUM_SAMPLES
            self._probes.keep_choice(PASSES_IF_SETTLED if is_settled else PASSES_IF_CHANGED)
            return self._policy
        is_probe = best > 0 and self._policy.num_masks == 0
        # Drop all but a few old samples, so that a successful probe can outweigh them.
        while len(self._masks) > NUM_PROBES:
            self._masks.popleft()
        self._policy = DraftPolicy(0, plain, 0.0)
        base = self._base_spacing(best, curve)
        self._probes.pause(base, is_probe=is_probe, has_gained=has_gained)
        if not is_probe:
            return self._policy
        # Proposals get a value above their cost, so that the probe feeds masks in any case.
        return DraftPolicy(best, plain, plain * curve.of(1 + best, best) + 1.0)

    def _base_spacing(self, num_masks: int, curve: Curve) -> int:
        """Return after how many forward passes to probe; probes then cost at most PROBE_SHARE."""
        if not num_masks:  # The model was trained to predict only one token.
            return MAX_SPACING
        forwards = math.ceil((curve.of(1 + num_masks, num_masks) - 1.0) / PROBE_SHARE)
        return max(MIN_SPACING, min(forwards, MAX_SPACING))


def basis_of(settings: DecodeSettings) -> tuple[object, ...]:
    """Return the settings on which the statistics of a ``Drafter`` depend."""
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
