"""One run of `distill`: prompts written by the base itself, then the answers to the whole mixture.

Everything that was written before is kept and skipped.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from mars_runtime.lab.training.backbone import Backbone, fast_dtype
from mars_runtime.lab.training.base import read_base
from mars_runtime.lab.training.distill import store
from mars_runtime.lab.training.distill.generate import Answer, Plan, generate
from mars_runtime.lab.training.distill.mixture import Benchmarks, Prompt, mixture
from mars_runtime.lab.training.distill.requests import Turns
from mars_runtime.text import Tokenizer

SEED = 20261122
WRITTEN = "written.jsonl"
"""Prompts that the base wrote itself; every part of a run must find the same ones."""
MAX_PROMPT = 384
WRITTEN_TOKENS = 96


class Distiller:
    """Answers one part of the mixture with the base in ``folder``."""

    def __init__(
        self,
        base: str,
        data: Path,
        out: Path,
        part: tuple[int, int],
        rows: int,
        max_tokens: int,
    ) -> None:
        found = read_base(base)
        self.tokenizer = found.tokenizer
        self.data, self.out, self.part = data, out, part
        self.model = Backbone(found, fast_dtype(), pack_rows=rows)
        self.plan = Plan(self.tokenizer.im_end_id, max_tokens=max_tokens, rows=rows)
        self.benchmarks = Benchmarks.read(data / "benchmarks")

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
        with Meter("answers", len(todo)) as meter:
            for ended in generate(self.model, [ids for _, ids in todo], self.plan):
                answers.append([record_of(*todo[a.index], a) for a in ended if a.ids])
                meter.add(len(ended), sum(len(a.ids) for a in ended))

    def _write_prompts(self, count: int) -> None:
        """Let the base write what a user might ask: the template up to the user's turn, sampled."""
        start = open_user_turn(self.tokenizer)
        plan = Plan(
            self.tokenizer.im_end_id,
            max_tokens=WRITTEN_TOKENS,
            rows=self.plan.rows,
            temperature=1.0,
            seed=SEED,
        )
        texts = []
        with Meter("prompts", count) as meter:
            for ended in generate(self.model, [start] * count, plan):
                texts += [
                    self.tokenizer.decode(a.ids[:-1]).strip() for a in ended if a.end == "eos"
                ]
                meter.add(len(ended), sum(len(a.ids) for a in ended))
        kept = [text for text in texts if len(text.split()) >= 3]
        path = self.out / WRITTEN
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text("".join(json.dumps(text) + "\n" for text in kept), encoding="utf-8")
        partial.replace(path)

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


def record_of(prompt: Prompt, ids: list[int], answer: Answer) -> store.Record:
    """What is kept of an answered prompt."""
    return store.Record(
        key=store.key_of(ids),
        kind=prompt.kind,
        held_out=prompt.is_held_out,
        prompt=tuple(ids),
        response=answer.ids,
        end=answer.end,
    )


class Meter:
    """A progress bar with tokens per second."""

    def __init__(self, name: str, total: int) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:.1f}%"),
        )
        self._bar = Progress(*columns, TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
        self._task = self._bar.add_task(name, total=total, rate="")
        self._tokens, self._began = 0, time.monotonic()

    def __enter__(self) -> Meter:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def add(self, rows: int, tokens: int) -> None:
        """Count finished rows and their tokens."""
        self._tokens += tokens
        rate = self._tokens / (time.monotonic() - self._began)
        self._bar.update(self._task, advance=rows, rate=f"{rate:,.0f} tokens/s")
