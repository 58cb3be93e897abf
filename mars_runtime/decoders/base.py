"""Common parts of the decoders: interfaces, checks of prompts, and the decoding loop.

A model implements ``mars_runtime.model.forward.CausalModel``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from mars_runtime.acceptance import DecodeError
from mars_runtime.event_stream import EventStream
from mars_runtime.events import Event, Prefill, Step
from mars_runtime.methods import Method
from mars_runtime.model.forward import CausalModel
from mars_runtime.prefix_cache import PrefixHit
from mars_runtime.settings import DecodeSettings

PREFILL_CHUNK = 512

SettingsSource = Callable[[], DecodeSettings]
"""Read once per step for each row, so that a changed setting applies to the next forward."""


class Vocabulary(Protocol):
    """The vocabulary size and the special ids; ``text.Tokenizer`` implements it."""

    @property
    def size(self) -> int: ...
    @property
    def mask_id(self) -> int | None: ...
    @property
    def eos_ids(self) -> frozenset[int]: ...
    @property
    def forbidden_ids(self) -> frozenset[int]: ...


NOT_MEASURED = "B can't be auto, because forward passes were not timed here: choose a number as B."


class NoMaskError(DecodeError):
    """Masks were requested of a checkpoint without a mask token."""

    def __init__(self, rows: tuple[int, ...] = ()) -> None:
        super().__init__("This checkpoint has no mask token: choose the method ar.", rows)


class Batch(Protocol):
    """Rows that join, share forwards and leave; the caller numbers them. See ``CursorBatch``."""

    @property
    def rows(self) -> tuple[int, ...]:
        """Numbers of the rows that are being decoded."""

    def join(self, number: int, prompt: Sequence[int], settings: SettingsSource) -> None:
        """Take a place for a prompt; ``settings`` are read at every step. Raises DecodeError."""

    def forgo(self, number: int) -> None:
        """Prefill this prompt from scratch, ignoring the prefix cache. Raises KeyError."""
        return

    def read(self, number: int, at_most: int = PREFILL_CHUNK) -> int:
        """Prefill the next chunk of a prompt; return the number of tokens left."""

    def drop(self, number: int) -> None:
        """Remove a row; its place is free immediately."""

    def gather(self, numbers: Sequence[int]) -> None:
        """Prepare a step of these rows; this work should not count as the step's time."""

    def step(self, numbers: Sequence[int] | None = None) -> Step:
        """Run one forward of these rows (default: all); the others are skipped.

        Rows that end are removed. A step that raises leaves all rows unchanged; ``rows`` of the
        error names the rows it concerns.
        """

    @property
    def num_bytes(self) -> int:
        """Bytes of the keys and values reserved for its rows; 0 if unknown."""
        return 0

    def num_reused(self, number: int) -> int:
        """Return how many tokens of a prefilled prompt came from the prefix cache.

        Raises KeyError.
        """
        return 0

    def tidy(self) -> None:
        """Finish the work left by ended rows, outside the timed step."""
        return

    def checked(self, step: Step, numbers: Collection[int]) -> Step:
        """Return the latest step with the checks of these rows, if there are any."""
        return step

    def add(self, number: int, prompt: Sequence[int], settings: SettingsSource) -> int:
        """Prefill a whole prompt into a free place; the row joins the next step.

        Returns how many tokens were prefilled. Raises DecodeError.
        """
        self.join(number, prompt, settings)
        while self.read(number):
            pass
        return len(prompt) - 1


def decode_on(
    batch: Batch, prompts: Sequence[Sequence[int]], settings: SettingsSource
) -> Iterator[Event]:
    """Decode prompts on an empty batch with room for them, and leave the batch empty.

    Yields one Prefill, then the Steps; rows are numbered from 0. Raises DecodeError.
    """
    try:
        num_read = sum(batch.add(row, prompt, settings) for row, prompt in enumerate(prompts))
        num_reused = sum(map(batch.num_reused, batch.rows))
        yield Prefill(num_read, cache_bytes=batch.num_bytes, num_reused=num_reused)
        while batch.rows:
            yield batch.step()
    finally:
        for row in batch.rows:
            batch.drop(row)
        batch.tidy()


class Decoding(EventStream):
    """The events of prompts on a batch that ``make`` allocates at the first; see ``decode_on``."""

    def __init__(
        self,
        make: Callable[[], Batch],
        prompts: Sequence[Sequence[int]],
        settings: SettingsSource,
        hit: PrefixHit | None = None,
    ) -> None:
        self._held: list[Batch] = []
        super().__init__(_events(make, self._held, prompts, settings), hit)

    def checked(self, step: Step) -> Step:
        """Return the latest step with its ``checks``."""
        return self._held[0].checked(step, [row.row for row in step.rows])


def _events(
    make: Callable[[], Batch],
    held: list[Batch],
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
) -> Generator[Event, None, None]:
    """Yield the events and append the batch to ``held``.

    This does not refer to a Decoding, so that one is freed as soon as it is unused.
    """
    batch = make()
    held.append(batch)
    yield from decode_on(batch, prompts, settings)


def prefill(model: CausalModel, alone: Any, unread: list[int], at_most: int = PREFILL_CHUNK) -> int:
    """Feed the next chunk of a prompt, without head, and remove it from ``unread``.

    alone: a KV cache of one row, whose cursor advances. Returns the length of the chunk.
    """
    chunk = unread[:at_most]
    if chunk:
        model.forward(torch.tensor([chunk]), alone, None)
        alone.cursors[0] += len(chunk)
        del unread[:at_most]
    return len(chunk)


def prefill_whole(model: CausalModel, alone: Any, prompt: Sequence[int]) -> int:
    """Feed all but the last token of a prompt, in chunks; return their number."""
    unread = list(prompt[:-1])
    while prefill(model, alone, unread):
        pass
    return len(prompt) - 1


def check_prompt(model: CausalModel, prompt: Sequence[int], limit: int) -> None:
    """Raise DecodeError if the prompt cannot be decoded.

    It must not be empty, may hold known ids only and, with ``limit`` new tokens, must fit into the
    model's context.
    """
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
            f"The prompt has {len(prompt)} tokens and the limit is {limit}; this model holds "
            f"{room} together: shorten the prompt or lower the limit."
        )


def check_prompts(model: CausalModel, prompts: Sequence[Sequence[int]], limit: int) -> None:
    """Run ``check_prompt`` on each prompt; there must be at least one. Raises DecodeError."""
    if not prompts:
        raise DecodeError("Give at least one prompt.")
    for prompt in prompts:
        check_prompt(model, prompt, limit)


def check_room(prompt: Sequence[int], limit: int, capacity: int) -> None:
    """Raise DecodeError if prompt and answer do not fit a row of ``capacity`` tokens."""
    if len(prompt) + limit > capacity:
        raise DecodeError(
            f"The prompt has {len(prompt)} tokens and the limit is {limit}; each row of this batch "
            f"holds {capacity} together: shorten the prompt or lower the limit."
        )


def forbidden_ids(vocabulary: Vocabulary, model: CausalModel) -> Tensor:
    """Return the ids that are never emitted, including ids without a token: int64 [F]."""
    ids = {*vocabulary.forbidden_ids, *range(vocabulary.size, model.config.vocab_size)}
    return torch.tensor(sorted(ids), dtype=torch.long, device=model.device)


def slots_to_read(firsts: Sequence[int], num_slots: int, num_fed: int) -> Tensor | slice:
    """Return the ``num_slots`` slots of every row of a forward that begin at its ``firsts`` entry.

    Returns a slice, or int64 [R, S] on the host. Callers ignore slots beyond a row's own.
    """
    if len(set(firsts)) == 1:
        return slice(firsts[0], firsts[0] + num_slots)
    slots = torch.tensor(firsts).unsqueeze(1) + torch.arange(num_slots)
    return slots.clamp_(max=num_fed - 1)


def always(method: Method, settings: SettingsSource) -> SettingsSource:
    """Return the settings with ``method`` fixed; a new object is made only when they change."""
    latest = fixed = settings()
    if latest.method != method:
        fixed = replace(latest, method=method)

    def source() -> DecodeSettings:
        nonlocal latest, fixed
        current = settings()
        if current is not latest:
            latest = fixed = current
            if current.method != method:
                fixed = replace(current, method=method)
        return fixed

    return source
