"""Plan one forward pass for each row and apply its predictions: what to feed, accept and draft.
Rows change only after this was done for all rows of the batch.

τ may adapt in unverified runs, never below the τ of the settings, by one of two rules. Both use
only values that the events of a run contain.

- Entropy: the more uncertain AR's own prediction, the higher τ (``CLASSES``).
- Agreement: accepted tokens are fed again as real tokens, so the same forward pass also predicts
  AR's choices for their positions. Each token that AR would not have chosen raises τ, and every
  other token lowers it; they balance when the share of agreement equals the target (adaptive
  conformal inference, arXiv 2106.00193).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mars_runtime.acceptance import up_to_end
from mars_runtime.decoders.base import NOT_MEASURED, NoMaskError
from mars_runtime.decoders.decision import Acceptance, accept, eos_in_force, num_proposals
from mars_runtime.decoders.draft_model import Drafted, DraftRequest, DraftRows
from mars_runtime.decoders.drafting import Drafter, Offer, choose
from mars_runtime.decoders.forward_costs import Curve, ForwardCosts
from mars_runtime.decoders.lookup import REACH
from mars_runtime.decoders.methods import MAX_BLOCK_SIZE, MAX_DRAFTS
from mars_runtime.decoders.rows import Row
from mars_runtime.errors import DecodeError
from mars_runtime.model.forward import Layout, MaskGroup
from mars_runtime.model.predictions import Penalty
from mars_runtime.runs.events import FINAL, Proposal, RowStep
from mars_runtime.settings import MAX_FED, DecodeSettings

NO_DRAFT = "No draft model is available here: choose another method."
CLASSES = ((0.05, 0.0), (0.3, 0.5), (1.0, 0.8), (math.inf, 0.95))
"""Classes of (maximum entropy in nats, share of the distance from τ to 1 that is added to τ)."""
TAU_STEP = 0.2  # step size: a disagreement with AR adds TAU_STEP * target to ``Row.raised``
MAX_RAISED = 0.98
"""At τ = 1 no proposal would be accepted, so τ could not adapt again."""


ALL_ROOTS = range(MAX_DRAFTS + 1)


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """Maximum number of drafts and masks that a forward pass may feed for a row.

    num_masks: masks per group.
    roots: the tokens after which a group of masks is fed (0: the last emitted token, 1: the first
        draft). None means one group, after the last draft.
    """

    num_drafts: int
    num_masks: int
    roots: Collection[int] | None = None

    @classmethod
    def of(cls, settings: DecodeSettings, trained: int = MAX_BLOCK_SIZE) -> FeedLimits:
        """``trained``: the B that the model was trained with."""
        num_drafts, num_masks = settings.facts.max_fed(settings, trained)
        return cls(num_drafts, num_masks, ALL_ROOTS if settings.mask_layout == "every" else None)

    @classmethod
    def of_offer(cls, offer: Offer) -> FeedLimits:
        return cls(offer.num_drafts, offer.num_masks, offer.roots)


@dataclass(slots=True)
class RowPlan:
    """What one forward pass does for one row.

    tokens: real tokens to feed; the last ``num_drafts`` are drafts.
    groups: number of masks after the last emitted token, and after each draft.
    is_tree: whether masks follow a token other than the last pending one.
    first_slot: index of the fed token that predicts the first position not emitted yet.
    num_checks: number of fed tokens before ``first_slot`` whose predictions are read: AR's choices
        for positions that were emitted before.
    """

    row: Row
    settings: DecodeSettings
    tokens: list[int]
    num_drafts: int
    groups: tuple[int, ...]
    remaining: int
    layout: Layout = field(init=False)
    is_tree: bool = field(init=False)
    first_slot: int = field(init=False)
    num_checks: int = field(init=False)

    def __post_init__(self) -> None:
        self.layout = Layout(len(self.tokens), self.groups)
        self.is_tree = any(self.groups[:-1])
        self.first_slot = len(self.tokens) - self.num_drafts - 1
        needs_checks = self.settings.is_adaptive and self.settings.tau_policy == "agreement"
        self.num_checks = self.first_slot if needs_checks else 0

    @property
    def num_slots(self) -> int:
        """Predictions to read: the checks, AR's choice before each group, and the proposals."""
        return self.num_checks + len(self.groups) + sum(self.groups)

    @property
    def first_read(self) -> int:
        return self.first_slot - self.num_checks

    @property
    def drafts(self) -> list[int]:
        return self.tokens[len(self.tokens) - self.num_drafts :]

    def raised_after(self, checks: list[Proposal]) -> float:
        """Return the next ``Row.raised``; ``checks`` are AR's choices for the latest emitted
        tokens.
        """
        emitted = self.tokens[1 : 1 + len(checks)]
        agreed = [check.token == token for check, token in zip(checks, emitted, strict=True)]
        return raised_after(self.row.raised, agreed, self.settings.agreement_target)

    def read_positions(self) -> list[int]:
        """Relative to the cursor."""
        layout = self.layout
        return layout.numbers(layout.num_fed)[0][self.first_read :]

    def penalty(
        self, cursor: int, first: int, vocab_size: int, eos_ids: frozenset[int]
    ) -> Penalty | None:
        """Return the penalties for the predictions of the fed tokens from number ``first`` on.

        The prediction of a real token is penalised by all tokens up to it, drafts included; that of
        a mask by the tokens before its group, because later ones are unknown before the forward
        pass.
        """
        if not self.settings.has_logit_changes:
            return None
        num_pending, text = len(self.tokens), self.row.text[:cursor] + self.tokens
        offsets, roots, _ = self.layout.numbers(self.layout.num_fed)
        known = [cursor + count for count in (*range(1, num_pending + 1), *roots[num_pending:])]
        positions = [cursor + offset + 1 for offset in offsets]
        return Penalty.of(
            *(self.settings, text, self.row.num_prompt, known[first:], vocab_size),
            *(eos_ids, positions[first:]),
        )

    def groups_to_rerank(self, index: int) -> list[MaskGroup]:
        """Return the mask groups of row ``index`` that a sampler head may rerank.

        None for rows that sample, because the sampled token must not change, and for the metric
        entropy, which does not score single candidates.
        """
        if self.settings.temperature > 0 or self.settings.metric == "entropy":
            return []
        groups, start = [], self.num_checks + len(self.groups)
        for number, size in enumerate(self.groups):
            if size:
                groups.append(
                    MaskGroup(index, self.num_checks + number, range(start, start + size))
                )
            start += size
        return groups

    def split(self, slots: list[Proposal]) -> tuple[list[Proposal], list[list[Proposal]]]:
        """Return the first two arguments of ``accept``."""
        start, groups = len(self.groups), []
        for size in self.groups:
            groups.append(slots[start : start + size])
            start += size
        return slots[: len(self.groups)], groups


def plan_row(row: Row, settings: DecodeSettings, feed: FeedLimits, has_mask: bool) -> RowPlan:
    """Drafts that no longer fit are dropped, because lossless was switched off or the limit was
    lowered. Raises DecodeError if masks are needed but ``has_mask`` is false.
    """
    limit = min(row.limit, settings.max_new_tokens)
    remaining = max(1, limit - row.num_emitted)
    num_drafts = min(row.num_drafts, feed.num_drafts, remaining - 1)
    groups = group_sizes(settings, feed, remaining, num_drafts)
    if not has_mask and settings.is_verified and settings.lookup:
        groups = (0,) * len(groups)
    if any(groups) and not has_mask:
        raise NoMaskError((row.number,))
    tokens = row.pending[: len(row.pending) - row.num_drafts + num_drafts]
    return RowPlan(row, settings, tokens, num_drafts, groups, remaining)


def group_sizes(
    settings: DecodeSettings, feed: FeedLimits, remaining: int, num_drafts: int
) -> tuple[int, ...]:
    """Return how many masks follow the last emitted token and each of ``num_drafts`` drafts,
    without masks whose proposals could not be used. A forward pass feeds at most MAX_FED tokens.
    """
    tokens = range(num_drafts + 1)
    roots = {num_drafts} if feed.roots is None else set(tokens).intersection(feed.roots)
    size = min(feed.num_masks, (MAX_FED - len(tokens)) // max(len(roots), 1)) + 1
    return tuple(
        [
            num_proposals(settings, remaining, token, size) - 1 if token in roots else 0
            for token in tokens
        ]
    )


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """Result of a forward pass for one row, before the row is updated.

    next_drafts: drafts for the next forward pass, without those of a draft model.
    raised: the next value of ``Row.raised``.
    checks: AR's choices for the row's latest emitted tokens.
    threshold: the τ that was used, or None if τ does not adapt.
    declined: as in RowStep.
    """

    plan: RowPlan
    acceptance: Acceptance
    next_drafts: NextDrafts
    raised: float
    checks: tuple[Proposal, ...] = ()
    threshold: float | None = None
    declined: tuple[float, ...] = ()

    @classmethod
    def of(
        cls, plan: RowPlan, slots: list[Proposal], policy: FeedPolicy, eos_ids: frozenset[int]
    ) -> RowOutcome:
        checks, slots = slots[: plan.num_checks], slots[plan.num_checks :]
        choices, groups = plan.split(slots)
        settings, raised, threshold = plan.settings, plan.row.raised, None
        if settings.is_adaptive:
            raised = plan.raised_after(checks)
            threshold = threshold_for(settings, choices[0], raised)
            settings = replace(settings, tau=threshold)
        written = plan.row.written if settings.stop_loops else ()
        acceptance = accept(
            choices, groups, plan.drafts, settings, plan.remaining, eos_ids, written
        )
        next_drafts = policy.update(plan, acceptance)
        declined = policy.declined(plan) if acceptance.stop in FINAL else ()
        return cls(plan, acceptance, next_drafts, raised, tuple(checks), threshold, declined)

    def request(self, eos_ids: frozenset[int]) -> DraftRequest | None:
        settings, acceptance, drafts = self.plan.settings, self.acceptance, self.next_drafts.tokens
        if not settings.facts.needs_draft_model or acceptance.stop in FINAL:
            return None
        num_left = self.plan.remaining - len(acceptance.emitted) - 1
        at_most = min(settings.num_guesses, num_left) - len(drafts)
        if at_most < 1 or (drafts and drafts[-1] in eos_in_force(settings, eos_ids)):
            return None
        return DraftRequest(self.plan.row, acceptance.emitted, drafts, at_most, settings)

    def step(self, cursor: int, drafted: Drafted) -> RowStep:
        plan, acceptance, next_drafts = self.plan, self.acceptance, self.next_drafts
        return RowStep(
            row=plan.row.number,
            start=plan.row.num_emitted,
            cursor=cursor,
            num_pending=len(plan.tokens),
            num_fed=plan.layout.num_fed,
            proposals=acceptance.proposals,
            accepted=tuple(acceptance.emitted),
            num_drafted=len(next_drafts.proposed),
            settings=plan.settings,
            stop=acceptance.stop,
            block_size=max(plan.groups) + 1 if plan.settings.is_auto else 0,
            groups=plan.groups if plan.is_tree else (),
            looked_up=tuple(next_drafts.looked_up),
            guessed=(*next_drafts.guessed, *drafted.tokens),
            num_draft_forwards=drafted.num_forwards,
            checks=tuple((slot.token, slot.confidence) for slot in self.checks),
            threshold=self.threshold,
            declined=self.declined,
        )


def drafted_for(
    outcomes: Sequence[RowOutcome], draft_rows: DraftRows | None, eos_ids: frozenset[int]
) -> dict[int, Drafted]:
    """Return drafts of the draft models by row number. Raises DecodeError."""
    requests = [
        request for outcome in outcomes if (request := outcome.request(eos_ids)) is not None
    ]
    if not requests:
        return {}
    if draft_rows is None:
        raise DecodeError(NO_DRAFT, tuple(request.row.number for request in requests))
    return draft_rows.propose(requests)


class NextDrafts(NamedTuple):
    """Drafts for the next forward pass of a row.

    proposed: accepted proposals of the model itself. looked_up: from prompt lookup instead.
    guessed: guesses of the method or of a draft model, which follow the other drafts.
    """

    proposed: Sequence[int] = ()
    looked_up: Sequence[int] = ()
    guessed: Sequence[int] = ()

    @property
    def tokens(self) -> list[int]:
        return [*self.proposed, *self.looked_up, *self.guessed]


class FeedPolicy:
    """Decides which drafts and masks each row of a batch feeds, and what it drafts next.

    costs: required for automatic B. block_size: upper bound on B with a draft model.
    """

    def __init__(
        self,
        costs: ForwardCosts | None,
        eos_ids: frozenset[int],
        block_size: int,
        *,
        has_mask: bool,
    ) -> None:
        self._costs = costs
        self._eos_ids = eos_ids
        self._block_size = block_size
        self._most_masks = costs.depth - 1 if costs is not None and has_mask else 0
        self._curve = Curve([1.0])  # costs for the number of rows of the latest forward pass
        self._num_unplanned = 0  # coming passes that feed what AR feeds

    def feeds(self, rows: Sequence[Row], settings: Sequence[DecodeSettings]) -> list[FeedLimits]:
        """Raises DecodeError, which names the rows with automatic B, if no costs were measured."""
        num_unplanned, self._num_unplanned = self._num_unplanned, 0
        pairs = list(zip(rows, settings, strict=True))
        automatic = [(row, current) for row, current in pairs if current.is_auto]
        feeds = [FeedLimits.of(current, self._block_size) for current in settings]
        if not automatic:
            return feeds
        if self._costs is None:
            raise DecodeError(NOT_MEASURED, tuple(row.number for row, _ in automatic))
        is_known = len(automatic) == len(rows) and all(row.drafter for row in rows)
        if num_unplanned and is_known:
            self._num_unplanned = num_unplanned - 1
            return [FeedLimits(0, 0)] * len(rows)
        widths = [
            plan_row(*pair, feed, True).layout.num_fed
            for pair, feed in zip(pairs, feeds, strict=True)
            if not pair[1].is_auto
        ]
        curve = self._curve = self._costs.curve(len(rows))
        drafters, offers = [], []
        for row, current in automatic:
            if row.drafter is None:
                row.drafter = Drafter(self._most_masks)
            num_drafts = row.num_drafts if current.is_verified else 0
            start = len(row.pending) - row.num_drafts
            drafters.append(row.drafter)
            offers.append(row.drafter.offers(current, start, num_drafts, curve))
        chosen = iter(choose(drafters, offers, curve, max(widths, default=1)))
        feeds = [
            FeedLimits.of_offer(next(chosen)) if current.is_auto else feed
            for feed, current in zip(feeds, settings, strict=True)
        ]
        if not any(feed.num_drafts or feed.num_masks for feed in feeds):
            # Choosing takes as long for each row, so a batch of n rows chooses every n-th pass.
            self._num_unplanned = len(rows) - 1
        return feeds

    def update(self, plan: RowPlan, acceptance: Acceptance) -> NextDrafts:
        """Update the statistics of a row after a forward pass and return its next drafts."""
        row, settings = plan.row, plan.settings
        if self._num_unplanned and row.drafter is not None:
            row.drafter.skip()
            return NextDrafts()
        if not settings.is_verified:
            if settings.is_auto and row.drafter is not None:
                row.drafter.observe_unverified(acceptance, max(plan.groups))
            return NextDrafts()
        if acceptance.stop in FINAL:
            return NextDrafts()
        ends = eos_in_force(settings, self._eos_ids)
        count = min(settings.num_guesses, plan.remaining - len(acceptance.emitted) - 1)
        last, drafts = acceptance.emitted[-1], acceptance.drafts
        guesses = settings.facts.guesses(last, drafts, count, ends)
        if guesses is not None:
            return NextDrafts(drafts, guessed=guesses)
        looked_up: list[int] = []
        num_matching = 0
        if settings.lookup:
            looked_up, num_matching = row.look_up(acceptance.emitted, MAX_DRAFTS)
            looked_up = up_to_end(looked_up, ends)
        if not settings.is_auto:
            looked_up = looked_up[: REACH[num_matching - 1]] if looked_up else []
            is_longer = len(looked_up) > len(drafts)
            return NextDrafts(looked_up=looked_up) if is_longer else NextDrafts(drafts)
        group = (
            acceptance.proposals[len(acceptance.emitted) :] if acceptance.has_continuation else ()
        )
        assert row.drafter is not None, "created before the forward pass"
        drafts, is_lookup = row.drafter.update(
            *(settings, acceptance.emitted, group, looked_up, num_matching, self._curve)
        )
        drafts = up_to_end(drafts, ends)
        row.drafter.truncate(len(drafts))
        return NextDrafts(looked_up=drafts) if is_lookup else NextDrafts(drafts)

    def declined(self, plan: RowPlan) -> tuple[float, ...]:
        """Return why hardly any masks were fed to a row that ends, as in RowStep."""
        drafter = plan.row.drafter
        if drafter is None or not plan.settings.is_auto:
            return ()
        return drafter.declined(self._curve)


def entropy(prediction: Proposal) -> float:
    """Return the entropy of a prediction in nats, from its runners-up; the remaining probability
    counts as one more outcome.
    """
    shares = [share for _, share in prediction.runners_up]
    shares.append(max(0.0, 1.0 - sum(shares)))
    return -sum(share * math.log(share) for share in shares if share > 0)


def threshold_for(settings: DecodeSettings, prediction: Proposal, raised: float) -> float:
    """Return the adapted τ of a forward pass in which ``prediction`` is AR's own."""
    share = raised
    if settings.tau_policy == "entropy":
        uncertain = entropy(prediction)
        share = next(share for limit, share in CLASSES if uncertain <= limit)
    return settings.tau + (1.0 - settings.tau) * share


def raised_after(raised: float, agreed: Iterable[bool], target: float) -> float:
    """Return the share of the distance from τ to 1 that is added after more tokens were checked.
    ``agreed``: for each, whether AR chose the same token.
    """
    for is_same in agreed:
        raised += -TAU_STEP * (1.0 - target) if is_same else TAU_STEP * target
        raised = min(MAX_RAISED, max(0.0, raised))
    return raised
