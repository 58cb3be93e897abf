"""Generate the training data of an adapter: the base model writes some of the prompts, then answers
all of the mixture. Stored work is skipped.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

from rich.console import Console

from mars_runtime.decoders.cursor import CursorBatch
from mars_runtime.display.terminal import progress_bars
from mars_runtime.files.outputs import write_text
from mars_runtime.lab.training.distill import store
from mars_runtime.lab.training.distill.mixture import (
    Prompt,
    benchmark_runs,
    mixture,
    without_near_duplicates,
)
from mars_runtime.lab.training.distill.requests import Texts
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.runs.events import FINAL
from mars_runtime.runs.loops import find_loop
from mars_runtime.settings import DecodeSettings

SEED = 20261122
WRITTEN = "written.jsonl"
"""All parts of a run must share this file."""
MAX_PROMPT = 384
WRITTEN_TOKENS = 96
CHUNK = 2048
"""Prompts that are answered before their conversations continue."""
SECOND_TURN_ONE_IN = 5
ENDS = {"eos": "eos", "limit": "length", "repeats": "loop"}


@dataclass(frozen=True, slots=True)
class Completion:
    """ids: with EOS. end: eos, length or loop."""

    index: int
    ids: tuple[int, ...]
    end: str


class Distiller:
    """Answers every N-th prompt from prompt K on; part: (K, N). Raises CheckpointError."""

    def __init__(
        self,
        base: str,
        data: Path,
        out: Path,
        part: tuple[int, int],
        rows: int,
        max_tokens: int,
        device: str = "auto",
    ) -> None:
        self.checkpoint = load_checkpoint(base, device=device)
        self.data, self.out, self.part, self.rows = data, out, part, rows
        self.settings = DecodeSettings("ar", 1.0, 1, max_new_tokens=max_tokens, stop_loops=True)
        self.benchmarks = benchmark_runs(data / "benchmarks")

    def run(self, count: int, written: int) -> None:
        """Stored answers are kept. written: number of prompts that the base model writes first."""
        if written and not (self.out / WRITTEN).exists():
            self._write_prompts(written)
        number, parts = self.part
        prompts = mixture(self.data, self._written(), self.benchmarks, SEED, count)
        self._file = store.AnswerFile(self.out / f"answers-{number}-of-{parts}.jsonl")
        self._records = {record.key: record for record in store.read(self.out)}
        for chunk in _chunks(prompts[number - 1 :: parts]):
            answered = self._answer(chunk)
            self._answer(self._second_requests(answered))

    def _answer(self, prompts: Sequence[Prompt]) -> list[tuple[Prompt, store.DistillRecord]]:
        """Leave out prompts that do not fit."""
        encode = self.checkpoint.tokenizer.encode_chat
        encoded = [(prompt, encode(prompt.conversation)) for prompt in prompts]
        fitting = [(p, ids, store.key_of(ids)) for p, ids in encoded if len(ids) <= MAX_PROMPT]
        unanswered = [(p, ids) for p, ids, key in fitting if key not in self._records]
        ids_to_answer = [ids for _, ids in unanswered]
        generated = generate(self.checkpoint, ids_to_answer, self.settings, self.rows)
        for answer in metered("answers", len(unanswered), generated):
            if answer.ids:
                record = record_of(*unanswered[answer.index], answer)
                self._file.append([record])
                self._records[record.key] = record
        return [(p, self._records[key]) for p, _, key in fitting if key in self._records]

    def _second_requests(
        self, answered: Sequence[tuple[Prompt, store.DistillRecord]]
    ) -> list[Prompt]:
        """Let the base model write the next turn of the user."""
        decode = self.checkpoint.tokenizer.decode
        conversations = [
            replace(prompt, turns=(*prompt.turns, decode(record.response[:-1])))
            for prompt, record in answered
            if record.end == "eos" and int(record.key, 16) % SECOND_TURN_ONE_IN == 0
        ]
        starts = [self._open_user_turn(prompt.conversation) for prompt in conversations]
        texts = self._sample(starts, "second requests")
        return [
            replace(conversations[index], turns=(*conversations[index].turns, text))
            for index, text in sorted(texts.items())
        ]

    def _write_prompts(self, count: int) -> None:
        """Sample the user's turn of the chat template. A third begin with the first words of a
        collected request, for variety."""
        texts = Texts(self.data, SEED)
        given = cycle(first_words(turns[0]) for turns in texts.instructions())
        beginnings = [next(given, "") if i % 3 == 0 else "" for i in range(count)]
        starts = [self._open_user_turn([], text) for text in beginnings]
        sampled = self._sample(starts, "prompts")
        whole = (beginnings[index] + text for index, text in sorted(sampled.items()))
        kept = [text for text in without_near_duplicates(whole) if len(text.split()) >= 3]
        write_text(self.out / WRITTEN, "".join(json.dumps(text) + "\n" for text in kept))

    def _open_user_turn(
        self, conversation: Sequence[tuple[str, str]], beginning: str = ""
    ) -> list[int]:
        turns = [*conversation, ("user", beginning)]
        return self.checkpoint.tokenizer.encode_chat(turns, continue_final_message=True)

    def _sample(self, starts: list[list[int]], name: str) -> dict[int, str]:
        """Return complete continuations, by the index of their start."""
        settings = replace(self.settings, max_new_tokens=WRITTEN_TOKENS, temperature=1.0, seed=SEED)
        generated = generate(self.checkpoint, starts, settings, self.rows)
        return {
            answer.index: self.checkpoint.tokenizer.decode(answer.ids[:-1]).rstrip()
            for answer in metered(name, len(starts), generated)
            if answer.end == "eos"
        }

    def _written(self) -> list[str]:
        path = self.out / WRITTEN
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]


def generate(
    checkpoint: Checkpoint, prompts: Sequence[list[int]], settings: DecodeSettings, rows: int
) -> Iterator[Completion]:
    """Decode up to ``rows`` prompts at once; yield each answer when it is complete, cut before a
    repetition loop. With a temperature, prompt i has the seed ``settings.seed + i``."""
    if not prompts:
        return
    # Long prompts first, so that the last batch does not wait for a single long text.
    waiting = deque(sorted(range(len(prompts)), key=lambda index: -len(prompts[index])))
    capacity = len(prompts[waiting[0]]) + settings.max_new_tokens
    tokens: dict[int, list[int]] = {}
    batch = CursorBatch(checkpoint.model, checkpoint.tokenizer, rows, capacity)
    while waiting or batch.rows:
        while waiting and len(batch.rows) < rows:
            index = waiting.popleft()
            seeded = replace(settings, seed=settings.seed + index)
            batch.add(index, prompts[index], lambda s=seeded: s)  # type: ignore[misc]
            tokens[index] = []
        for row in batch.step().rows:
            tokens[row.row] += row.accepted
            if row.stop in FINAL:
                answer = tokens.pop(row.row)
                loop = find_loop(answer)
                end = ENDS[row.stop] if loop is None else "loop"
                yield Completion(row.row, tuple(answer[: loop.kept if loop else None]), end)


def _chunks(prompts: Sequence[Prompt]) -> Iterator[Sequence[Prompt]]:
    return (prompts[i : i + CHUNK] for i in range(0, len(prompts), CHUNK))


def first_words(text: str) -> str:
    """The number depends on the length of the text."""
    return " ".join(text.split()[: 1 + len(text) % 3])


def record_of(prompt: Prompt, ids: list[int], answer: Completion) -> store.DistillRecord:
    key, is_held_out = store.key_of(ids), prompt.is_held_out
    return store.DistillRecord(key, prompt.kind, is_held_out, tuple(ids), answer.ids, answer.end)


def metered(name: str, total: int, generated: Iterator[Completion]) -> Iterator[Completion]:
    num_tokens, began = 0, time.monotonic()
    with progress_bars(Console()) as bar:
        task = bar.add_task(name, total=total)
        for answer in generated:
            yield answer
            num_tokens += len(answer.ids)
            rate = num_tokens / (time.monotonic() - began)
            bar.update(task, advance=1, description=f"{name} {rate:,.0f} tokens/s")
