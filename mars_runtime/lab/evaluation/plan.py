"""What is to be measured: cells of a grid, each with a key that tells it from every other.

Knows no model, text or result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from mars_runtime.settings import BlockSize, DecodeSettings, Groups, Metric


@dataclass(frozen=True, slots=True)
class Grid:
    """Which ways of decoding to measure. AR is always measured: the others are compared with it.

    taus, block_sizes: MARS is measured on their product.
    lossless_taus, lossless_block_sizes: lossless MARS is measured on theirs, with each of
        ``groups``; has_lookup: also on lookup alone, and with lookup beside the last of ``groups``.
    """

    taus: tuple[float, ...] = (0.95,)
    block_sizes: tuple[BlockSize, ...] = (4,)
    lossless_taus: tuple[float, ...] = (0.0,)
    lossless_block_sizes: tuple[BlockSize, ...] = (8,)
    groups: tuple[Groups, ...] = ("one",)
    has_lookup: bool = False
    metric: Metric = "probability"
    max_new_tokens: int = 256

    def settings(self) -> Iterator[DecodeSettings]:
        """AR first, then MARS, then lossless MARS. Raises SettingsError for values out of range."""
        yield DecodeSettings("ar", 1.0, 1, self.metric, max_new_tokens=self.max_new_tokens)
        for block_size in self.block_sizes:
            for tau in self.taus:
                yield self._one(tau, block_size)
        lossless = [
            self._one(tau, block_size, lossless=True, groups=groups)
            for groups in self.groups
            for block_size in self.lossless_block_sizes
            for tau in self.lossless_taus
        ]
        yield from lossless
        if self.has_lookup:
            yield self._one(0.0, 1, lossless=True, lookup=True)
            beside = [one for one in lossless if one.groups == self.groups[-1]]
            yield from (replace(one, lookup=True) for one in beside)

    def limited_to(self, trained: int) -> Grid:
        """Without block sizes beyond ``trained``, the depth the weights have learned."""
        return replace(
            self,
            block_sizes=_within(trained, self.block_sizes),
            lossless_block_sizes=_within(trained, self.lossless_block_sizes),
        )

    def _one(
        self,
        tau: float,
        block_size: BlockSize,
        *,
        lossless: bool = False,
        groups: Groups = "one",
        lookup: bool = False,
    ) -> DecodeSettings:
        return DecodeSettings(
            tau=tau,
            block_size=block_size,
            metric=self.metric,
            lossless=lossless,
            max_new_tokens=self.max_new_tokens,
            groups=groups,
            lookup=lookup,
        )


def _within(trained: int, sizes: Sequence[BlockSize]) -> tuple[BlockSize, ...]:
    return tuple(size for size in sizes if 1 < (trained if size == "auto" else size) <= trained)


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: a checkpoint decodes the prompts of a family in one way.

    fingerprint: of the weights, prompts_id: of the prompts; either changes when the content does,
    so a result is never taken for that of other weights or other prompts.
    """

    checkpoint: str
    fingerprint: str
    dtype: str
    family: str
    prompts_id: str
    num_prompts: int
    settings: DecodeSettings

    @property
    def key(self) -> str:
        """Equal for two cells exactly when a result of one stands for the other."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def label(self) -> str:
        """A short line for people."""
        return f"{self.checkpoint} · {describe(self.settings)} · {self.family}"


def describe(settings: DecodeSettings) -> str:
    """``AR``, ``MARS τ=0.95 B=4``, ``lossless τ=0 B=4 groups + lookup``, ``lookup alone``; what is
    usual is left out."""
    if settings.method == "ar":
        return "AR"
    if settings.lookup and settings.block_size == 1:
        return "lookup alone"
    name = "lossless" if settings.lossless else "MARS"
    metric = "" if settings.metric == "probability" else f" {settings.metric}"
    groups = " groups" if settings.groups == "every" else ""
    lookup = " + lookup" if settings.lookup else ""
    return f"{name} τ={settings.tau:g} B={settings.block_size}{metric}{groups}{lookup}"


def digest(parts: Sequence[str]) -> str:
    """A short fingerprint of texts; their borders count."""
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()[:16]
