"""What a forward decided for each row, before anything of it is final.

Knows predictions as values, plans and draft models as ``partner.py`` has them; knows no tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mars_runtime.acceptance import DecodeError, Judgement, judge
from mars_runtime.decoders.partner import Added, Partner, Wish
from mars_runtime.decoders.plan import Plan
from mars_runtime.decoders.steering import Ahead, Steering
from mars_runtime.decoders.threshold import threshold_for
from mars_runtime.events import Proposal, RowStep

NO_DRAFT = "No draft model is known here: choose another method."


@dataclass(frozen=True, slots=True)
class Judged:
    """A row's verdict, what it drafts for the next forward without a draft model, what AR said of
    its last tokens, how far that raises tau, and the tau that this led to, where tau adapts."""

    plan: Plan
    verdict: Judgement
    ahead: Ahead
    raised: float
    checks: tuple[Proposal, ...] = ()
    threshold: float | None = None

    @classmethod
    def of(
        cls, plan: Plan, slots: list[Proposal], steering: Steering, eos_ids: frozenset[int]
    ) -> Judged:
        """By what the row's slots predict."""
        checks, slots = slots[: plan.num_checks], slots[plan.num_checks :]
        choices, groups = plan.split(slots)
        held, raised, threshold = plan.settings, plan.row.raised, None
        if held.is_adaptive:
            raised = plan.risen(checks)
            threshold = threshold_for(held, choices[0], raised)
            held = replace(held, tau=threshold)
        verdict = judge(choices, groups, plan.drafts, held, plan.remaining, eos_ids)
        ahead = steering.settle(plan, verdict)
        return cls(plan, verdict, ahead, raised, tuple(checks), threshold)

    def wish(self, eos_ids: frozenset[int]) -> Wish | None:
        """What a draft model is to add; None where it has nothing to do."""
        settings, verdict, drafts = self.plan.settings, self.verdict, self.ahead.tokens
        if settings.method != "speculative" or verdict.stop in ("eos", "limit"):
            return None
        room = self.plan.remaining - len(verdict.emitted) - 1
        at_most = min(settings.num_drafts, room) - len(drafts)
        if at_most < 1 or (drafts and drafts[-1] in eos_ids):
            return None
        return Wish(self.plan.row, verdict.emitted, drafts, at_most, settings)

    def step(self, cursor: int, num_fed: int, added: Added) -> RowStep:
        """The event of the row."""
        plan, verdict, ahead = self.plan, self.verdict, self.ahead
        return RowStep(
            row=plan.row.number,
            start=plan.row.num_emitted,
            cursor=cursor,
            num_pending=len(plan.tokens),
            num_fed=num_fed,
            proposals=verdict.proposals,
            accepted=tuple(verdict.emitted),
            num_drafted=len(ahead.proposed),
            settings=plan.settings,
            stop=verdict.stop,
            block_size=max(plan.groups) + 1 if plan.settings.is_auto else 0,
            groups=plan.groups if plan.is_tree else (),
            looked_up=tuple(ahead.looked_up),
            guessed=(*ahead.guessed, *added.tokens),
            num_draft_forwards=added.num_forwards,
            checks=tuple((slot.token, slot.confidence) for slot in self.checks),
            threshold=self.threshold,
        )


def added_to(
    judged: Sequence[Judged], partner: Partner | None, eos_ids: frozenset[int]
) -> dict[int, Added]:
    """What draft models put behind the drafts, by number of the row. Raises DecodeError."""
    wishes = [wish for one in judged if (wish := one.wish(eos_ids)) is not None]
    if not wishes:
        return {}
    if partner is None:
        raise DecodeError(NO_DRAFT, tuple(wish.row.number for wish in wishes))
    return partner.extend(wishes)
