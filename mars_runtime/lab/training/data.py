"""Training examples from task families and natural text, in batches. A shard depends only on the
recipe and its number, so a resumed run trains on the same data."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from mars_runtime import tasks
from mars_runtime.lab.training.recipe import Recipe
from mars_runtime.lab.training.tales import fairytale_questions, tale_passages
from mars_runtime.text import Tokenizer


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """ids: prompt, response and EOS. response_start: index in ``ids``."""

    ids: tuple[int, ...]
    response_start: int


class Corpus:
    """Reads ``folder`` into memory."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self._recipe = recipe
        files = {
            "tales": tale_passages(folder, "train"),
            "fairytale": fairytale_questions(folder, "train"),
        }
        self._files = {name: [(t.prompt, t.answer) for t in tasks] for name, tasks in files.items()}

    def pairs(self, shard: int) -> list[tuple[str, str]]:
        recipe = self._recipe
        rng = random.Random(f"{recipe.seed}/{shard}")
        pairs: list[tuple[str, str]] = []
        for source, share in recipe.mixture:
            count = round(share * recipe.shard_examples)
            if source in self._files:
                pairs += [rng.choice(self._files[source]) for _ in range(count)]
            else:
                seed = rng.randrange(2**31)
                drawn = tasks.generate(source, "train", seed, count)
                pairs += [(task.prompt, task.answer) for task in drawn]
        rng.shuffle(pairs)
        return pairs

    def texts(self, num_shards: int) -> Iterator[str]:
        return chain.from_iterable(pair for n in range(num_shards) for pair in self.pairs(n))


def encode(prompt: str, answer: str, tokenizer: Tokenizer, max_length: int) -> TrainingExample:
    """An example longer than ``max_length`` is cut and then has no EOS."""
    head = tokenizer.encode_prompt(prompt)
    tail = [*tokenizer.encode(answer), tokenizer.end_id]
    ids = [*head, *tail][:max_length]
    return TrainingExample(tuple(ids), len(head))


def encoded(
    corpus: Corpus, tokenizer: Tokenizer, recipe: Recipe, shard: int
) -> list[TrainingExample]:
    """Leave out examples with too long prompts."""
    examples = [encode(p, a, tokenizer, recipe.max_length) for p, a in corpus.pairs(shard)]
    return [e for e in examples if len(e.ids) > e.response_start]


def in_batches(
    examples: Sequence[TrainingExample], batch_tokens: int, order: str
) -> list[list[TrainingExample]]:
    """batch_tokens: maximum tokens of a batch, padding included."""
    rng = random.Random(order)
    result: list[list[TrainingExample]] = []
    batch: list[TrainingExample] = []
    # Examples are sorted by length, so the last one added sets the width of the batch.
    for example in sorted(examples, key=lambda e: (len(e.ids), rng.random())):
        if batch and (len(batch) + 1) * len(example.ids) > batch_tokens:
            result.append(batch)
            batch = []
        batch.append(example)
    if batch:
        result.append(batch)
    rng.shuffle(result)
    return result
