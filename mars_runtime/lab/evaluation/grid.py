"""Define the grid of an evaluation: the settings to measure, and cells with unique keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mars_runtime.decoders.methods import METHODS
from mars_runtime.settings import (
    MASKED,
    BlockSize,
    DecodeSettings,
    MaskLayout,
    describe,
)


@dataclass(frozen=True, slots=True)
class Grid:
    """The settings to measure. AR is always measured, as the baseline.

    - taus, block_sizes: MARS is measured with every combination.
    - lossless_taus, lossless_block_sizes, mask_layouts: lossless MARS is measured with every
      combination.
    - has_lookup: also measure AR with prompt lookup, and lossless MARS with prompt lookup and the
      last of ``mask_layouts``.
    - methods: Jacobi and speculative decoding are measured with ``block_sizes``, block diffusion
      with every combination of ``block_sizes`` and ``taus``.
    - drafts: draft checkpoints for speculative decoding. Each is measured with masks in neither the
      target nor the draft model, in one of them, and in both.
    """

    taus: tuple[float, ...] = (0.95,)
    block_sizes: tuple[BlockSize, ...] = (4,)
    lossless_taus: tuple[float, ...] = (0.0,)
    lossless_block_sizes: tuple[BlockSize, ...] = (8,)
    mask_layouts: tuple[MaskLayout, ...] = ("last",)
    has_lookup: bool = False
    max_new_tokens: int = 256
    methods: tuple[str, ...] = ("mars",)
    drafts: tuple[str, ...] = ()

    def settings(self) -> Iterator[DecodeSettings]:
        """Yield the settings to measure, AR first. Raises SettingsError."""
        yield self._with_defaults(1.0, 1, method="ar")
        for method in [METHODS[name] for name in METHODS if name in self.methods]:
            if "lossless" in method.obeys:
                yield from self._mars()
            elif method.needs_draft_model:
                yield from self._speculative(method.name)
            elif not method.is_reference:
                taus = self.taus if "tau" in method.obeys else (0.0,)
                for size in self.block_sizes:
                    for tau in taus:
                        yield self._with_defaults(tau, size, method=method.name)

    def _mars(self) -> Iterator[DecodeSettings]:
        for block_size in self.block_sizes:
            yield from (self._with_defaults(tau, block_size) for tau in self.taus)
        lossless = [
            self._with_defaults(tau, block_size, lossless=True, mask_layout=mask_layout)
            for mask_layout in self.mask_layouts
            for block_size in self.lossless_block_sizes
            for tau in self.lossless_taus
        ]
        yield from lossless
        if self.has_lookup:
            yield self._with_defaults(0.0, 1, lossless=True, lookup=True)
            layout = self.mask_layouts[-1]
            last = [settings for settings in lossless if settings.mask_layout == layout]
            yield from (replace(settings, lookup=True) for settings in last)

    def _speculative(self, name: str) -> Iterator[DecodeSettings]:
        for draft in self.drafts:
            for size in self.block_sizes:
                speculative = self._with_defaults(0.95, size, mask_layout="every", method=name)
                yield from (
                    replace(speculative, draft=draft, masked=masked) for masked in reversed(MASKED)
                )

    def limited_to(self, trained: int, *, fills_blocks: bool = False) -> Grid:
        """Return the part that a checkpoint supports. trained: its largest B. fills_blocks: whether
        it was trained for block diffusion; then only AR and block diffusion are measured.
        """
        methods = [name for name in self.methods if METHODS[name].is_alone == fills_blocks]
        return replace(
            self,
            methods=tuple(methods),
            block_sizes=_within(trained, self.block_sizes),
            lossless_block_sizes=_within(trained, self.lossless_block_sizes),
        )

    def _with_defaults(self, tau: float, block_size: BlockSize, **others: Any) -> DecodeSettings:
        return DecodeSettings(
            tau=tau, block_size=block_size, max_new_tokens=self.max_new_tokens, **others
        )


def _within(trained: int, sizes: Sequence[BlockSize]) -> tuple[BlockSize, ...]:
    return tuple(size for size in sizes if 1 < (trained if size == "auto" else size) <= trained)


@dataclass(frozen=True, slots=True)
class GridCell:
    """A checkpoint decodes a family of prompts with some settings.

    fingerprint, prompts_id: hashes of the weights and the prompts, so that results stored before a
        change of either are not reused.
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
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def label(self) -> str:
        return f"{self.checkpoint} · {describe(self.settings)} · {self.family}"


def digest(parts: Sequence[str]) -> str:
    """Return a short hash of a list of texts. The boundaries between texts change the hash."""
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()[:16]
