"""What decoders have in common: the interfaces they ask for and the checks made up front.

Knows no cache, acceptance or forward; a model here is anything that answers ``forward``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from mars_runtime.acceptance import DecodeError
from mars_runtime.settings import DecodeSettings, Method

SettingsSource = Callable[[], DecodeSettings]
"""Read once a step for each row, so that a moved slider acts on the very next forward."""


class Vocabulary(Protocol):
    """The ids that decoding treats specially; ``text.Tokenizer`` is one."""

    @property
    def size(self) -> int: ...
    @property
    def mask_id(self) -> int | None: ...
    @property
    def eos_ids(self) -> frozenset[int]: ...
    @property
    def forbidden_ids(self) -> frozenset[int]: ...


class CausalModel(Protocol):
    """What a decoder asks of a model; ``model.qwen2.Qwen2`` is one, a table in a test another."""

    @property
    def config(self) -> Any: ...
    @property
    def device(self) -> torch.device: ...
    def new_cache(self, rows: int, capacity: int) -> Any: ...
    def forward(self, tokens: Tensor, cache: Any, head: Tensor | slice | None) -> Tensor | None: ...


def check_prompt(model: CausalModel, prompt: Sequence[int], limit: int) -> None:
    """Raises DecodeError when the prompt is empty, holds unknown ids, or does not fit with
    ``limit`` new tokens into the context of the model."""
    if not prompt:
        raise DecodeError("The prompt has no tokens: type something.")
    if min(prompt) < 0 or max(prompt) >= model.config.vocab_size:
        raise DecodeError(
            f"The prompt holds token ids outside 0 to {model.config.vocab_size - 1}: encode "
            "it with the tokenizer of this checkpoint."
        )
    room = model.config.max_positions
    if len(prompt) + limit > room:
        raise DecodeError(
            f"The prompt has {len(prompt)} tokens and {limit} are asked for; this model holds "
            f"{room} together: shorten the prompt or ask for fewer."
        )


def check_prompts(model: CausalModel, prompts: Sequence[Sequence[int]], limit: int) -> None:
    """``check_prompt`` of each; there must be one. Raises DecodeError."""
    if not prompts:
        raise DecodeError("Give at least one prompt.")
    for prompt in prompts:
        check_prompt(model, prompt, limit)


def forbidden_ids(vocabulary: Vocabulary, model: CausalModel) -> set[int]:
    """Ids that can never come out, rows of the model without a token among them."""
    return {*vocabulary.forbidden_ids, *range(vocabulary.size, model.config.vocab_size)}


def always(method: Method, settings: SettingsSource) -> SettingsSource:
    """The same settings with the method held fixed; built anew only when they change."""
    seen = held = settings()
    if seen.method != method:
        held = replace(seen, method=method)

    def source() -> DecodeSettings:
        nonlocal seen, held
        now = settings()
        if now is not seen:
            seen, held = now, now if now.method == method else replace(now, method=method)
        return held

    return source
