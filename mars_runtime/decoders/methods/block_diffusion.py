"""Block diffusion: masks of a block are filled in order of confidence (arXiv 2503.09573)."""

from __future__ import annotations

from mars_runtime.decoders.methods.base import Method, MethodSettings, Source


class BlockDiffusion(Method):
    name = "block_diffusion"
    title = "block diffusion"
    drafts = "blocks"
    obeys = frozenset({"tau", "block_size"})
    refuses = frozenset(
        {
            *("repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias"),
            "min_tokens",
        }
    )
    has_auto = True
    needs = "a checkpoint trained to fill blocks in any order"
    is_alone = True

    def describe(self, settings: MethodSettings) -> str:
        return f"block diffusion τ={settings.tau:g} B={settings.block_size}"

    def num_proposals(self, settings: MethodSettings) -> int:
        return 1

    def source(self, index: int) -> Source:
        return "masks"
