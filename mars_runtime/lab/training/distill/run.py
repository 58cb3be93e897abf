"""A run of ``distill``: prompts written by the base itself, then answers to the whole mixture.

Prompts and answers that are stored already are skipped.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mars_runtime.decoders import CursorBatch
from mars_runtime.events import FINAL
from mars_runtime.lab.training.distill import store
from mars_runtime.lab.training.distill.mixture import Prompt, benchmark_runs, mixture
from mars_runtime.lab.training.distill.requests import Turns
from mars_runtime.lab.training.train import progress_bar
from mars_runtime.loops import find_loop
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.outputs import write_text
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Tokenizer

SEED = 20261122
WRITTEN = "written.jsonl"
"""Prompts written by the base; every part of a run must use the same file."""
MAX_PROMPT = 384
WRITTEN_TOKENS = 96
ENDS = {"eos": "eos", "limit": "length", "repeats": "loop"}
"""Why an answer ended, as stored in the file, by a row's ``stop``."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to prompt number ``index``. end: eos (its last id), length or loop."""

    index: int
    ids: tuple[int, ...]
    end: str


class Distiller:
    """Answers one part of the mixture with the base named ``base``.

    part: (K, N) for every N-th prompt from the K-th on. Raises CheckpointError.
    """

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
        """Answer the missing ones of the first ``count`` prompts."""
        number, parts = self.part
        tokenizer = self.checkpoint.tokenizer
        if written and not (self.out / WRITTEN).exists():
            self._write_prompts(written)
        prompts = mixture(self.data, self._written(), self.benchmarks, SEED, count)
        done = {record.key for record in store.read(self.out)}
        todo: list[tuple[Prompt, list[int]]] = []
        for prompt in prompts[number - 1 :: parts]:
            ids = tokenizer.encode_chat(with_roles(prompt.turns))
            if len(ids) <= MAX_PROMPT and store.key_of(ids) not in done:
                todo.append((prompt, ids))
        answers = store.AnswerFile(self.out / f"answers-{number}-of-{parts}.jsonl")
        generated = generate(self.checkpoint, [ids for _, ids in todo], self.settings, self.rows)
        for answer in metered("answers", len(todo), generated):
            if answer.ids:
                answers.append([record_of(*todo[answer.index], answer)])

    def _write_prompts(self, count: int) -> None:
        """Let the base write prompts: sample after the template up to the user's turn."""
        tokenizer = self.checkpoint.tokenizer
        settings = replace(self.settings, max_new_tokens=WRITTEN_TOKENS, temperature=1.0, seed=SEED)
        starts = [open_user_turn(tokenizer)] * count
        generated = generate(self.checkpoint, starts, settings, self.rows)
        texts = [
            tokenizer.decode(answer.ids[:-1]).strip()
            for answer in metered("prompts", count, generated)
            if answer.end == "eos"
        ]
        lines = [json.dumps(text) + "\n" for text in texts if len(text.split()) >= 3]
        write_text(self.out / WRITTEN, "".join(lines))

    def _written(self) -> list[str]:
        path = self.out / WRITTEN
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]


def generate(
    checkpoint: Checkpoint, prompts: Sequence[list[int]], settings: DecodeSettings, rows: int
) -> Iterator[Completion]:
    """Decode every prompt and yield its answer when it ends; up to ``rows`` share forward passes.

    With a temperature, prompt i is sampled with the seed ``settings.seed + i``. A repetition loop
    ends an answer before its first repeat.
    """
    if not prompts:
        return
    # The longest first: a long answer that starts last would leave the batch nearly empty.
    waiting = deque(sorted(range(len(prompts)), key=lambda index: -len(prompts[index])))
    capacity = len(prompts[waiting[0]]) + settings.max_new_tokens
    tokens: dict[int, list[int]] = {}
    batch = CursorBatch(checkpoint.model, checkpoint.tokenizer, rows, capacity)
    while waiting or batch.rows:
        while waiting and len(batch.rows) < rows:
            index = waiting.popleft()
            own = replace(settings, seed=settings.seed + index)
            batch.add(index, prompts[index], lambda own=own: own)  # type: ignore[misc]
            tokens[index] = []
        for row in batch.step().rows:
            tokens[row.row] += row.accepted
            if row.stop in FINAL:
                answer = tokens.pop(row.row)
                loop = find_loop(answer)
                end = ENDS[row.stop] if loop is None else "loop"
                yield Completion(row.row, tuple(answer[: loop.kept if loop else None]), end)


def with_roles(turns: Turns) -> list[tuple[str, str]]:
    """Return turns with the roles user and assistant, the user first."""
    return [(("user", "assistant")[i % 2], text) for i, text in enumerate(turns)]


def open_user_turn(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of the template up to the place where a user begins to write."""
    opened = len(tokenizer.encode("assistant\n"))
    return [*tokenizer.encode_chat([])[:-opened], *tokenizer.encode("user\n")]


def record_of(prompt: Prompt, ids: list[int], answer: Completion) -> store.DistillRecord:
    """Return the stored form of an answered prompt."""
    key, is_held_out = store.key_of(ids), prompt.is_held_out
    return store.DistillRecord(key, prompt.kind, is_held_out, tuple(ids), answer.ids, answer.end)


def metered(name: str, total: int, generated: Iterator[Completion]) -> Iterator[Completion]:
    """Pass answers through and show a progress bar with tokens per second."""
    num_tokens, began = 0, time.monotonic()
    with progress_bar() as bar:
        task = bar.add_task(name, total=total, info="")
        for answer in generated:
            yield answer
            num_tokens += len(answer.ids)
            rate = num_tokens / (time.monotonic() - began)
            bar.update(task, advance=1, info=f"{rate:,.0f} tokens/s")
