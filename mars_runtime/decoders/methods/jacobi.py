"""Jacobi decoding: the predictions of a forward pass are verified as guesses in the next one."""

from __future__ import annotations

from collections.abc import Sequence

from mars_runtime.decoders.methods.base import Method, MethodSettings, Source, fixed_size


class Jacobi(Method):
    name = "jacobi"
    title = "Jacobi"
    drafts = "guesses"
    obeys = frozenset({"block_size"})
    is_exact = True

    def num_proposals(self, settings: MethodSettings) -> int:
        return 1

    def num_guesses(self, settings: MethodSettings) -> int:
        return fixed_size(settings) - 1

    def max_fed(self, settings: MethodSettings, trained: int) -> tuple[int, int]:
        return self.num_guesses(settings), 0

    def num_accepted(
        self, confidences: Sequence[float], settings: MethodSettings, remaining: int
    ) -> int:
        """Accept all predictions as guesses, at most as many as fit."""
        return 1 + max(0, min(self.num_guesses(settings), remaining - 2))

    def guesses(
        self, last: int, drafts: Sequence[int], count: int, ends: frozenset[int]
    ) -> list[int] | None:
        """Repeat the last of AR's choices, or the last emitted token if there are none."""
        before = drafts[-1] if drafts else last
        return [] if before in ends else [before] * (count - len(drafts))

    def draft_source(self, *, is_guessed: bool, is_looked_up: bool) -> Source:
        return "guesses"
