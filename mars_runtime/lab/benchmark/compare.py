"""Comparisons of a measured series: ratios with intervals, conversion, agreement. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mars_runtime.lab.benchmark import plan
from mars_runtime.lab.benchmark.measure import Measured
from mars_runtime.lab.benchmark.paired import Sample, agreement, fastest, ratio
from mars_runtime.lab.benchmark.plan import Comparison
from mars_runtime.statistics import Estimate
from mars_runtime.tasks import NATURAL


@dataclass(frozen=True, slots=True)
class Compared:
    """How many times the tokens/s of the baseline, prefill apart unless it says ``whole``.

    overall: families count alike, natural text left out. by_family: each, natural text too.
    eta: speedup over tokens saved, for this runtime's ways. agreement: rows with the same tokens.
    """

    batch_size: int
    peer: str
    baseline: str
    overall: Estimate | None
    whole: Estimate | None
    by_family: dict[str, Estimate | None]
    eta: Estimate | None
    agreement: float | None

    @property
    def name(self) -> str:
        return f"{self.peer} / {self.baseline}"

    @property
    def natural(self) -> Estimate | None:
        return self.by_family.get(NATURAL)

    @property
    def least(self) -> tuple[str, Estimate] | None:
        """The family with the smallest ratio."""
        known = [
            (family, found)
            for family, found in self.by_family.items()
            if found is not None and family != NATURAL
        ]
        return min(known, key=lambda pair: pair[1].value) if known else None


def compare(measured: Measured, comparison: Comparison) -> Compared:
    """One comparison, over all families of the series, natural text apart."""
    samples, peer, baseline = measured.samples, comparison.peer, comparison.baseline
    families = [family for family in measured.families if family != NATURAL]
    return Compared(
        batch_size=measured.batch_size,
        peer=peer,
        baseline=baseline,
        overall=ratio(samples, peer, baseline, families, "decode"),
        whole=ratio(samples, peer, baseline, families, "whole"),
        by_family={
            family: ratio(samples, peer, baseline, [family], "decode")
            for family in measured.families
        },
        eta=ratio(samples, peer, baseline, families, "decode", "eta")
        if comparison.has_eta
        else None,
        agreement=agreement(samples, peer, baseline),
    )


def compare_all(measured: Measured, cursor: str | None) -> list[Compared]:
    """Every comparison that ``plan`` makes of the peers that ran. ``cursor`` is the way that block
    cache and no cache decode too."""
    wanted = plan.comparisons(measured.peers)
    wanted += plan.against_block(measured.peers, best_block(measured), cursor)
    return [compare(measured, one) for one in wanted]


def best_block(measured: Measured) -> str | None:
    """The size of the block cache with the most tokens per second."""
    blocks = [peer for peer in measured.peers if peer.startswith(plan.BLOCK_CACHE)]
    return fastest(_without_natural(measured), blocks)


def best_transformers(measured: Measured) -> str | None:
    """transformers' fastest way of those that ran."""
    return fastest(_without_natural(measured), plan.TRANSFORMERS)


def find(found: Sequence[Compared], peer: str, baseline: str | None) -> Compared | None:
    """The comparison of two peers, None if it was not made."""
    return next((one for one in found if (one.peer, one.baseline) == (peer, baseline)), None)


def _without_natural(measured: Measured) -> list[Sample]:
    own = [one for one in measured.samples if one.family != NATURAL]
    return own or list(measured.samples)
