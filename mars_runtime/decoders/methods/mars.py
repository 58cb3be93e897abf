"""MARS: masks propose tokens, which are accepted by confidence (arXiv 2604.07023)."""

from __future__ import annotations

from mars_runtime.decoders.methods.base import Method, MethodSettings

AR_LOOKUP = "AR + lookup"


class Mars(Method):
    name = "mars"
    title = "MARS"
    obeys = frozenset(
        {
            *("tau", "block_size", "lossless", "mask_layout", "lookup"),
            *("tau_policy", "agreement_target"),
        }
    )
    has_auto = True
    needs = "a mask token"

    def describe(self, settings: MethodSettings) -> str:
        lookup = " + lookup" if settings.lookup else ""
        if settings.is_ar_lookup:
            return AR_LOOKUP
        policy = "fixed" if settings.lossless else settings.tau_policy
        if policy == "agreement":
            target = f"MARS agreement {settings.agreement_target:g}"
            return f"{target} τ≥{settings.tau:g} B={settings.block_size}"
        name = "lossless" if settings.lossless else "MARS"
        name += " entropy" if policy == "entropy" else ""
        metric = "" if settings.metric == "probability" else f" {settings.metric}"
        groups = " groups" if settings.mask_layout == "every" else ""
        return f"{name} τ={settings.tau:g} B={settings.block_size}{metric}{groups}{lookup}"
