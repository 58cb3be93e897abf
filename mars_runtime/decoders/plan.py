"""Plan and settle one forward for each row of a cursor cache: what to feed, accept and draft next.

``Steering.feeds`` returns how much may be fed, ``plan_row`` builds the plan, and ``RowOutcome.of``
judges the predictions and lets ``Steering`` draft. Nothing is committed before every row has been
judged. The module works on values: it uses no tensors, model or cache.

τ of an unverified forward may adapt. Both rules start from the τ of the settings and never go below
it.

- Entropy: the more uncertain the forward's own AR token, the higher τ. The entropy, computed from
  the token's known rivals, falls into a class; each class moves τ a share of the way to 1.
- Agreement: accepted tokens are fed again as real tokens, and the same forward yields AR's choice
  for their positions at no extra cost. Each token that AR would not have chosen raises τ and each
  other token lowers it, in such proportion that they balance where the share of agreement is the
  target (the rule of adaptive conformal inference, arXiv 2106.00193).

The events of a run contain everything these decisions depend on, so they can be recomputed from its
trace.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mars_runtime.acceptance import (
    Acceptance,
    DecodeError,
    Penalty,
    eos_in_force,
    judge,
    num_proposals,
    up_to_end,
)
from mars_runtime.decoders.base import NOT_MEASURED, NoMaskError
from mars_runtime.decoders.draft_model import Drafted, DraftRequest, DraftRows
from mars_runtime.decoders.drafting import (
    PLAIN,
    BlockSizes,
    Drafter,
    FeedLimits,
    agreed_width,
)
from mars_runtime.decoders.forward_costs import Curve, ForwardCosts, reference_curve
from mars_runtime.decoders.lookup import REACH
from mars_runtime.decoders.rows import Row
from mars_runtime.events import FINAL, Proposal, RowStep
from mars_runtime.model.forward import Layout, MaskGroup
from mars_runtime.settings import MAX_DRAFTS, MAX_FED, DecodeSettings

NO_DRAFT = "No draft model is known here: choose another method."
CLASSES = ((0.05, 0.0), (0.3, 0.5), (1.0, 0.8), (math.inf, 0.95))
"""(maximum entropy in nats, share of the way from τ to 1) for each class."""
RATE = 0.2  # share of the way that one token moves τ, for a target of 1
MOST = 0.98  # maximum share of the way: at 1 no draft would be accepted and nothing learnt


@dataclass(slots=True)
class RowPlan:
    """What one forward does for one row.

    tokens: real tokens to feed, of which the last ``num_drafts`` are drafts. groups: masks after
    the token before the first draft, and after each draft. remaining: maximum number of tokens to
    emit.

    layout: how the tokens are laid out. is_tree: whether masks follow a token other than the last
    pending one. first_slot: the slot that predicts the first position not emitted yet. num_checks:
    slots read before it, which hold AR's choices for positions already emitted.
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
        follows = self.settings.is_adaptive and self.settings.tau_policy == "agreement"
        self.num_checks = self.first_slot if follows else 0

    @property
    def num_slots(self) -> int:
        """Number of consecutive slots to read: checks, AR's choice for each group, and its
        masks."""
        return self.num_checks + len(self.groups) + sum(self.groups)

    @property
    def first_read(self) -> int:
        """The first slot to read."""
        return self.first_slot - self.num_checks

    @property
    def drafts(self) -> list[int]:
        return self.tokens[len(self.tokens) - self.num_drafts :]

    def risen(self, checks: list[Proposal]) -> float:
        """Return how far τ has risen, given AR's choices for the row's latest tokens.

        The row itself is updated only when the forward is committed.
        """
        left = self.tokens[1 : 1 + len(checks)]
        agreed = [check.token == token for check, token in zip(checks, left, strict=True)]
        return raised_after(self.row.raised, agreed, self.settings.agreement_target)

    def read_positions(self) -> list[int]:
        """Return the positions of the slots to read, relative to the cursor."""
        layout = self.layout
        return layout.numbers(layout.num_fed)[0][self.first_read :]

    def penalty(
        self, cursor: int, first: int, vocab_size: int, eos_ids: frozenset[int]
    ) -> Penalty | None:
        """Return the penalties on tokens that occurred, for the slots from ``first`` on.

        The slot of a real token counts all tokens up to its own, drafts included. The slot of a
        mask counts the tokens up to the one that its group follows: later ones are unknown before
        the forward.
        """
        num_pending, text = len(self.tokens), self.row.text[:cursor] + self.tokens
        places, roots, _ = self.layout.numbers(self.layout.num_fed)
        known = [cursor + count for count in (*range(1, num_pending + 1), *roots[num_pending:])]
        positions = [cursor + place + 1 for place in places]
        return Penalty.of(
            *(self.settings, text, self.row.num_prompt, known[first:], vocab_size),
            *(eos_ids, positions[first:]),
        )

    def ranked(self, place: int) -> list[MaskGroup]:
        """Return the mask groups that a sampler head may rerank. ``place``: place of the row.

        The first mask of a group follows AR's choice behind the token that the group follows.
        Returns none for rows that sample, which keep the sampled token, and for the metric entropy,
        which does not score single candidates.
        """
        if self.settings.temperature > 0 or self.settings.metric == "entropy":
            return []
        groups, at = [], self.num_checks + len(self.groups)
        for number, size in enumerate(self.groups):
            if size:
                groups.append(MaskGroup(place, self.num_checks + number, range(at, at + size)))
            at += size
        return groups

    def split(self, slots: list[Proposal]) -> tuple[list[Proposal], list[list[Proposal]]]:
        """Split the slots into choices and groups, the arguments of ``acceptance.judge``."""
        at, groups = len(self.groups), []
        for size in self.groups:
            groups.append(slots[at : at + size])
            at += size
        return slots[: len(self.groups)], groups


def plan_row(row: Row, settings: DecodeSettings, feed: FeedLimits, has_mask: bool) -> RowPlan:
    """Return the plan of a row's next forward.

    Drafts are dropped when lossless was switched off or the limit was lowered; they were never
    emitted. feed: maximum drafts and masks. has_mask: whether there is a mask token. Raises
    DecodeError if one is needed and missing.
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
    """Return how many masks follow the last emitted token and each of ``num_drafts`` drafts.

    Leaves out masks that cannot be used and feeds at most MAX_FED tokens in all.
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
    """What a forward decided for a row, before it is committed.

    ahead: drafts for the next forward, without a draft model's. checks: AR's choices for the row's
    last tokens. raised: how far they raise τ. threshold: the resulting τ, if τ adapts.
    """

    plan: RowPlan
    judgement: Acceptance
    ahead: Ahead
    raised: float
    checks: tuple[Proposal, ...] = ()
    threshold: float | None = None

    @classmethod
    def of(
        cls, plan: RowPlan, slots: list[Proposal], steering: Steering, eos_ids: frozenset[int]
    ) -> RowOutcome:
        """Judge the predictions in the row's slots and draft for the next forward."""
        checks, slots = slots[: plan.num_checks], slots[plan.num_checks :]
        choices, groups = plan.split(slots)
        settings, raised, threshold = plan.settings, plan.row.raised, None
        if settings.is_adaptive:
            raised = plan.risen(checks)
            threshold = threshold_for(settings, choices[0], raised)
            settings = replace(settings, tau=threshold)
        written = plan.row.written if settings.stop_loops else ()
        judgement = judge(choices, groups, plan.drafts, settings, plan.remaining, eos_ids, written)
        ahead = steering.settle(plan, judgement)
        return cls(plan, judgement, ahead, raised, tuple(checks), threshold)

    def request(self, eos_ids: frozenset[int]) -> DraftRequest | None:
        """Return the request to a draft model, or None if there is nothing to draft."""
        settings, judgement, drafts = self.plan.settings, self.judgement, self.ahead.tokens
        if settings.method != "speculative" or judgement.stop in FINAL:
            return None
        room = self.plan.remaining - len(judgement.emitted) - 1
        at_most = min(settings.num_drafts, room) - len(drafts)
        if at_most < 1 or (drafts and drafts[-1] in eos_in_force(settings, eos_ids)):
            return None
        return DraftRequest(self.plan.row, judgement.emitted, drafts, at_most, settings)

    def step(self, cursor: int, drafted: Drafted) -> RowStep:
        """Return the event of the row."""
        plan, judgement, ahead = self.plan, self.judgement, self.ahead
        return RowStep(
            row=plan.row.number,
            start=plan.row.num_emitted,
            cursor=cursor,
            num_pending=len(plan.tokens),
            num_fed=plan.layout.num_fed,
            proposals=judgement.proposals,
            accepted=tuple(judgement.emitted),
            num_drafted=len(ahead.proposed),
            settings=plan.settings,
            stop=judgement.stop,
            block_size=max(plan.groups) + 1 if plan.settings.is_auto else 0,
            groups=plan.groups if plan.is_tree else (),
            looked_up=tuple(ahead.looked_up),
            guessed=(*ahead.guessed, *drafted.tokens),
            num_draft_forwards=drafted.num_forwards,
            checks=tuple((slot.token, slot.confidence) for slot in self.checks),
            threshold=self.threshold,
        )


def drafted_for(
    outcomes: Sequence[RowOutcome], draft_rows: DraftRows | None, eos_ids: frozenset[int]
) -> dict[int, Drafted]:
    """Return what draft models add to the drafts, by row number. Raises DecodeError."""
    requests = [
        request for outcome in outcomes if (request := outcome.request(eos_ids)) is not None
    ]
    if not requests:
        return {}
    if draft_rows is None:
        raise DecodeError(NO_DRAFT, tuple(request.row.number for request in requests))
    return draft_rows.propose(requests)


class Ahead(NamedTuple):
    """Draft tokens of a row: proposals of its forward or looked-up tokens, and guesses behind
    them."""

    proposed: Sequence[int] = ()
    looked_up: Sequence[int] = ()
    guessed: Sequence[int] = ()

    @property
    def tokens(self) -> list[int]:
        """All tokens that the next forward verifies."""
        return [*self.proposed, *self.looked_up, *self.guessed]


class Steering:
    """Decide what the rows of one batch draft, by their settings or by what pays.

    costs: of forwards on this device; None rejects automatic B. block_size: cap on B with a draft
    model. has_mask: whether there is a mask token.
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
        self._sizes = BlockSizes(costs) if costs is not None else None
        self._curve = Curve([1.0])  # of the rows of the latest forward

    def feeds(self, rows: Sequence[Row], settings: Sequence[DecodeSettings]) -> list[FeedLimits]:
        """Return what the next forward may feed for each row.

        Raises DecodeError with the numbers of the rows with automatic B if no costs were measured.
        """
        both = list(zip(rows, settings, strict=True))
        automatic = [row.number for row, current in both if current.is_auto]
        if not automatic:
            return [FeedLimits.of(current, self._block_size) for current in settings]
        if self._costs is None or self._sizes is None:
            raise DecodeError(NOT_MEASURED, tuple(automatic))
        self._curve = self._costs.curve(len(rows))
        unverified = [
            (row, current)
            for row, current in both
            if current.is_auto and not current.is_verified and current.auto_objective == "time"
        ]
        size = self._sizes.choose(unverified) if unverified else 1
        feeds = [self._feed(row, current, size) for row, current in both]
        return self._agreed(both, feeds) if len(rows) > 1 else feeds

    def _agreed(
        self, both: Sequence[tuple[Row, DecodeSettings]], feeds: Sequence[FeedLimits]
    ) -> list[FeedLimits]:
        """Let rows draft only as far as that pays for all rows of the forward.

        Returns ``feeds`` unchanged if a row's width is fixed or its objective is ``passes``.
        """
        stakes = []
        for row, current in both:
            if (
                current.is_auto
                and current.is_verified
                and current.auto_objective == "time"
                and row.drafter is not None
            ):
                stakes.append(row.drafter.stake)
            elif current.method == "ar":
                stakes.append(PLAIN)
            else:
                return list(feeds)
        width = agreed_width(stakes, self._curve)
        return [
            feed if stake.width <= width else FeedLimits(0, 0)
            for feed, stake in zip(feeds, stakes, strict=True)
        ]

    def _feed(self, row: Row, settings: DecodeSettings, size: int) -> FeedLimits:
        """Return what the next forward may feed for a row.

        size: the B that unverified rows share whose objective is least time. Where fewest passes
        are the objective, a row decides without the others.
        """
        if not settings.is_auto:
            return FeedLimits.of(settings, self._block_size)
        if settings.is_verified:
            return self._drafter(row, settings).feed(self._curve_for(settings))
        if settings.auto_objective == "passes":
            assert self._costs is not None, "checked by feeds"
            row.sizes = row.sizes or BlockSizes(self._costs)
            size = row.sizes.choose([(row, settings)])
        return FeedLimits(0, size - 1)

    def _curve_for(self, settings: DecodeSettings) -> Curve:
        """Return the costs that count for the objective: measured here, or the committed ones."""
        return reference_curve() if settings.auto_objective == "passes" else self._curve

    def settle(self, plan: RowPlan, judgement: Acceptance) -> Ahead:
        """Learn from a forward and return the row's drafts."""
        row, settings = plan.row, plan.settings
        if not settings.is_verified:
            if settings.is_auto and row.outlook is not None:
                row.outlook.observe(judgement, 0, max(plan.groups) + 1)
            return Ahead()
        if judgement.stop in FINAL:
            return Ahead()
        if settings.method == "jacobi":
            return self._guess(plan, judgement)
        looked_up: list[int] = []
        num_matching, ends = 0, eos_in_force(settings, self._eos_ids)
        if settings.lookup:
            looked_up, num_matching = row.look_up(judgement.emitted, MAX_DRAFTS)
            looked_up = up_to_end(looked_up, ends)
        if not settings.is_auto:
            looked_up = looked_up[: REACH[num_matching - 1]] if looked_up else []
            is_longer = len(looked_up) > len(judgement.drafts)
            return Ahead(looked_up=looked_up) if is_longer else Ahead(judgement.drafts)
        group = judgement.proposals[len(judgement.emitted) :] if judgement.may_go_on else ()
        drafter = self._drafter(row, settings)
        drafts, is_found = drafter.settle(
            judgement.emitted,
            judgement.num_agreed,
            group,
            looked_up,
            num_matching,
            self._curve_for(settings),
        )
        drafts = up_to_end(drafts, ends)
        drafter.cut(len(drafts))
        return Ahead(looked_up=drafts) if is_found else Ahead(drafts)

    def _guess(self, plan: RowPlan, judgement: Acceptance) -> Ahead:
        """Return the Jacobi guesses: as many as B and the limit allow."""
        last, answers, settings = judgement.emitted[-1], judgement.drafts, plan.settings
        count = min(settings.num_guesses, plan.remaining - len(judgement.emitted) - 1)
        ends = eos_in_force(settings, self._eos_ids)
        return Ahead(answers, guessed=first_guesses(last, answers, count, ends))

    def _drafter(self, row: Row, settings: DecodeSettings) -> Drafter:
        """Return the row's drafter; create one if it has none or the settings changed."""
        if row.drafter is None or not row.drafter.fits(settings):
            row.drafter = Drafter(settings, self._most_masks)
        return row.drafter


def first_guesses(last: int, answers: Sequence[int], count: int, ends: frozenset[int]) -> list[int]:
    """Return Jacobi guesses that extend ``answers`` to ``count`` tokens; none after an EOS token.

    last: the token before the answers, used if there are none. A position that is new in the window
    has no answer yet: its first guess repeats the token before it.
    """
    before = answers[-1] if answers else last
    return [] if before in ends else [before] * (count - len(answers))


def entropy(prediction: Proposal) -> float:
    """Return the entropy of a distribution in nats.

    It is computed from the token's runners-up, with the remaining probability as one more outcome.
    The runners-up are probabilities whatever the confidence metric is.
    """
    shares = [share for _, share in prediction.runners_up]
    shares.append(max(0.0, 1.0 - sum(shares)))
    return -sum(share * math.log(share) for share in shares if share > 0)


def threshold_for(settings: DecodeSettings, prediction: Proposal, raised: float) -> float:
    """Return τ of a forward whose AR token is ``prediction``.

    ``raised``: share of the way, by agreement.
    """
    share = raised
    if settings.tau_policy == "entropy":
        uncertain = entropy(prediction)
        share = next(share for limit, share in CLASSES if uncertain <= limit)
    return settings.tau + (1.0 - settings.tau) * share


def raised_after(raised: float, agreed: Iterable[bool], target: float) -> float:
    """Return how far τ has risen after tokens for which ``agreed`` says whether AR chose the
    same."""
    for is_same in agreed:
        raised += -RATE * (1.0 - target) if is_same else RATE * target
        raised = min(MOST, max(0.0, raised))
    return raised
