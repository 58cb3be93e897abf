"""A page without weights: the real engine over a scripted backend, a tokenizer of single bytes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import torch

from app.handlers import Handlers
from app.handlers import make_handlers as handlers_over
from app.serving.engines import Engines
from app.serving.loads import Served
from app.serving.settings import AppSettings
from mars_runtime.byte_level import byte_characters
from mars_runtime.engine.engine import Engine
from mars_runtime.engine.request import Request
from mars_runtime.events import Event, Prefill, Proposal, RowStep, Step
from mars_runtime.model.registry import Entry
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Tokenizer

TEXT = 'Say ${HOME}<b>bold</b> "x" {{y}} `z`\n    indented 👩‍👧 ' * 12
CONTROL = ["<|im_start|>", "<|im_end|>", "<|mask|>", "<|pad|>"]


def write_tokenizer(folder: Path) -> Tokenizer:
    """A byte-level tokenizer without merges, so that a token is a byte."""
    characters = byte_characters()
    vocabulary = {characters[byte]: byte for byte in range(256)}
    added = [
        {"id": 256 + index, "content": name, "special": True, "single_word": False}
        | {"lstrip": False, "rstrip": False, "normalized": False}
        for index, name in enumerate(CONTROL)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    spec = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "trim_offsets": True},
        "decoder": {**byte_level, "trim_offsets": True},
        "post_processor": None,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
    return Tokenizer.from_dir(folder)


class ScriptedBackend:
    """Writes ``text`` byte by byte: one per forward at tau 1 or as AR, B below tau 0.6."""

    def __init__(self, text: str = "Hello.", forward_seconds: float = 0.002) -> None:
        self.text = text
        self.forward_seconds = forward_seconds
        self.capacity = 100_000
        self.prompts: list[tuple[int, ...]] = []
        self.num_forwards = 0

    def reserve(self, num_rows: int) -> int:
        """Every row fits."""
        return num_rows

    def prepare(self) -> None:
        """Nothing to warm up."""

    def batch(self) -> ScriptedBatch:
        """Rows that write side by side."""
        return ScriptedBatch(self)

    def check(self, request: Request) -> None:
        """Everything fits."""

    def synchronize(self) -> None:
        """Nothing runs behind our back."""

    def decode(self, request: Request, settings: Callable[[], DecodeSettings]) -> Iterator[Event]:
        """The text as events, the last one with ``eos`` or ``limit``."""
        self.prompts.append(tuple(request.prompt_ids))
        yield Prefill(len(request.prompt_ids) - 1)
        ids = [*self.text.encode(), 257]
        start = 0
        while True:
            time.sleep(self.forward_seconds)
            self.num_forwards += 1
            now = settings()
            left = min(len(ids), now.max_new_tokens) - start
            offered = ids[start : start + min(num_proposals(now), left)]
            taken = 1 if now.method == "ar" or now.tau >= 0.6 else len(offered)
            accepted = tuple(offered[:taken])
            proposals = tuple(Proposal(token, 0.6, ((32, 0.1),)) for token in offered)
            is_last = taken == left
            stop = "threshold" if not is_last else ("eos" if accepted[-1] == 257 else "limit")
            yield Step(
                (RowStep(0, start, start, 1, len(offered), proposals, accepted, 0, now, stop),)
            )
            if is_last:
                return
            start += taken


def num_proposals(settings: DecodeSettings) -> int:
    """B; where it is left to be chosen, this backend chooses 4."""
    return 4 if settings.is_auto else settings.num_proposals


class ScriptedBatch:
    """Rows that share forwards: each the text of its own, a step of all at a time."""

    def __init__(self, backend: ScriptedBackend) -> None:
        self._backend = backend
        self._rows: dict[int, Iterator[Event]] = {}

    def join(
        self, number: int, prompt: Sequence[int], settings: Callable[[], DecodeSettings]
    ) -> None:
        self._rows[number] = self._backend.decode(Request(prompt, settings()), settings)

    def read(self, number: int, at_most: int) -> int:
        next(self._rows[number])
        return 0

    def seat(self, numbers: Sequence[int]) -> None:
        """Any row may write."""

    def step(self, numbers: Sequence[int]) -> Step:
        steps = {number: next(self._rows[number]) for number in numbers}
        rows = tuple(replace(step.rows[0], row=number) for number, step in steps.items())
        for row in rows:
            if row.stop in ("eos", "limit"):
                self.drop(row.row)
        return Step(rows)

    def checked(self, step: Step, numbers: Collection[int]) -> Step:
        return step

    def num_reused(self, number: int) -> int:
        return 0

    def tidy(self) -> None:
        """Rows that end leave nothing."""

    def drop(self, number: int) -> None:
        del self._rows[number]


class ReadyEngines(Engines):
    """Engines with one checkpoint that is loaded already, or another that never can be.

    held: while it is not set, the checkpoint goes on loading.
    """

    def __init__(self, settings: AppSettings, served: Served) -> None:
        super().__init__(
            settings, {"scripted": served.entry, "absent": Entry("absent", 8, path="absent")}
        )
        self.held = threading.Event()
        self.held.set()
        self._served = served
        self.get("scripted")

    def forget(self) -> None:
        """The checkpoint is to be loaded again, once ``held`` is set."""
        self.held.clear()
        self._loads.clear()

    def _load(self, name: str) -> Served:
        if name != "scripted":
            return super()._load(name)
        assert self.held.wait(120)
        return self._served


def make_served(
    folder: Path, entry: Entry, backend: ScriptedBackend, settings: AppSettings
) -> Served:
    """An engine over ``backend`` for an entry of the registry."""
    model = SimpleNamespace(
        device=torch.device("cpu"),
        dtype=torch.float32,
        cache_dtype=torch.float32,
        arithmetic="float32",
        is_bitwise=True,
        weights=lambda: iter(()),
        cache_shape=lambda rows, capacity: (2, rows, capacity, 2, 8),
    )
    checkpoint = SimpleNamespace(
        name=entry.name,
        tokenizer=write_tokenizer(folder),
        model=model,
        block_size=entry.block_size,
    )
    engine = Engine(backend, settings.max_runs, settings.max_waiting)
    return Served(entry, checkpoint, engine)  # type: ignore[arg-type]


def make_handlers(
    folder: Path, backend: ScriptedBackend, path: str | None = "scripted", **caps: object
) -> Handlers:
    """Handlers over ``backend``; close them with ``handlers.engines.close()``. path: of the
    checkpoint, none for one that can chat."""
    settings = AppSettings(checkpoint="scripted", **caps)  # type: ignore[arg-type]
    entry = Entry("scripted", 8, path=path, licence="Apache-2.0")
    served = make_served(folder, entry, backend, settings)
    return handlers_over(ReadyEngines(settings, served))


def controls(**changes: object) -> dict[str, object]:
    """What the page sends for a run, with changes."""
    return {
        "prompt": "Say hello.",
        "tau": 0.95,
        "block_size": 8,
        "auto": False,
        "pace": 0,
        "view": "race",
        "lossless": False,
        "groups": "one",
        "lookup": False,
        "metric": "probability",
        "max_new_tokens": 64,
        "temperature": 0,
        "seed": 0,
        "checkpoint": "scripted",
        "history": "",
        **changes,
    }
