"""What each row of a forward feeds, and what it drafts next: by its settings, or by what pays.

Knows rows, judgements and costs; knows no tensors, model or cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mars_runtime.acceptance import DecodeError, Judgement, up_to_end
from mars_runtime.decoders.adaptive import Curve, ForwardCosts, Pilot
from mars_runtime.decoders.drafting import Drafter, basis_of
from mars_runtime.decoders.feed import Feed
from mars_runtime.decoders.jacobi import first_guesses
from mars_runtime.decoders.lookup import REACH
from mars_runtime.decoders.plan import Plan
from mars_runtime.decoders.rows import Row
from mars_runtime.settings import MAX_DRAFTS, DecodeSettings


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
    """The choices of one batch. ``costs``: of forwards on its device; without them no row can leave
    B to be chosen. ``block_size``: the most masks and one that a model is fed beside a draft model.
    ``has_mask``: whether there is a mask token."""

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
        self._pilot = Pilot(costs) if costs is not None else None
        self._drafters: dict[int, Drafter] = {}
        self._curve = Curve([1.0])  # of the rows of the latest forward

    def feeds(self, rows: Sequence[Row], settings: Sequence[DecodeSettings]) -> list[Feed]:
        """What the next forward may feed for each row. Raises DecodeError with the numbers of the
        rows that ask for what was not measured."""
        asked = {row.number: now for row, now in zip(rows, settings, strict=True) if now.is_auto}
        if not asked:
            return [Feed.of(now, self._block_size) for now in settings]
        if self._costs is None or self._pilot is None:
            sentence = "What forwards cost here was not measured: choose a number as B."
            raise DecodeError(sentence, tuple(asked))
        self._curve = self._costs.curve(len(rows))
        chosen = self._chosen(self._pilot, asked)
        return [
            chosen.get(row.number) or Feed.of(now, self._block_size)
            for row, now in zip(rows, settings, strict=True)
        ]

    def _chosen(self, pilot: Pilot, asked: Mapping[int, DecodeSettings]) -> dict[int, Feed]:
        unverified = {number: now for number, now in asked.items() if not now.is_verified}
        size = pilot.block_size(unverified) if unverified else 1
        return {
            number: Feed(0, size - 1, is_every=False)
            if number in unverified
            else self._drafter(number, now).feed(self._curve)
            for number, now in asked.items()
        }

    def settle(self, plan: Plan, verdict: Judgement) -> Ahead:
        """Learn from a forward and say what the row drafts."""
        row, settings = plan.row, plan.settings
        if not settings.is_verified:
            if settings.is_auto and self._pilot is not None:
                self._pilot.observe(row.number, verdict, 0, max(plan.groups) + 1)
            return Ahead()
        if verdict.stop in ("eos", "limit"):
            return Ahead()
        if settings.method == "jacobi":
            return self._guess(plan, verdict)
        found: list[int] = []
        num_matching = 0
        if settings.lookup:
            found, num_matching = row.look_up(verdict.emitted, MAX_DRAFTS)
            found = up_to_end(found, self._eos_ids)
        if not settings.is_auto:
            found = found[: REACH[num_matching - 1]] if found else []
            is_longer = len(found) > len(verdict.drafts)
            return Ahead(looked_up=found) if is_longer else Ahead(verdict.drafts)
        group = verdict.proposals[len(verdict.emitted) :] if verdict.may_go_on else ()
        drafter = self._drafter(row.number, settings)
        drafts, is_found = drafter.settle(
            verdict.emitted, verdict.num_agreed, group, found, num_matching, self._curve
        )
        drafts = up_to_end(drafts, self._eos_ids)
        drafter.cut(len(drafts))
        return Ahead(looked_up=drafts) if is_found else Ahead(drafts)

    def _guess(self, plan: Plan, verdict: Judgement) -> Ahead:
        """As many guesses as B and the limit leave room for."""
        last, answers = verdict.emitted[-1], verdict.drafts
        count = min(plan.settings.num_guesses, plan.remaining - len(verdict.emitted) - 1)
        return Ahead(answers, guessed=first_guesses(last, answers, count, self._eos_ids))

    def forget(self, number: int) -> None:
        """The row is gone; its number may be used anew."""
        drafter = self._drafters.pop(number, None)
        if drafter is not None and self._costs is not None:
            self._costs.learn(drafter.basis, drafter)
        if self._pilot is not None:
            self._pilot.forget(number)

    def _drafter(self, number: int, settings: DecodeSettings) -> Drafter:
        """That of the row; a new one when it begins or was steered."""
        drafter = self._drafters.get(number)
        if drafter is None or not drafter.fits(settings):
            before = self._costs.lessons.get(basis_of(settings)) if self._costs else None
            drafter = self._drafters[number] = Drafter(settings, self._most_masks, before)
        return drafter
