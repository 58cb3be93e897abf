"""Choose the drafts and masks of each forward pass for rows with automatic B.

Of all combinations, AR's among them, a batch feeds the one with the most expected tokens for its
predicted time. Masks pay one pass later: they count with what their proposals will add to it.

Value is tokens minus time, in tokens at the row's recent rate: the average-reward criterion of a
semi-Markov decision process. As costs are fixed, a prompt takes the same passes each time.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from mars_runtime.acceptance import accept_prefix
from mars_runtime.decoders.decision import Acceptance
from mars_runtime.decoders.forward_costs import Curve
from mars_runtime.decoders.lookup import MAX_MATCH
from mars_runtime.decoders.methods import MAX_BLOCK_SIZE
from mars_runtime.runs.events import Proposal
from mars_runtime.settings import MAX_FED, DecodeSettings

SHARE = 0.01  # upper bound on the share of the time spent on masks that do not seem worth it
EXPLORED = 2  # number of masks fed then
MANY_MASKED = 0.15  # a run with masks in fewer of its passes says why
LEAST_CHANCE = 0.1  # a group of masks after a less likely token is never worth its cost
FLOOR = 0.04  # drafts with a lower acceptance probability are never worth their cost
MEMORY = 0.97  # decay of the acceptance averages at each new observation
GUESS_WEIGHT = 4.0  # number of observations that a prior probability counts as
RATE_MEMORY, RATE_WEIGHT = 0.97, 3.0  # decay of the rate, and weight of its prior, AR's rate
WORTH_MEMORY = 0.9  # decay of the value of mask proposals
EDGES = (0.2, 0.4, 0.6, 0.8, 0.95)  # confidences that separate the categories of mask proposals
FIRST_LOOKUP = len(EDGES) + 1
GUESSES = (
    *(0.1, 0.3, 0.45, 0.6, 0.75, 0.9),  # mask proposals by confidence
    *(0.25, 0.55, 0.63, 0.7),  # the first token of prompt lookup, by length of the match
    *(0.65, 0.75, 0.78, 0.88),  # its later tokens, given that those before were right
)
"""Prior acceptance probability of each category of predictions."""
FIRST_MASK, MASK_DECAY = 0.55, 0.92
"""Prior of the first mask, and that of each further one as a share of the mask before."""


class Prediction(NamedTuple):
    """position: number of its mask in the group, or -1. is_sure: confidence reaches τ."""

    token: int
    category: int
    position: int = -1
    is_sure: bool = True


class Averages:
    def __init__(self) -> None:
        self._right = [guess * GUESS_WEIGHT for guess in GUESSES]
        self._total = [GUESS_WEIGHT] * len(GUESSES)
        # By position of the mask: right, wrong, and the weight of the prior.
        self._masks = [[0.0, 0.0, GUESS_WEIGHT] for _ in range(MAX_BLOCK_SIZE)]
        self._unscored: list[Sequence[Prediction]] = []

    def chances(self, categories: Iterable[int]) -> list[float]:
        """Return the probabilities that the first 1, 2, 3 ... predictions are all right."""
        chances, all_right = [], 1.0
        for category in categories:
            all_right *= self._right[category] / self._total[category]
            if all_right < FLOOR:
                break
            chances.append(all_right)
        return chances

    def mask_chances(self, most_masks: int) -> list[float]:
        chances, all_right, guess = [], 1.0, FIRST_MASK
        for right, wrong, weight in self._masks[:most_masks]:
            chance = (right + weight * guess) / (right + wrong + weight)
            all_right, guess = all_right * chance, MASK_DECAY * chance
            if all_right < FLOOR:
                break
            chances.append(all_right)
        return chances

    def score(self, category: int, *, is_right: bool) -> None:
        self._right[category] = MEMORY * self._right[category] + is_right
        self._total[category] = MEMORY * self._total[category] + 1.0

    def score_mask(self, position: int, *, is_right: bool) -> None:
        right, wrong, weight = (MEMORY * count for count in self._masks[position])
        self._masks[position] = [right + is_right, wrong + (not is_right), weight]

    def store(self, chain: Sequence[Prediction]) -> None:
        """Keep predictions to be scored, even if they are never fed."""
        if chain:
            self._unscored.append(chain)

    def forget(self) -> None:
        self._unscored.clear()

    def observe(self, tokens: Sequence[int]) -> None:
        """Score each kept chain up to its first wrong prediction."""
        unscored, self._unscored = self._unscored, []
        for chain in unscored:
            for prediction, token in zip(chain, tokens, strict=False):
                is_right = prediction.token == token
                self.score(prediction.category, is_right=is_right)
                if prediction.position >= 0:
                    self.score_mask(prediction.position, is_right=is_right and prediction.is_sure)
                if not is_right:
                    break
            else:
                if len(chain) > len(tokens):
                    self._unscored.append(chain[len(tokens) :])


class Offer(NamedTuple):
    """gain: expected tokens beyond AR's, now and by the proposals in the next pass. ends: pairs of
    (probability of being the last accepted token, its number); masks follow the first num_roots.
    """

    gain: float
    width: int
    num_fed_masks: int
    num_drafts: int
    num_masks: int
    ends: Sequence[tuple[float, int]] = ()
    num_roots: int = 0

    @property
    def roots(self) -> tuple[int, ...]:
        return tuple([root for _, root in self.ends[: self.num_roots]])


def combinations(
    start: int, chances: Sequence[float], worths: Mapping[int, float], *, may_branch: bool
) -> list[Offer]:
    """Return what a lossless row could feed; the first offer is AR's.

    chances: probabilities that the first 1, 2, 3 ... drafts are all accepted.
    worths: number of masks -> value of their proposals in the next pass.
    """
    offers: list[Offer] = []
    gain, alive = 0.0, 1.0
    ends: list[tuple[float, int]] = []
    for num_drafts in range(len(chances) + 1):
        if num_drafts:
            ends.append((alive - chances[num_drafts - 1], num_drafts - 1))
            alive = chances[num_drafts - 1]
            gain += alive
        width = start + num_drafts
        offers.append(Offer(gain, width, 0, num_drafts, 0))
        last = [(alive, num_drafts)]
        if may_branch and num_drafts:
            last = sorted([*ends, *last], reverse=True)
        last = [(chance, root) for chance, root in last if chance >= LEAST_CHANCE]
        for num_masks, worth in worths.items():
            continues, num_fed = 0.0, 0
            for count, (chance, _) in enumerate(last, 1):
                num_fed += num_masks
                if width + num_fed > MAX_FED:
                    break
                continues += chance
                value = gain + continues * worth
                offers.append(
                    Offer(value, width + num_fed, num_fed, num_drafts, num_masks, last, count)
                )
    return offers


class Drafter:
    """credit: tokens that the row may still lose by exploring."""

    def __init__(self, most_masks: int) -> None:
        self.credit = 0.0
        self._num_passes = self._num_masked = 0  # forward passes, and those with masks
        self._averages = Averages()
        self._most_masks = most_masks
        self._tokens = self._cost = RATE_WEIGHT
        self._worths: list[float] = []
        self._chances: list[float] = []  # acceptance probabilities of the current drafts

    @property
    def rate(self) -> float:
        return max(1.0, self._tokens / self._cost)

    def spend(self, cost: float, *, has_masks: bool) -> None:
        self._cost += cost
        self._num_passes += 1
        self._num_masked += has_masks

    def skip(self) -> None:
        """Count a pass that was not planned, without learning from it."""
        self._num_passes += 1
        self._averages.forget()

    def declined(self, curve: Curve) -> tuple[float, ...]:
        """Return tokens and cost of a pass with masks, if none were worth feeding."""
        best, tokens = (0.0, 1.0), 1.0
        for number, chance in enumerate(self._averages.mask_chances(self._most_masks), 1):
            tokens += chance
            # A pass has proposals to verify unless a draft of the pass before it was wrong.
            with_drafts = 1.0 / (2.0 - chance)
            brought = 1.0 + with_drafts * (tokens - 1.0)
            alone, verified = curve.of(1 + number, number), curve.of(1 + 2 * number, number)
            cost = with_drafts * verified + (1.0 - with_drafts) * alone
            best = max(best, (brought, cost), key=lambda pair: pair[0] / pair[1])
        is_fed = self._num_masked > MANY_MASKED * self._num_passes
        if is_fed or not 0.0 < best[0] / best[1] <= self.rate:
            return ()
        return round(best[0], 2), round(best[1], 2)

    def offers(
        self, settings: DecodeSettings, start: int, num_drafts: int, curve: Curve
    ) -> list[Offer]:
        if not settings.is_verified:
            return self._unverified(start, curve)
        chances = self._chances[:num_drafts]
        if not self._worths:
            self._value_proposals(1.0 - self.rate, curve)
        worths, least = {}, 0.0
        for number, worth in enumerate(self._worths, 1):
            if worth > least:
                worths[number] = least = worth
        return combinations(start, chances, worths, may_branch=settings.mask_layout == "every")

    def _unverified(self, start: int, curve: Curve) -> list[Offer]:
        offers, gain = [Offer(0.0, start, 0, 0, 0)], 0.0
        for number, chance in enumerate(self._averages.mask_chances(self._most_masks), 1):
            gain += chance * (1.0 - self.rate * (curve.plain[number] - curve.plain[number - 1]))
            offers.append(Offer(gain, start + number, number, 0, number, [(1.0, 0)], 1))
        return offers

    def explore(self, offer: Offer) -> Offer:
        num_drafts, num_masks = offer.num_drafts, min(EXPLORED, self._most_masks)
        if num_drafts and self._chances[num_drafts - 1] < 0.5:
            return offer
        width = offer.width + num_masks
        return Offer(offer.gain, width, num_masks, num_drafts, num_masks, [(1.0, num_drafts)], 1)

    def observe_unverified(self, acceptance: Acceptance, num_masks: int) -> None:
        self._count(len(acceptance.emitted))
        num_made = len(acceptance.emitted) - 1
        for number in range(min(num_made + 1, num_masks)):
            self._averages.score_mask(number, is_right=number < num_made)

    def _count(self, num_tokens: int) -> None:
        self._tokens = RATE_MEMORY * self._tokens + num_tokens
        self._cost *= RATE_MEMORY

    def update(
        self,
        settings: DecodeSettings,
        emitted: Sequence[int],
        group: Sequence[Proposal],
        looked_up: Sequence[int],
        num_matching: int,
        curve: Curve,
    ) -> tuple[list[int], bool]:
        """Learn from a pass of a verified row.

        looked_up: prompt lookup's tokens for the positions of ``group``, the mask proposals after
        the last emitted token. Returns the next drafts and whether they are looked up.
        """
        self._count(len(emitted))
        averages = self._averages
        averages.observe(emitted)
        confidences = [1.0, *(proposal.confidence for proposal in group)]
        num_sure = accept_prefix(confidences, settings.tau) - 1
        masks = [
            Prediction(
                *(proposal.token, bisect_right(EDGES, proposal.confidence)),
                *(number, number < num_sure),
            )
            for number, proposal in enumerate(group)
        ]
        first = FIRST_LOOKUP + num_matching - 1
        categories = [first, *[first + MAX_MATCH] * (len(looked_up) - 1)][: len(looked_up)]
        text_chances = averages.chances(categories)
        text = list(map(Prediction, looked_up[: len(text_chances) + 1], categories))
        mask_chances = averages.chances(prediction.category for prediction in masks[:num_sure])
        averages.store(masks)
        averages.store(text)
        value = self._best(text_chances, curve)
        self._value_proposals(value, curve)
        is_lookup = bool(text_chances) and value > self._best(mask_chances, curve)
        self._chances = text_chances if is_lookup else mask_chances
        drafts = text if is_lookup else masks
        return [prediction.token for prediction in drafts[: len(self._chances)]], is_lookup

    def _best(self, chances: Sequence[float], curve: Curve) -> float:
        """Return the value of a pass with the best number of drafts and no masks."""
        rate, gain = self.rate, 1.0
        best = 1.0 - rate
        for cost, chance in zip(curve.plain[1:], chances, strict=False):
            gain += chance
            best = max(best, gain - rate * cost)
        return best

    def _value_proposals(self, otherwise: float, curve: Curve) -> None:
        """Update what proposals add to a pass that is worth ``otherwise`` without."""
        rate, tokens, best, worths = self.rate, 1.0, 1.0 - self.rate, []
        for number, chance in enumerate(self._averages.mask_chances(self._most_masks), 1):
            tokens += chance
            value = tokens - rate * curve.plain[number]
            if number <= len(self._worths):  # with masks after the drafts, if they are worth it
                masks = curve.of(2 * number + 1, number) - curve.plain[number]
                value += max(0.0, chance * self._worths[number - 1] - rate * masks)
            best = max(best, value)
            worths.append(min(tokens - 1.0, max(best, otherwise) - max(0.0, otherwise)))
        known = [*self._worths, *worths[len(self._worths) :]][: len(worths)]
        self._worths = [
            before + (1.0 - WORTH_MEMORY) * (worth - before)
            for before, worth in zip(known, worths, strict=True)
        ]

    def truncate(self, num_drafts: int) -> None:
        del self._chances[num_drafts:]


class BatchChoice(NamedTuple):
    """cost: in AR steps of the same rows. value: in tokens."""

    offers: Sequence[Offer]
    cost: float
    value: float


def choose(
    drafters: Sequence[Drafter], offers: Sequence[Sequence[Offer]], curve: Curve, least_width: int
) -> Sequence[Offer]:
    """Rows with a fixed B feed ``least_width`` tokens in any case."""
    rate = sum(drafter.rate for drafter in drafters)

    def choice(chosen: Sequence[Offer]) -> BatchChoice:
        width = max(least_width, *(offer.width for offer in chosen))
        cost = curve.of(width, max(offer.num_fed_masks for offer in chosen))
        return BatchChoice(chosen, cost, sum(offer.gain for offer in chosen) - rate * cost)

    if len(offers) == 1:
        plain, masks = curve
        most, row = -math.inf, offers[0][0]
        for offer in offers[0]:
            gain, width, num_fed_masks = offer[:3]
            value = gain - rate * (plain[max(width, least_width) - 1] + masks[num_fed_masks])
            if value > most:
                most, row = value, offer
        best = choice([row])
    else:
        best = max(map(choice, _by_width(offers)), key=lambda choice: choice.value)
    if any(offer.num_fed_masks for offer in best.offers):
        for drafter in drafters:
            drafter.credit = 0.0
    else:
        best = _explored(best, drafters, rate, choice)
    for drafter in drafters:
        drafter.spend(best.cost, has_masks=any(offer.num_fed_masks for offer in best.offers))
    return best.offers


def _by_width(offers: Sequence[Sequence[Offer]]) -> Iterable[Sequence[Offer]]:
    """Yield the best offers up to each width, without masks and of all."""
    widths = sorted({offer.width for row in offers for offer in row})
    for most_masks in (0, MAX_FED):
        columns = []
        for row in offers:
            by_width: dict[int, Offer] = {}
            for offer in row:
                if offer.num_fed_masks <= most_masks:
                    rival = by_width.get(offer.width)
                    if rival is None or offer.gain > rival.gain:
                        by_width[offer.width] = offer
            best, column = row[0], []
            for width in widths:
                rival = by_width.get(width, best)
                best = rival if rival.gain > best.gain else best
                column.append(best)
            columns.append(column)
        yield from zip(*columns, strict=True)


def _explored(
    best: BatchChoice,
    drafters: Sequence[Drafter],
    rate: float,
    choice: Callable[[Sequence[Offer]], BatchChoice],
) -> BatchChoice:
    for drafter in drafters:
        drafter.credit += SHARE * rate * best.cost / len(drafters)
    pairs = zip(drafters, best.offers, strict=True)
    explored = choice([drafter.explore(offer) for drafter, offer in pairs])
    loss = best.value - explored.value
    if loss > sum(drafter.credit for drafter in drafters) or explored.cost == best.cost:
        return best
    for drafter in drafters:
        drafter.credit -= loss / len(drafters)
    return explored
