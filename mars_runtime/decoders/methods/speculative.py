"""Speculative decoding: a second, smaller model drafts (arXiv 2211.17192)."""

from __future__ import annotations

from mars_runtime.decoders.methods.base import (
    MAX_DRAFTS,
    Method,
    MethodSettings,
    Source,
    fixed_size,
)


class Speculative(Method):
    name = "speculative"
    title = "speculative"
    drafts = "a draft model"
    obeys = frozenset({"tau", "block_size", "mask_layout", "lookup", "draft", "masked"})
    is_exact = True
    needs = "a draft model that shares its vocabulary"
    needs_draft_model = True

    def describe(self, settings: MethodSettings) -> str:
        masked = "no masks" if settings.masked == "none" else f"masks in {settings.masked}"
        return f"speculative {settings.draft} K={self.num_guesses(settings)}, {masked}"

    def num_proposals(self, settings: MethodSettings) -> int:
        return super().num_proposals(settings) if settings.masked in ("both", "target") else 1

    def num_guesses(self, settings: MethodSettings) -> int:
        return min(fixed_size(settings), MAX_DRAFTS)

    def max_fed(self, settings: MethodSettings, trained: int) -> tuple[int, int]:
        """B is meant for the draft model, so the target uses at most ``trained``."""
        num_drafts, num_masks = super().max_fed(settings, trained)
        return num_drafts, min(num_masks, trained - 1)

    def draft_source(self, *, is_guessed: bool, is_looked_up: bool) -> Source:
        if is_guessed:
            return "draft model"
        return super().draft_source(is_guessed=is_guessed, is_looked_up=is_looked_up)
