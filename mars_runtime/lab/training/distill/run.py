"""One run of `distill`: prompts written by the base itself, then the answers to the whole mixture.

Everything that was written before is kept and skipped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from mars_runtime.lab.training.backbone import Backbone, fast_dtype, read_base
from mars_runtime.lab.training.distill import store
from mars_runtime.lab.training.distill.generate import Completion, GenerationConfig, generate
from mars_runtime.lab.training.distill.mixture import Prompt, benchmark_runs, mixture
from mars_runtime.lab.training.distill.requests import Turns
from mars_runtime.lab.training.train import progress_bar
from mars_runtime.outputs import write_text
from mars_runtime.text import Tokenizer

SEED = 20261122
WRITTEN = "written.jsonl"
"""Prompts that the base wrote itself; every part of a run must find the same ones."""
MAX_PROMPT = 384
WRITTEN_TOKENS = 96


class Distiller:
    """Answers one part of the mixture with the base named ``base``; part: (K, N), every N-th
    prompt from the K-th on."""

    def __init__(
        self, base: str, data: Path, out: Path, part: tuple[int, int], rows: int, max_tokens: int
    ) -> None:
        found = read_base(base)
        self.tokenizer = found.tokenizer
        self.data, self.out, self.part = data, out, part
        self.model = Backbone(found, fast_dtype(), pack_rows=rows)
        self.config = GenerationConfig(self.tokenizer.im_end_id, max_tokens=max_tokens, rows=rows)
        self.benchmarks = benchmark_runs(data / "benchmarks")

    def run(self, count: int, written: int) -> None:
        """Answer what is missing of the first ``count`` prompts."""
        number, parts = self.part
        if written and not (self.out / WRITTEN).exists():
            self._write_prompts(written)
        prompts = mixture(self.data, self._written(), self.benchmarks, SEED, count)
        done = {record.key for record in store.read(self.out)}
        todo: list[tuple[Prompt, list[int]]] = []
        for prompt in prompts[number - 1 :: parts]:
            ids = self.tokenizer.encode_chat(with_roles(prompt.turns))
            if len(ids) <= MAX_PROMPT and store.key_of(ids) not in done:
                todo.append((prompt, ids))
        answers = store.Answers(self.out / f"answers-{number}-of-{parts}.jsonl")
        generated = generate(self.model, [ids for _, ids in todo], self.config)
        for ended in metered("answers", len(todo), generated):
            answers.append([record_of(*todo[a.index], a) for a in ended if a.ids])

    def _write_prompts(self, count: int) -> None:
        """Let the base write what a user might ask: the template up to the user's turn, sampled."""
        start = open_user_turn(self.tokenizer)
        config = replace(self.config, max_tokens=WRITTEN_TOKENS, temperature=1.0, seed=SEED)
        texts = [
            self.tokenizer.decode(a.ids[:-1]).strip()
            for ended in metered("prompts", count, generate(self.model, [start] * count, config))
            for a in ended
            if a.end == "eos"
        ]
        kept = [json.dumps(text) + "\n" for text in texts if len(text.split()) >= 3]
        write_text(self.out / WRITTEN, "".join(kept))

    def _written(self) -> list[str]:
        path = self.out / WRITTEN
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]


def with_roles(turns: Turns) -> list[tuple[str, str]]:
    """User and assistant in turn, the user first."""
    return [(("user", "assistant")[i % 2], text) for i, text in enumerate(turns)]


def open_user_turn(tokenizer: Tokenizer) -> list[int]:
    """Ids of the template up to where a user begins to write."""
    opened = len(tokenizer.encode("assistant\n"))
    return [*tokenizer.encode_chat([])[:-opened], *tokenizer.encode("user\n")]


def record_of(prompt: Prompt, ids: list[int], answer: Completion) -> store.Record:
    """What is kept of an answered prompt."""
    key, is_held_out = store.key_of(ids), prompt.is_held_out
    return store.Record(key, prompt.kind, is_held_out, tuple(ids), answer.ids, answer.end)


def metered(
    name: str, total: int, generated: Iterator[list[Completion]]
) -> Iterator[list[Completion]]:
    """What is generated, and on the terminal a bar of finished rows with tokens per second."""
    tokens, began = 0, time.monotonic()
    with progress_bar() as bar:
        task = bar.add_task(name, total=total, info="")
        for ended in generated:
            yield ended
            tokens += sum(len(completion.ids) for completion in ended)
            rate = tokens / (time.monotonic() - began)
            bar.update(task, advance=len(ended), info=f"{rate:,.0f} tokens/s")
