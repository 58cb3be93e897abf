"""What one forward does for each row of a cursor cache: what is fed, decided and drafted next.

``Steering.feeds`` says how much may be fed, ``plan_row`` what is, ``RowOutcome.of`` judges what
came back and lets ``Steering`` draft. Nothing of it is final before every row has been judged. By
values alone: no tensors, model or cache.

τ of an unverified forward may adapt. Both rules start from the floor that the settings name as τ
and never go below it.

- By entropy: a forward whose own AR token was uncertain is not to be trusted with more. How
  uncertain, by what is known of its rivals, falls into a class, and each class goes a share of the
  way from the floor to 1.
- By agreement: accepted tokens come back as real ones, and the same forward says for free what AR
  would have chosen in their positions. Each that AR would not have chosen raises the threshold,
  each other lowers it, in such proportion that the two balance where the share of agreement is the
  target (adaptive conformal inference, arXiv 2106.00193, is the same rule).

Everything that decides is in the events of the run, so it can be worked out again from its trace.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mars_runtime.acceptance import (
    DecodeError,
    Judgement,
    Penalty,
    judge,
    num_proposals,
    up_to_end,
)
from mars_runtime.decoders.base import NoMaskError
from mars_runtime.decoders.draft_model import Drafted, DraftRequest, DraftRows
from mars_runtime.decoders.drafting import (
    PLAIN,
    BlockSizes,
    Drafter,
    Feed,
    agreed_width,
    basis_of,
)
from mars_runtime.decoders.forward_costs import Curve, ForwardCosts, reference_curve
from mars_runtime.decoders.lookup import REACH
from mars_runtime.decoders.rows import Row
from mars_runtime.events import FINAL, Proposal, RowStep
from mars_runtime.model.forward import Layout, MaskGroup
from mars_runtime.settings import MAX_DRAFTS, MAX_FED, DecodeSettings

NO_DRAFT = "No draft model is known here: choose another method."
CLASSES = ((0.05, 0.0), (0.3, 0.5), (1.0, 0.8), (math.inf, 0.95))
"""Entropies in nats up to which a class goes, and the share of the way from the floor to 1."""
RATE = 0.2  # of the way, for a target of 1, that one token moves the threshold
MOST = 0.98  # of the way: at 1 itself nothing more would be taken, and nothing learnt


@dataclass(slots=True)
class RowPlan:
    """What one forward will do for one row: the settings in force, the real tokens to feed, how
    many of them are drafts, the masks after each of those and after the one before, and how many
    tokens may leave.

    layout: how the tokens are fed. is_tree: whether masks stand after other tokens than the last
    pending one. first_slot: the slot that predicts the first position not yet emitted. num_checks:
    slots before it that are read too, for what AR would have chosen in the positions of tokens that
    have left.
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
        follows = self.settings.is_adaptive and self.settings.threshold == "agreement"
        self.num_checks = self.first_slot if follows else 0

    @property
    def num_slots(self) -> int:
        """Slots to be read, one after the other: checks, a choice of AR for each group, and its
        masks."""
        return self.num_checks + len(self.groups) + sum(self.groups)

    @property
    def first_read(self) -> int:
        """The first slot to be read."""
        return self.first_slot - self.num_checks

    @property
    def drafts(self) -> list[int]:
        return self.tokens[len(self.tokens) - self.num_drafts :]

    def risen(self, checks: list[Proposal]) -> float:
        """How far τ has risen, with what AR chose in the positions of the row's latest tokens. The
        row learns it once the forward is settled."""
        left = self.tokens[1 : 1 + len(checks)]
        agreed = [check.token == token for check, token in zip(checks, left, strict=True)]
        return raised_after(self.row.raised, agreed, self.settings.target)

    def read_positions(self) -> list[int]:
        """Where the slots to be read stand, counted from the cursor."""
        layout = self.layout
        return layout.numbers(layout.num_fed)[0][self.first_read :]

    def penalty(
        self, cursor: int, first: int, vocab_size: int, eos_ids: frozenset[int]
    ) -> Penalty | None:
        """What is held against tokens that occurred, of the slots from ``first`` on. A real token's
        slot goes by all tokens up to its own, drafts among them; a mask's by those up to the token
        that its group stands after, for the others are not known before the forward."""
        num_pending, text = len(self.tokens), self.row.text[:cursor] + self.tokens
        places, roots, _ = self.layout.numbers(self.layout.num_fed)
        known = [cursor + count for count in (*range(1, num_pending + 1), *roots[num_pending:])]
        positions = [cursor + place + 1 for place in places]
        return Penalty.of(
            *(self.settings, text, self.row.num_prompt, known[first:], vocab_size),
            *(eos_ids, positions[first:]),
        )

    def ranked(self, place: int) -> list[MaskGroup]:
        """The masks that a sampler head may choose anew; ``place``: of the row in the forward.

        The first mask of a group follows what AR chose behind the token that the group stands
        after. Rows that draw keep what was drawn; entropy says nothing of single candidates.
        """
        if self.settings.temperature > 0 or self.settings.metric == "entropy":
            return []
        found, at = [], self.num_checks + len(self.groups)
        for number, size in enumerate(self.groups):
            if size:
                found.append(MaskGroup(place, self.num_checks + number, range(at, at + size)))
            at += size
        return found

    def split(self, slots: list[Proposal]) -> tuple[list[Proposal], list[list[Proposal]]]:
        """What the slots predict, as ``acceptance.judge`` asks for it: choices and groups."""
        at, groups = len(self.groups), []
        for size in self.groups:
            groups.append(slots[at : at + size])
            at += size
        return slots[: len(self.groups)], groups


def plan_row(row: Row, settings: DecodeSettings, feed: Feed, has_mask: bool) -> RowPlan:
    """Drafts are dropped when lossless was switched off or the limit was lowered: they never left,
    so nobody misses them.

    feed: what may be fed at most. has_mask: whether there is a mask token. Raises DecodeError where
    one is needed.
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
    settings: DecodeSettings, feed: Feed, remaining: int, num_drafts: int
) -> tuple[int, ...]:
    """Masks after the last emitted token and after each of ``num_drafts`` drafts: none that could
    not be of use, and no more than MAX_FED tokens in all."""
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
    """What a forward decided for a row, before anything of it is final: its judgement, what the row
    drafts for the next forward without a draft model, what AR said of its last tokens, how far that
    raises tau, and the tau that this led to, where tau adapts."""

    plan: RowPlan
    judgement: Judgement
    ahead: Ahead
    raised: float
    checks: tuple[Proposal, ...] = ()
    threshold: float | None = None

    @classmethod
    def of(
        cls, plan: RowPlan, slots: list[Proposal], steering: Steering, eos_ids: frozenset[int]
    ) -> RowOutcome:
        """By what the row's slots predict."""
        checks, slots = slots[: plan.num_checks], slots[plan.num_checks :]
        choices, groups = plan.split(slots)
        held, raised, threshold = plan.settings, plan.row.raised, None
        if held.is_adaptive:
            raised = plan.risen(checks)
            threshold = threshold_for(held, choices[0], raised)
            held = replace(held, tau=threshold)
        written = plan.row.written if held.stop_loops else ()
        judgement = judge(choices, groups, plan.drafts, held, plan.remaining, eos_ids, written)
        ahead = steering.settle(plan, judgement)
        return cls(plan, judgement, ahead, raised, tuple(checks), threshold)

    def request(self, eos_ids: frozenset[int]) -> DraftRequest | None:
        """What a draft model is to add; None where it has nothing to do."""
        settings, judgement, drafts = self.plan.settings, self.judgement, self.ahead.tokens
        if settings.method != "speculative" or judgement.stop in FINAL:
            return None
        room = self.plan.remaining - len(judgement.emitted) - 1
        at_most = min(settings.num_drafts, room) - len(drafts)
        if at_most < 1 or (drafts and drafts[-1] in eos_ids):
            return None
        return DraftRequest(self.plan.row, judgement.emitted, drafts, at_most, settings)

    def step(self, cursor: int, drafted: Drafted) -> RowStep:
        """The event of the row."""
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
    """What draft models put behind the drafts, by number of the row. Raises DecodeError."""
    requests = [found for one in outcomes if (found := one.request(eos_ids)) is not None]
    if not requests:
        return {}
    if draft_rows is None:
        raise DecodeError(NO_DRAFT, tuple(request.row.number for request in requests))
    return draft_rows.propose(requests)


class Ahead(NamedTuple):
    """What a row drafts: proposals of its forward, or what was looked up in its place, and guesses
    behind the proposals. All are tokens."""

    proposed: Sequence[int] = ()
    looked_up: Sequence[int] = ()
    guessed: Sequence[int] = ()

    @property
    def tokens(self) -> list[int]:
        """What the next forward verifies."""
        return [*self.proposed, *self.looked_up, *self.guessed]


class Steering:
    """What the rows of one batch draft: by their settings, or by what pays. ``costs``: of forwards
    on its device; without them no row can leave B to be chosen. ``block_size``: the most masks and
    one that a model is fed beside a draft model. ``has_mask``: whether there is a mask token."""

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

    def feeds(self, rows: Sequence[Row], settings: Sequence[DecodeSettings]) -> list[Feed]:
        """What the next forward may feed for each row. Raises DecodeError with the numbers of the
        rows that ask for what was not measured."""
        both = list(zip(rows, settings, strict=True))
        asked = [row.number for row, now in both if now.is_auto]
        if not asked:
            return [Feed.of(now, self._block_size) for now in settings]
        if self._costs is None or self._sizes is None:
            sentence = "What forwards cost here was not measured: choose a number as B."
            raise DecodeError(sentence, tuple(asked))
        self._curve = self._costs.curve(len(rows))
        unverified = [
            (row, now)
            for row, now in both
            if now.is_auto and not now.is_verified and now.aim == "time"
        ]
        size = self._sizes.choose(unverified) if unverified else 1
        feeds = [self._feed(row, now, size) for row, now in both]
        return self._agreed(both, feeds) if len(rows) > 1 else feeds

    def _agreed(
        self, both: Sequence[tuple[Row, DecodeSettings]], feeds: Sequence[Feed]
    ) -> list[Feed]:
        """Let rows draft only as far as that pays for all that share the forward. Where a row's
        width is fixed, or fewest passes are wanted, nothing is taken back."""
        stakes = []
        for row, now in both:
            if now.is_auto and now.is_verified and now.aim == "time" and row.drafter is not None:
                stakes.append(row.drafter.stake)
            elif now.method == "ar":
                stakes.append(PLAIN)
            else:
                return list(feeds)
        width = agreed_width(stakes, self._curve)
        return [
            feed if stake.width <= width else Feed(0, 0)
            for feed, stake in zip(feeds, stakes, strict=True)
        ]

    def _feed(self, row: Row, now: DecodeSettings, size: int) -> Feed:
        """Return what the next forward may feed for a row.

        size: the B that unverified rows share whose objective is least time. Where fewest passes
        are the objective, a row decides without the others.
        """
        if not now.is_auto:
            return Feed.of(now, self._block_size)
        if now.is_verified:
            return self._drafter(row, now).feed(self._curve_for(now))
        if now.aim == "passes":
            assert self._costs is not None, "checked by feeds"
            row.sizes = row.sizes or BlockSizes(self._costs)
            size = row.sizes.choose([(row, now)])
        return Feed(0, size - 1)

    def _curve_for(self, settings: DecodeSettings) -> Curve:
        """Return the costs that count for the objective: measured here, or the committed ones."""
        return reference_curve() if settings.aim == "passes" else self._curve

    def settle(self, plan: RowPlan, judgement: Judgement) -> Ahead:
        """Learn from a forward and say what the row drafts."""
        row, settings = plan.row, plan.settings
        if not settings.is_verified:
            if settings.is_auto and row.outlook is not None:
                row.outlook.observe(judgement, 0, max(plan.groups) + 1)
            return Ahead()
        if judgement.stop in FINAL:
            return Ahead()
        if settings.method == "jacobi":
            return self._guess(plan, judgement)
        found: list[int] = []
        num_matching = 0
        if settings.lookup:
            found, num_matching = row.look_up(judgement.emitted, MAX_DRAFTS)
            found = up_to_end(found, self._eos_ids)
        if not settings.is_auto:
            found = found[: REACH[num_matching - 1]] if found else []
            is_longer = len(found) > len(judgement.drafts)
            return Ahead(looked_up=found) if is_longer else Ahead(judgement.drafts)
        group = judgement.proposals[len(judgement.emitted) :] if judgement.may_go_on else ()
        drafter = self._drafter(row, settings)
        drafts, is_found = drafter.settle(
            judgement.emitted,
            judgement.num_agreed,
            group,
            found,
            num_matching,
            self._curve_for(settings),
        )
        drafts = up_to_end(drafts, self._eos_ids)
        drafter.cut(len(drafts))
        return Ahead(looked_up=drafts) if is_found else Ahead(drafts)

    def _guess(self, plan: RowPlan, judgement: Judgement) -> Ahead:
        """As many guesses as B and the limit leave room for."""
        last, answers = judgement.emitted[-1], judgement.drafts
        count = min(plan.settings.num_guesses, plan.remaining - len(judgement.emitted) - 1)
        return Ahead(answers, guessed=first_guesses(last, answers, count, self._eos_ids))

    def leave(self, row: Row) -> None:
        """Keep what a row taught that has ended, for those after it."""
        if row.drafter is not None and row.drafter.is_taught and self._costs is not None:
            self._costs.learn(row.drafter.basis, row.drafter)

    def _drafter(self, row: Row, settings: DecodeSettings) -> Drafter:
        """That of the row; a new one when it begins or was steered."""
        if row.drafter is None or not row.drafter.fits(settings):
            before = self._costs.lessons.get(basis_of(settings)) if self._costs else None
            row.drafter = Drafter(settings, self._most_masks, before)
        return row.drafter


def first_guesses(last: int, answers: Sequence[int], count: int, ends: frozenset[int]) -> list[int]:
    """Guesses of Jacobi decoding behind ``answers`` that make ``count`` of both; none behind an end
    of the text.

    last: the token before the answers, which counts where there are none of those. A position that
    comes into the window new has no answer yet: its first guess is the token before it, once more.
    """
    before = answers[-1] if answers else last
    return [] if before in ends else [before] * (count - len(answers))


def entropy(own: Proposal) -> float:
    """Of a distribution in nats, by the runners-up of its token and all the rest as if it were one:
    they are probabilities whatever the confidence is."""
    shares = [share for _, share in own.runners_up]
    shares.append(max(0.0, 1.0 - sum(shares)))
    return -sum(share * math.log(share) for share in shares if share > 0)


def threshold_for(settings: DecodeSettings, own: Proposal, raised: float) -> float:
    """τ of a forward whose own AR token is ``own``; ``raised``: of the way, by agreement."""
    share = raised
    if settings.threshold == "entropy":
        uncertain = entropy(own)
        share = next(share for most, share in CLASSES if uncertain <= most)
    return settings.tau + (1.0 - settings.tau) * share


def raised_after(raised: float, agreed: Iterable[bool], target: float) -> float:
    """How far the threshold stands after tokens of which AR would have chosen those that
    ``agreed``."""
    for is_same in agreed:
        raised += -RATE * (1.0 - target) if is_same else RATE * target
        raised = min(MOST, max(0.0, raised))
    return raised
