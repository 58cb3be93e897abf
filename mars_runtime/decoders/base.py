"""Parts shared by all decoders: interfaces, prompt checks and prefill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from mars_runtime.errors import DecodeError
from mars_runtime.model.forward import CausalModel
from mars_runtime.settings import DecodeSettings

PREFILL_CHUNK = 512

SettingsSource = Callable[[], DecodeSettings]
"""Called once per step and row, so a changed setting applies from the next forward pass on."""


class Vocabulary(Protocol):
    @property
    def size(self) -> int: ...
    @property
    def mask_id(self) -> int | None: ...
    @property
    def eos_ids(self) -> frozenset[int]: ...
    @property
    def forbidden_ids(self) -> frozenset[int]: ...


NOT_MEASURED = (
    "B cannot be auto, because this model's forward passes were not timed: choose a number as B."
)


class NoMaskError(DecodeError):
    def __init__(self, rows: tuple[int, ...] = ()) -> None:
        super().__init__("This checkpoint has no mask token: choose the method ar.", rows)


def prefill(model: CausalModel, cache: Any, unread: list[int], at_most: int = PREFILL_CHUNK) -> int:
    """Feed the next chunk of a prompt, remove it from ``unread`` and return its length. ``cache``
    has one row; its cursor advances.
    """
    chunk = unread[:at_most]
    if chunk:
        model.forward(torch.tensor([chunk]), cache, None)
        cache.cursors[0] += len(chunk)
        del unread[:at_most]
    return len(chunk)


def prefill_whole(model: CausalModel, cache: Any, prompt: Sequence[int]) -> int:
    """Feed all but the last token of a prompt and return their number."""
    unread = list(prompt[:-1])
    while prefill(model, cache, unread):
        pass
    return len(prompt) - 1


def check_prompt(model: CausalModel, prompt: Sequence[int], limit: int) -> None:
    """Raises DecodeError."""
    if not prompt:
        raise DecodeError("The prompt is empty: enter some text.")
    if min(prompt) < 0 or max(prompt) >= model.config.vocab_size:
        raise DecodeError(
            f"The prompt contains token ids outside 0 to {model.config.vocab_size - 1}: encode "
            "it with the tokenizer of this checkpoint."
        )
    capacity = model.config.max_positions
    if len(prompt) + limit > capacity:
        raise DecodeError(
            f"The prompt has {len(prompt)} tokens and the token limit is {limit}, but this model "
            f"supports only {capacity} in total: shorten the prompt or lower the limit."
        )


def check_prompts(model: CausalModel, prompts: Sequence[Sequence[int]], limit: int) -> None:
    if not prompts:
        raise DecodeError("Give at least one prompt.")
    for prompt in prompts:
        check_prompt(model, prompt, limit)


def check_room(prompt: Sequence[int], limit: int, capacity: int) -> None:
    if len(prompt) + limit > capacity:
        raise DecodeError(
            f"The prompt has {len(prompt)} tokens and the token limit is {limit}, but each row of "
            f"this batch fits only {capacity} in total: shorten the prompt or lower the limit."
        )


def forbidden_ids(vocabulary: Vocabulary, model: CausalModel) -> Tensor:
    """Return the ids that must never be emitted, including ids without a token: int64 [F]."""
    ids = {*vocabulary.forbidden_ids, *range(vocabulary.size, model.config.vocab_size)}
    return torch.tensor(sorted(ids), dtype=torch.long, device=model.device)


def slots_to_read(firsts: Sequence[int], num_slots: int, num_fed: int) -> Tensor | slice:
    """Return the fed tokens from which to read predictions: ``num_slots`` of each row, from its
    entry in ``firsts`` on; a slice, or int64 [R, S] on the host.
    """
    if len(set(firsts)) == 1:
        return slice(firsts[0], firsts[0] + num_slots)
    slots = torch.tensor(firsts).unsqueeze(1) + torch.arange(num_slots)
    return slots.clamp_(max=num_fed - 1)
