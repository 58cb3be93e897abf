"""A page that decodes batches for real, on a scripted model instead of weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from helpers import ScriptedModel
from scripted_page import TEXT, ScriptedBackend, make_handlers

from app.handlers import Handlers
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.engine.request import AnyRequest, CustomDecoderRequest
from mars_runtime.runs.events import Event
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Tokenizer

START, END, MASK = 256, 257, 258
ANSWER = b"assistant\n"
ROW_BYTES = 40
CHEAP = ForwardCosts(8, {1: tuple(1 + place / 100 for place in range(32))})
"""Further tokens of a row cost next to nothing."""


class BatchBackend(ScriptedBackend):
    """Runs custom decoders on the scripted model; counts forwards, waits before each."""

    def __init__(self, tokenizer: Callable[[], Tokenizer]) -> None:
        super().__init__(TEXT)
        self._tokenizer = tokenizer
        self.fails_at = 0

    def script(self, prefix: tuple[int, ...]) -> list[float]:
        """The byte of the text at this place of an answer, whose length depends on its prompt."""
        begin = len(prefix) - 1 - prefix[::-1].index(START) + 1 + len(ANSWER)
        place = len(prefix) - begin
        length = ROW_BYTES - begin % 7
        token = self.text.encode()[place] if place < length else END
        is_sure = prefix[-1] != MASK or begin % 2 == 0
        logits = [0.0] * 260
        logits[token] = 30.0 if is_sure else 4.0
        return logits

    def decode(
        self, request: AnyRequest, settings: Callable[[], DecodeSettings]
    ) -> Iterator[Event]:
        if not isinstance(request, CustomDecoderRequest):
            yield from super().decode(request, settings)
            return
        model = ScriptedModel(self.script, vocab_size=260, max_positions=4096)
        events = request.decode(model, self._tokenizer(), settings, CHEAP)
        for number, event in enumerate(events, 1):
            if number == self.fails_at:
                raise RuntimeError("words of the prompt")
            time.sleep(self.forward_seconds)
            self.num_forwards += 1
            yield event


def make_page(folder: Path, **caps: object) -> tuple[Handlers, BatchBackend]:
    """Handlers over the backend; close them with ``handlers.engines.close()``."""
    remaining: list[Tokenizer] = []
    backend = BatchBackend(lambda: remaining[0])
    handlers = make_handlers(folder, backend, **caps)
    served = handlers.engines.get("scripted")
    remaining.append(served.checkpoint.tokenizer)
    return handlers, backend


def controls(**changes: object) -> dict[str, object]:
    """What the Throughput tab sends for a run, with changes."""
    return {
        "rows": 4,
        "tau": 0.95,
        "block_size": 4,
        "lossless": False,
        "follows": False,
        "rounds": 3,
        "checkpoint": "scripted",
        "system": "",
        **changes,
    }
