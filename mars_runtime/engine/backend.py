"""The engine's interface to a model on a device. Imports torch only inside functions, so ``Run``
and tests of the engine do not need it.
"""

from __future__ import annotations

import gc
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mars_runtime.decoders.methods import METHODS
from mars_runtime.engine.request import AnyRequest, CustomDecoderRequest, Request, RequestError
from mars_runtime.model.config import MIN_ANSWER
from mars_runtime.model.registry import REGISTRY, default_draft
from mars_runtime.runs.events import FINAL, Event
from mars_runtime.settings import DecodeSettings
from mars_runtime.system.machine import is_memory_short, return_freed_memory

if TYPE_CHECKING:
    from mars_runtime.decoders.base import SettingsSource
    from mars_runtime.decoders.cursor import CursorBatch
    from mars_runtime.decoders.draft_model import DraftModel, DraftModels
    from mars_runtime.decoders.forward_costs import ForwardCosts
    from mars_runtime.engine.memory import Room
    from mars_runtime.model.forward import CausalModel
    from mars_runtime.model.load import Checkpoint

SMALL_PARAMETERS = 30_000_000
WARM_UP_TOKENS = MIN_ANSWER
NO_BLOCKS = "{} was not trained for block diffusion: choose another method."
NO_BIAS_ID = "The logit bias names token {}, but the ids of this model are below {}."
DRAFT_TOO_SHORT = (
    "The draft model supports {} tokens, prompt and answer together: shorten the prompt or request "
    "fewer tokens."
)
PREFILL_ALONE, PREFILL_SHARED = 512, 64
"""Prompt tokens per chunk: PREFILL_SHARED if another run waits to decode."""


class Backend(ABC):
    """A model that decodes. Only the engine's worker thread calls its methods, except ``reserve``,
    ``capacity``, ``check`` and ``stop_preparing``.
    """

    costs: ForwardCosts | None = None

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Maximum number of tokens of a prompt and its answer together, after ``reserve``."""

    @abstractmethod
    def reserve(self, num_rows: int) -> int:
        """Plan memory for runs that share forward passes and return how many runs fit."""

    @abstractmethod
    def prepare(self) -> None:
        """Set threads, allocate memory and warm up."""

    def stop_preparing(self) -> None:  # noqa: B027  (optional)
        """Make ``prepare`` raise before its next forward pass. Any thread may call it."""

    @abstractmethod
    def check(self, request: AnyRequest) -> None:
        """Raise RequestError if the request cannot be served."""

    @abstractmethod
    def batch(self) -> CursorBatch:
        """Return the batch of runs that share forward passes; always the same object."""

    @abstractmethod
    def decode(self, request: AnyRequest, settings: SettingsSource) -> Iterator[Event]:
        """Decode without sharing forward passes: yield a Prefill, then one Step per pass. A decoder
        that supports checks or a cached prefix returns an ``EventStream``.
        """

    def begin_run(self) -> None:  # noqa: B027  (optional)
        """Called before each run."""

    @abstractmethod
    def synchronize(self) -> None:
        pass


class CheckpointBackend(Backend):
    """num_bytes: memory for the prefix cache and for the keys and values of runs that share forward
    passes; by default, what the device can spare.
    keeps: whether to use a prefix cache; false for measurements.
    registry_path: the registry that names draft models.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        num_bytes: int | None = None,
        *,
        keeps: bool = True,
        registry_path: Path = REGISTRY,
    ) -> None:
        from mars_runtime.engine.memory import free_bytes, new_prefix_cache

        self._drafts = draft_models(checkpoint, registry_path)
        self._checkpoint = checkpoint
        self._is_cuda = checkpoint.model.device.type == "cuda"
        available = free_bytes(checkpoint.model) if num_bytes is None else num_bytes
        self._store = new_prefix_cache(checkpoint.model, available) if keeps else None
        self._num_bytes = num_bytes
        self._room = self._room_for(1)
        self._batch: CursorBatch | None = None
        self._is_stopped = False

    def reserve(self, num_rows: int) -> int:
        self._room = self._room_for(num_rows)
        return self._room.num_rows

    @property
    def capacity(self) -> int:
        return self._room.capacity

    def _room_for(self, num_rows: int) -> Room:
        from mars_runtime.engine.memory import free_bytes, room_for

        model, available = self._checkpoint.model, self._num_bytes
        available = free_bytes(model) if available is None else available
        return room_for(model, num_rows, available - (self._store.most_bytes if self._store else 0))

    def prepare(self) -> None:
        import torch

        torch.inference_mode().__enter__()  # in force until the worker thread ends
        self._set_threads()
        try:
            self._warm_up()
        except Exception:
            self._batch = None  # The batch still contains rows of the warm-up.
            raise
        finally:
            if self._store is not None:
                self._store.clear()  # Remove the texts of the warm-up.
        self.synchronize()
        # Later garbage collections skip all current objects, which saves tens of milliseconds.
        gc.collect()
        gc.freeze()
        return_freed_memory()

    def stop_preparing(self) -> None:
        self._is_stopped = True

    def _check_stopped(self) -> None:
        if self._is_stopped:
            raise RuntimeError("the engine was closed during the warm-up")

    def _set_threads(self) -> None:
        """With a native model, a second PyTorch thread would only spin."""
        import torch

        from mars_runtime.model.native.model import NativeModel
        from mars_runtime.model.threads import TorchThreads, shared_from
        from mars_runtime.model.transformer import Transformer

        model, most = self._checkpoint.model, _default_threads()
        base = num_threads(self._checkpoint)
        if isinstance(model, NativeModel):
            model.ceiling, base = base, 1
        elif isinstance(model, Transformer) and not self._is_cuda and most > 1:
            model.threads = TorchThreads(base, most, shared_from(model, most))
        torch.set_num_threads(base)

    def _warm_up(self) -> None:
        from mars_runtime.engine.costs import stored_costs

        prompt, all_settings = self.warm_up_alone()
        self.costs = stored_costs(self._checkpoint, self._room.num_rows, self._check_stopped)
        all_settings = [choice for choice in all_settings if not choice.facts.is_alone]
        batch = self.batch()
        live = list(range(min(len(all_settings), self._room.num_rows)))
        for number in live:
            batch.join(number, prompt, lambda now=all_settings[number]: now)  # type: ignore[misc]
            batch.prefill(number, PREFILL_ALONE)
        while live:
            self._check_stopped()
            ended = [row.row for row in batch.step(live).rows if row.stop in FINAL]
            live = [number for number in live if number not in ended]

    def warm_up_alone(self) -> tuple[list[int], list[DecodeSettings]]:
        """Run each supported method once, exclusively; return the prompt and the settings used."""
        prompt = self._checkpoint.tokenizer.encode_prompt("Hello")
        supported = []
        for name in METHODS:
            settings = DecodeSettings(method=name, max_new_tokens=WARM_UP_TOKENS)
            request = Request(prompt, settings)
            try:
                self._check_method(request)
            except RequestError:
                continue
            supported.append(settings)
            for _ in self.decode(request, lambda now=settings: now):  # type: ignore[misc]
                self._check_stopped()
        return prompt, supported

    def check(self, request: AnyRequest) -> None:
        check_fits(self._checkpoint.model, request, self.capacity)
        self._check_method(request)

    def _check_method(self, request: AnyRequest) -> None:
        from mars_runtime.errors import DecodeError

        settings = request.settings
        if settings.facts.is_alone and not self._checkpoint.diffusion_size:
            raise RequestError(NO_BLOCKS.format(self._checkpoint.name))
        if isinstance(request, CustomDecoderRequest) or not settings.facts.needs_draft_model:
            return
        try:
            draft = self._drafts.find(settings.draft)
        except DecodeError as error:
            raise RequestError(str(error)) from None
        most = draft.model.config.max_positions
        if len(request.prompt_ids) + settings.max_new_tokens > most:
            raise RequestError(DRAFT_TOO_SHORT.format(most))

    def batch(self) -> CursorBatch:
        if self._batch is None:
            from mars_runtime.decoders.cursor import CursorBatch

            model, tokenizer = self._checkpoint.model, self._checkpoint.tokenizer
            room = self._room
            self._batch = CursorBatch(
                *(model, tokenizer, room.num_rows, room.capacity, self.costs),
                prefix_cache=self._store,
                draft_models=self._drafts,
            )
        return self._batch

    def decode(self, request: AnyRequest, settings: SettingsSource) -> Iterator[Event]:
        from mars_runtime.decoders.cursor import decode
        from mars_runtime.decoders.prefix_cache import PrefixHit

        model, tokenizer = self._checkpoint.model, self._checkpoint.tokenizer
        if isinstance(request, CustomDecoderRequest):
            return request.decode(model, tokenizer, settings, self.costs)
        if settings().facts.is_alone:
            from mars_runtime.decoders import diffusion

            size = self._checkpoint.diffusion_size
            return diffusion.decode(model, tokenizer, request.prompt_ids, settings, size)
        ids, store = request.prompt_ids, self._store
        hit = PrefixHit(store, ids) if store is not None else None
        return decode(
            *(model, tokenizer, [ids], settings, self.costs), hit=hit, draft_models=self._drafts
        )

    def begin_run(self) -> None:
        threads = self._checkpoint.model.threads
        if threads is not None:
            threads.begin_run()

    def synchronize(self) -> None:
        if self._is_cuda:
            import torch

            torch.cuda.synchronize(self._checkpoint.model.device)


def check_fits(model: CausalModel, request: AnyRequest, capacity: int) -> None:
    from mars_runtime.decoders.base import check_prompt
    from mars_runtime.errors import DecodeError

    if isinstance(request, CustomDecoderRequest):
        return
    highest = max((token for token, _ in request.settings.logit_bias), default=-1)
    if highest >= model.config.vocab_size:
        raise RequestError(NO_BIAS_ID.format(highest, model.config.vocab_size))
    length, limit = len(request.prompt_ids), request.settings.max_new_tokens
    try:
        check_prompt(model, request.prompt_ids, limit)
    except DecodeError as error:
        raise RequestError(str(error)) from None
    if length + limit > capacity:
        advice = (
            f"lower the limit to {capacity - length}" if length < capacity else "shorten the prompt"
        )
        raise RequestError(
            f"The prompt has {length} tokens and the token limit is {limit}, but there is memory "
            f"for only {capacity} in total: {advice}."
        )


def with_draft(settings: DecodeSettings, target: str) -> DecodeSettings:
    """Name the default draft model of ``target`` in speculative settings that name none, so that a
    trace always names it.
    """
    if not settings.facts.needs_draft_model or settings.draft:
        return settings
    return replace(settings, draft=default_draft(target))


def draft_models(checkpoint: Checkpoint, registry_path: Path = REGISTRY) -> DraftModels:
    from mars_runtime.decoders.draft_model import DraftModel, DraftModels
    from mars_runtime.errors import DecodeError
    from mars_runtime.model.config import CheckpointError
    from mars_runtime.model.load import Drafts

    drafts = Drafts(checkpoint, registry_path)

    def find(name: str) -> DraftModel:
        try:
            loaded = drafts.load(name)
        except CheckpointError as error:
            raise DecodeError(str(error)) from None
        return DraftModel(loaded.model, loaded.tokenizer, loaded.block_size)

    return DraftModels(find, checkpoint.block_size)


def num_threads(checkpoint: Checkpoint) -> int:
    """Return the maximum number of CPU threads: 1 for a small model, whose operations are too short
    to split.
    """
    model, most = checkpoint.model, _default_threads()
    is_small = sum(weight.numel() for weight in model.weights()) < SMALL_PARAMETERS
    return 1 if is_small and model.device.type == "cpu" else most


@cache
def _default_threads() -> int:
    """Cached, because a number set in one thread applies to all threads that start later."""
    import torch

    from mars_runtime.model.threads import limit_threads

    limit_threads()
    return torch.get_num_threads()


def where(error: BaseException) -> str:
    """Return a traceback as one log line, without messages, which may contain a prompt."""
    links = [error]
    while (cause := links[-1].__cause__ or links[-1].__context__) and cause not in links:
        links.append(cause)
    parts = []
    for link in links:
        frames = reversed(traceback.extract_tb(link.__traceback__))
        calls = (f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})" for frame in frames)
        parts.append(f"{type(link).__name__} in {' < '.join(calls)}")
    return " after ".join(parts)


def sentence(error: Exception) -> str:
    if type(error).__module__.partition(".")[0] == __name__.partition(".")[0]:
        return str(error)
    if is_memory_short(error):
        return "The device ran out of memory: request fewer tokens or shorten the prompt."
    return f"Decoding failed ({type(error).__name__}): try again with other settings."
