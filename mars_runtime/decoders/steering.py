"""What each row of a forward feeds, and what it drafts next: by its settings, or by what pays.

Knows rows, judgements and costs; knows no tensors, model or cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mars_runtime.acceptance import DecodeError, Judgement, is_lossless, up_to_end
from mars_runtime.decoders.adaptive import Curve, ForwardCosts, Pilot
from mars_runtime.decoders.drafting import Drafter, basis_of
from mars_runtime.decoders.feed import Feed
from mars_runtime.decoders.lookup import REACH
from mars_runtime.decoders.plan import Plan
from mars_runtime.decoders.rows import Row
from mars_runtime.settings import MAX_DRAFTS, DecodeSettings


class Steering:
    """The choices of one batch. ``costs``: of forwards on its device; without them no row can leave
    B to be chosen. ``has_mask``: whether there is a mask token."""

    def __init__(
        self, costs: ForwardCosts | None, eos_ids: frozenset[int], *, has_mask: bool
    ) -> None:
        self._costs = costs
        self._eos_ids = eos_ids
        self._most_masks = costs.depth - 1 if costs is not None and has_mask else 0
        self._pilot = Pilot(costs) if costs is not None else None
        self._drafters: dict[int, Drafter] = {}
        self._curves: dict[int, Curve] = {}
        self._curve = Curve([1.0])  # of the rows of the latest forward

    def feeds(self, rows: Sequence[Row], settings: Sequence[DecodeSettings]) -> list[Feed]:
        """What the next forward may feed for each row. Raises DecodeError with the numbers of the
        rows that ask for what was not measured."""
        asked = {row.number: now for row, now in zip(rows, settings, strict=True) if now.is_auto}
        if not asked:
            return [Feed.of(now) for now in settings]
        if self._costs is None or self._pilot is None:
            sentence = "What forwards cost here was not measured: choose a number as B."
            raise DecodeError(sentence, tuple(asked))
        self._curve = self._curve_of(self._costs, len(rows))
        chosen = self._chosen(self._pilot, asked)
        return [
            chosen.get(row.number) or Feed.of(now) for row, now in zip(rows, settings, strict=True)
        ]

    def _chosen(self, pilot: Pilot, asked: Mapping[int, DecodeSettings]) -> dict[int, Feed]:
        unverified = {number: now for number, now in asked.items() if not is_lossless(now)}
        size = pilot.block_size(unverified) if unverified else 1
        return {
            number: Feed(0, size - 1, is_every=False)
            if number in unverified
            else self._drafter(number, now).feed(self._curve)
            for number, now in asked.items()
        }

    def settle(self, plan: Plan, verdict: Judgement) -> tuple[list[int], bool]:
        """Learn from a forward; returns what the row drafts, and whether that was looked up."""
        row, settings = plan.row, plan.settings
        if not is_lossless(settings):
            if settings.is_auto and self._pilot is not None:
                self._pilot.observe(row.number, verdict, 0, max(plan.groups) + 1)
            return [], False
        if verdict.stop in ("eos", "limit"):
            return [], False
        found: list[int] = []
        num_matching = 0
        if settings.lookup:
            found, num_matching = row.look_up(verdict.emitted, MAX_DRAFTS)
            found = up_to_end(found, self._eos_ids)
        if not settings.is_auto:
            found = found[: REACH[num_matching - 1]] if found else []
            is_longer = len(found) > len(verdict.drafts)
            return (found, True) if is_longer else (verdict.drafts, False)
        group = verdict.proposals[len(verdict.emitted) :] if verdict.may_go_on else ()
        drafter = self._drafter(row.number, settings)
        drafts, is_found = drafter.settle(
            verdict.emitted, verdict.num_agreed, group, found, num_matching, self._curve
        )
        drafts = up_to_end(drafts, self._eos_ids)
        drafter.cut(len(drafts))
        return drafts, is_found

    def forget(self, number: int) -> None:
        """The row is gone; its number may be used anew."""
        drafter = self._drafters.pop(number, None)
        if drafter is not None and self._costs is not None:
            self._costs.lessons[drafter.basis] = drafter
        if self._pilot is not None:
            self._pilot.forget(number)

    def _drafter(self, number: int, settings: DecodeSettings) -> Drafter:
        """That of the row; a new one when it begins or was steered."""
        drafter = self._drafters.get(number)
        if drafter is None or not drafter.fits(settings):
            before = self._costs.lessons.get(basis_of(settings)) if self._costs else None
            drafter = self._drafters[number] = Drafter(settings, self._most_masks, before)
        return drafter

    def _curve_of(self, costs: ForwardCosts, num_rows: int) -> Curve:
        if num_rows not in self._curves:
            self._curves[num_rows] = costs.curve(num_rows)
        return self._curves[num_rows]
