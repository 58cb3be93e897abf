"""What is to be measured: cells of a grid, each with a key that tells it from every other.

Knows no model, text or result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mars_runtime.methods import METHODS, Method
from mars_runtime.settings import (
    MASKED,
    BlockSize,
    DecodeSettings,
    Groups,
    Metric,
    Threshold,
    describe,
)


@dataclass(frozen=True, slots=True)
class Grid:
    """Which ways of decoding to measure. AR is always measured: the others are compared with it.

    taus, block_sizes: MARS is measured on their product, with each of ``thresholds``; where those
        follow the agreement, with each of ``targets`` and no floor in place of the taus.
    lossless_taus, lossless_block_sizes: lossless MARS is measured on theirs, with each of
        ``groups``; has_lookup: also AR + lookup, and with lookup beside the last of ``groups``.
    methods: which of them are measured; jacobi and speculative decoding on ``block_sizes``, block
        diffusion on their product with the taus. drafts: checkpoints that draft, by name, each
        with masks in neither model, in the target, in the draft and in both. repetition_penalties:
        every way is measured with each of them that it takes, and held against AR with the same.
    """

    taus: tuple[float, ...] = (0.95,)
    block_sizes: tuple[BlockSize, ...] = (4,)
    thresholds: tuple[Threshold, ...] = ("fixed",)
    targets: tuple[float, ...] = (0.95,)
    lossless_taus: tuple[float, ...] = (0.0,)
    lossless_block_sizes: tuple[BlockSize, ...] = (8,)
    groups: tuple[Groups, ...] = ("one",)
    has_lookup: bool = False
    metric: Metric = "probability"
    max_new_tokens: int = 256
    methods: tuple[Method, ...] = ("mars",)
    drafts: tuple[str, ...] = ()
    repetition_penalties: tuple[float, ...] = (1.0,)

    def settings(self) -> Iterator[DecodeSettings]:
        """AR first, then MARS and lossless MARS, then the others; all of it for each penalty.
        Raises SettingsError for values out of range."""
        for penalty in self.repetition_penalties:
            for one in self._ways():
                if penalty == 1 or "repetition_penalty" not in METHODS[one.method].refuses:
                    yield replace(one, repetition_penalty=penalty)

    def _ways(self) -> Iterator[DecodeSettings]:
        yield DecodeSettings("ar", 1.0, 1, self.metric, max_new_tokens=self.max_new_tokens)
        if "mars" in self.methods:
            yield from self._mars()
        for size in self.block_sizes if "jacobi" in self.methods else ():
            yield self._one(0.0, size, method="jacobi")
        if "speculative" in self.methods:
            yield from self._speculative()
        if "block_diffusion" in self.methods:
            for size in self.block_sizes:
                for tau in self.taus:
                    yield self._one(tau, size, method="block_diffusion")

    def _mars(self) -> Iterator[DecodeSettings]:
        for block_size in self.block_sizes:
            for threshold in self.thresholds:
                if threshold == "agreement":
                    one = self._one(0.0, block_size, threshold=threshold)
                    yield from (replace(one, target=target) for target in self.targets)
                    continue
                for tau in self.taus:
                    yield self._one(tau, block_size, threshold=threshold)
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

    def _speculative(self) -> Iterator[DecodeSettings]:
        for draft in self.drafts:
            for size in self.block_sizes:
                one = self._one(0.95, size, groups="every", method="speculative")
                yield from (replace(one, draft=draft, masked=way) for way in reversed(MASKED))

    def limited_to(self, trained: int, *, fills_blocks: bool = False) -> Grid:
        """Without block sizes beyond ``trained``, the depth the weights have learned. Weights that
        fill blocks are measured for that alone, and no others for it."""
        able = [name for name in self.methods if (name == "block_diffusion") == fills_blocks]
        return replace(
            self,
            methods=tuple(able),
            block_sizes=_within(trained, self.block_sizes),
            lossless_block_sizes=_within(trained, self.lossless_block_sizes),
        )

    def _one(self, tau: float, block_size: BlockSize, **others: Any) -> DecodeSettings:
        shared: dict[str, Any] = {"metric": self.metric, "max_new_tokens": self.max_new_tokens}
        return DecodeSettings(tau=tau, block_size=block_size, **shared, **others)


def _within(trained: int, sizes: Sequence[BlockSize]) -> tuple[BlockSize, ...]:
    return tuple(size for size in sizes if 1 < (trained if size == "auto" else size) <= trained)


@dataclass(frozen=True, slots=True)
class GridCell:
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


def digest(parts: Sequence[str]) -> str:
    """A short fingerprint of texts; their borders count."""
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()[:16]
