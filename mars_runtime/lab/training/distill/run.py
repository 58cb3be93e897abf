"""Generate the training data of an adapter: the base model writes some of the prompts, then answers
all of the mixture. Stored work is skipped.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mars_runtime.decoders.cursor import CursorBatch
from mars_runtime.files.outputs import write_text
from mars_runtime.lab.training.distill import store
from mars_runtime.lab.training.distill.mixture import Prompt, benchmark_runs, mixture
from mars_runtime.lab.training.distill.requests import Turns
from mars_runtime.lab.training.train import progress_bar
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.runs.events import FINAL
from mars_runtime.runs.loops import find_loop
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Tokenizer

SEED = 20261122
WRITTEN = "written.jsonl"
"""File name of the prompts that the base model wrote. All parts of a run must share this file."""
MAX_PROMPT = 384
WRITTEN_TOKENS = 96
ENDS = {"eos": "eos", "limit": "length", "repeats": "loop"}
"""Value of ``RowStep.stop`` in the last step of a row -> value of ``end`` in the stored answer."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to prompt ``index``. ids: its tokens with EOS. end: eos, length or loop."""

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
        """Answer those of the first ``count`` prompts that have no stored answer yet. written:
        number of prompts that the base model writes first, if none are stored.
        """
        number, parts = self.part
        tokenizer = self.checkpoint.tokenizer
        if written and not (self.out / WRITTEN).exists():
            self._write_prompts(written)
        prompts = mixture(self.data, self._written(), self.benchmarks, SEED, count)
        done = {record.key for record in store.read(self.out)}
        unanswered: list[tuple[Prompt, list[int]]] = []
        for prompt in prompts[number - 1 :: parts]:
            ids = tokenizer.encode_chat(with_roles(prompt.turns))
            if len(ids) <= MAX_PROMPT and store.key_of(ids) not in done:
                unanswered.append((prompt, ids))
        answers = store.AnswerFile(self.out / f"answers-{number}-of-{parts}.jsonl")
        ids_to_answer = [ids for _, ids in unanswered]
        generated = generate(self.checkpoint, ids_to_answer, self.settings, self.rows)
        for answer in metered("answers", len(unanswered), generated):
            if answer.ids:
                answers.append([record_of(*unanswered[answer.index], answer)])

    def _write_prompts(self, count: int) -> None:
        """Let the base model write prompts, by sampling the user's turn of its chat template."""
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
    """Decode all prompts, up to ``rows`` at once; yield each answer when it is complete.

    With a temperature, prompt i has the seed ``settings.seed + i``. An answer that begins to repeat
    itself is cut before the first repetition.
    """
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


def with_roles(turns: Turns) -> list[tuple[str, str]]:
    return [(("user", "assistant")[i % 2], text) for i, text in enumerate(turns)]


def open_user_turn(tokenizer: Tokenizer) -> list[int]:
    return tokenizer.encode_chat([("user", "")], continue_final_message=True)


def record_of(prompt: Prompt, ids: list[int], answer: Completion) -> store.DistillRecord:
    key, is_held_out = store.key_of(ids), prompt.is_held_out
    return store.DistillRecord(key, prompt.kind, is_held_out, tuple(ids), answer.ids, answer.end)


def metered(name: str, total: int, generated: Iterator[Completion]) -> Iterator[Completion]:
    num_tokens, began = 0, time.monotonic()
    with progress_bar() as bar:
        task = bar.add_task(name, total=total, info="")
        for answer in generated:
            yield answer
            num_tokens += len(answer.ids)
            rate = num_tokens / (time.monotonic() - began)
            bar.update(task, advance=1, info=f"{rate:,.0f} tokens/s")
