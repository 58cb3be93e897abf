"""Plain AR: one token per forward pass."""

from __future__ import annotations

from mars_runtime.decoders.methods.base import Method, MethodSettings


class Autoregression(Method):
    name = "ar"
    title = "plain AR"
    drafts = ""
    is_exact = True
    is_reference = True

    def describe(self, settings: MethodSettings) -> str:
        return "AR"

    def num_proposals(self, settings: MethodSettings) -> int:
        return 1
