"""What the engine asks of a model on a device, and that of a loaded checkpoint.

Torch is imported by the worker thread only, so that handles and tests of the engine need none.
Knows no clock and no queue.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from mars_runtime.engine.request import Asked, Request, RequestError, Solo
from mars_runtime.events import Event
from mars_runtime.settings import METHODS, DecodeSettings

if TYPE_CHECKING:
    from mars_runtime.decoders.adaptive import ForwardCosts
    from mars_runtime.model.load import Checkpoint

SMALL_PARAMETERS = 30_000_000
WARM_UP_TOKENS = 12


@runtime_checkable
class Backend(Protocol):
    """A model that decodes. All but ``check`` is called by the engine's worker thread alone."""

    def prepare(self) -> None:
        """Get ready: threads, warm-up. Called once."""

    def check(self, asked: Asked) -> None:
        """Raise RequestError, one sentence, for what cannot be served. Called by any thread."""

    def decode(self, asked: Asked, settings: Callable[[], DecodeSettings]) -> Iterator[Event]:
        """Prefill, then a Step a forward. A Request has one row and stops at ``eos`` or ``limit``;
        a Solo has as many as it likes and goes on until it is exhausted."""

    def synchronize(self) -> None:
        """Return once the device has done all its work."""


def as_backend(source: Checkpoint | Backend) -> Backend:
    """``source`` itself if it decodes, else a backend for the checkpoint."""
    return source if isinstance(source, Backend) else CheckpointBackend(source)


class CheckpointBackend:
    """A loaded checkpoint behind the engine."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.costs: ForwardCosts | None = None
        self._checkpoint = checkpoint
        self._is_cuda = checkpoint.model.device.type == "cuda"

    def prepare(self) -> None:
        """Set the threads, run every kind of forward once so that no visitor has to, and time
        them."""
        import torch

        from mars_runtime.engine.costs import measure_costs

        torch.inference_mode().__enter__()  # for the life of the worker thread
        torch.set_num_threads(num_threads(self._checkpoint))
        prompt = self._checkpoint.tokenizer.encode_prompt("Hello")
        for method in METHODS:
            first = DecodeSettings(method=method, max_new_tokens=WARM_UP_TOKENS)
            for _ in self.decode(Request(prompt, first), lambda now=first: now):  # type: ignore[misc]
                pass
        self.synchronize()
        self.costs = measure_costs(self._checkpoint)
        # What exists now stays: without this, each full garbage collection walks every module's
        # objects, tens of milliseconds in the middle of some forward.
        gc.collect()
        gc.freeze()

    def check(self, asked: Asked) -> None:
        """Refuse tokens that the model does not have and answers that do not fit into it.

        What a Solo decodes is its own affair; it raises when it begins.
        """
        from mars_runtime.acceptance import DecodeError
        from mars_runtime.decoders.base import check_prompt

        if isinstance(asked, Solo):
            return
        limit = asked.settings.max_new_tokens
        try:
            check_prompt(self._checkpoint.model, asked.prompt_ids, limit)
        except DecodeError as error:
            raise RequestError(str(error)) from None

    def decode(self, asked: Asked, settings: Callable[[], DecodeSettings]) -> Iterator[Event]:
        """The events of what is asked."""
        from mars_runtime.decoders import decode

        model, tokenizer = self._checkpoint.model, self._checkpoint.tokenizer
        if isinstance(asked, Solo):
            return asked.decode(model, tokenizer, settings)
        return decode(model, tokenizer, [asked.prompt_ids], settings, self.costs)

    def synchronize(self) -> None:
        """Wait for the GPU; a CPU is done when the call returns."""
        if self._is_cuda:
            import torch

            torch.cuda.synchronize(self._checkpoint.model.device)


def num_threads(checkpoint: Checkpoint) -> int:
    """Threads of the arithmetic on a CPU.

    One serves a small model best: its forward is many operations too short to be shared out.
    """
    import torch

    model = checkpoint.model
    is_small = sum(weight.numel() for weight in model.weights()) < SMALL_PARAMETERS
    return 1 if is_small and model.device.type == "cpu" else torch.get_num_threads()


def sentence(error: Exception) -> str:
    """What people are told of a decoder's fault: never a traceback, never a word of the prompt.

    Errors of this package are sentences already.
    """
    if type(error).__module__.partition(".")[0] == __name__.partition(".")[0]:
        return str(error)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "The device ran out of memory: ask for fewer tokens or shorten the prompt."
    return f"Decoding failed ({type(error).__name__}): please try again with other settings."
