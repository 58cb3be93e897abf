"""The grid of an evaluation: its cells, each with a unique key."""

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
    """The settings to measure. AR is always measured, as the baseline.

    taus, block_sizes: MARS is measured on their product, with each of ``thresholds``; the threshold
        ``agreement`` uses each of ``targets`` instead of the taus.
    lossless_taus, lossless_block_sizes: the same for lossless MARS, with each of ``groups``;
        has_lookup: also AR + lookup, and the last of ``groups`` with prompt lookup.
    methods: jacobi and speculative decoding use ``block_sizes``, block diffusion their product with
        the taus. drafts: draft checkpoints, each with masks in neither model, one or both.
    repetition_penalties: every method that supports them is measured with each, and compared with
        AR with the same penalty.
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
        """Yield AR, MARS, lossless MARS and the others, by penalty. Raises SettingsError."""
        for penalty in self.repetition_penalties:
            for settings in self._ways():
                if penalty == 1 or "repetition_penalty" not in METHODS[settings.method].refuses:
                    yield replace(settings, repetition_penalty=penalty)

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
                    adaptive = self._one(0.0, block_size, threshold=threshold)
                    yield from (replace(adaptive, target=target) for target in self.targets)
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
            beside = [settings for settings in lossless if settings.groups == self.groups[-1]]
            yield from (replace(settings, lookup=True) for settings in beside)

    def _speculative(self) -> Iterator[DecodeSettings]:
        for draft in self.drafts:
            for size in self.block_sizes:
                speculative = self._one(0.95, size, groups="every", method="speculative")
                yield from (
                    replace(speculative, draft=draft, masked=way) for way in reversed(MASKED)
                )

    def limited_to(self, trained: int, *, fills_blocks: bool = False) -> Grid:
        """Return the grid without block sizes beyond ``trained``. Block diffusion is only measured
        for weights trained for it, and is their only method."""
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
    """One measurement: a checkpoint, a family of prompts and settings.

    fingerprint, prompts_id: hashes of weights and prompts, so that a stored result is never used
    for others.
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
        """The key of stored results."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def label(self) -> str:
        """A short description."""
        return f"{self.checkpoint} · {describe(self.settings)} · {self.family}"


def digest(parts: Sequence[str]) -> str:
    """Return a short hash of texts, which depends on where each ends."""
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()[:16]
