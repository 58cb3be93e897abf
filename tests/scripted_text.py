"""A backend that writes a given text, and a tokenizer of single bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from mars_runtime.engine.backend import Backend
from mars_runtime.engine.request import Request
from mars_runtime.runs.events import Event, Prefill, Proposal, RowStep, Step
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Tokenizer, byte_characters
from tests.tiny_tokenizer import SPECIALS


def write_tokenizer(folder: Path) -> Tokenizer:
    """A byte-level tokenizer without merges, so that a token is a byte."""
    vocabulary = {character: byte for byte, character in byte_characters().items()}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIALS))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return Tokenizer.from_dir(folder)


class ScriptedBackend(Backend):
    """Write ``text`` byte by byte for any prompt: one byte per forward at tau 1 or as AR, B bytes
    below tau 0.6.
    """

    capacity = 100_000

    def __init__(self, text: str = "Hello.", forward_seconds: float = 0.002) -> None:
        self.text = text
        self.forward_seconds = forward_seconds
        self.prompts: list[tuple[int, ...]] = []
        self.num_forwards = 0

    def reserve(self, num_rows: int) -> int:
        return num_rows

    def prepare(self) -> None:
        pass

    def batch(self) -> ScriptedBatch:
        return ScriptedBatch(self)

    def check(self, request: Request) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def answer_to(self, prompt_ids: Sequence[int]) -> str:
        return self.text

    def decode(self, request: Request, settings: Callable[[], DecodeSettings]) -> Iterator[Event]:
        self.prompts.append(tuple(request.prompt_ids))
        yield Prefill(len(request.prompt_ids) - 1)
        ids = [*self.answer_to(request.prompt_ids).encode(), 257]
        start = 0
        while True:
            time.sleep(self.forward_seconds)
            self.num_forwards += 1
            current = settings()
            left = min(len(ids), current.max_new_tokens) - start
            offered = ids[start : start + min(num_proposals(current), left)]
            taken = 1 if current.method == "ar" or current.tau >= 0.6 else len(offered)
            accepted = tuple(offered[:taken])
            proposals = tuple(Proposal(token, 0.6, ((32, 0.1),)) for token in offered)
            is_last = taken == left
            stop = "threshold" if not is_last else ("eos" if accepted[-1] == 257 else "limit")
            yield Step(
                (RowStep(0, start, start, 1, len(offered), proposals, accepted, 0, current, stop),)
            )
            if is_last:
                return
            start += taken


def num_proposals(settings: DecodeSettings) -> int:
    return 4 if settings.is_auto else settings.num_proposals


class ScriptedBatch:
    def __init__(self, backend: ScriptedBackend) -> None:
        self._backend = backend
        self._rows: dict[int, Iterator[Event]] = {}

    def join(
        self, number: int, prompt: Sequence[int], settings: Callable[[], DecodeSettings]
    ) -> None:
        self._rows[number] = self._backend.decode(Request(prompt, settings()), settings)

    def skip_prefix_cache(self, number: int) -> None:
        pass

    def prefill(self, number: int, at_most: int) -> int:
        next(self._rows[number])
        return 0

    def gather(self, numbers: Sequence[int]) -> None:
        pass

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

    def release_ended(self) -> None:
        pass

    def drop(self, number: int) -> None:
        del self._rows[number]
