"""Choose the prompts of the training data, without those that share 13 consecutive words with a
benchmark."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from mars_runtime.lab.training.distill import requests
from mars_runtime.lab.training.distill.requests import Texts, Turns

SHARES = {"chat": 0.70, "maths": 0.09, "code": 0.09, "summary": 0.06, "rewriting": 0.06}
HELD_OUT_ONE_IN = 50
OTHER_SYSTEM_ONE_IN = 4
MIN_SHARED_WORDS = 13
NUM_FIRST_WORDS = 8


@dataclass(frozen=True, slots=True)
class Prompt:
    """system: None for the checkpoint's default. A follow-up has the ``hash`` of its first request,
    so a whole conversation is held out or none of it.
    """

    kind: str
    turns: Turns
    system: str | None
    hash: int

    @classmethod
    def of(cls, kind: str, turns: Turns) -> Prompt:
        number = zlib.crc32("\x00".join(turns).encode())
        own = number // HELD_OUT_ONE_IN
        others = requests.SYSTEMS
        is_other = own % OTHER_SYSTEM_ONE_IN == 0
        system = others[own // OTHER_SYSTEM_ONE_IN % len(others)] if is_other else None
        return cls(kind, turns, system, number)

    @property
    def is_held_out(self) -> bool:
        return self.hash % HELD_OUT_ONE_IN == 0

    @property
    def conversation(self) -> list[tuple[str, str]]:
        system = [] if self.system is None else [("system", self.system)]
        return system + [(("user", "assistant")[i % 2], text) for i, text in enumerate(self.turns)]


def mixture(
    data: Path, written: list[str], benchmarks: Set[int], seed: int, count: int
) -> list[Prompt]:
    """written: prompts of the base model. benchmarks: ``runs`` that no prompt may contain."""
    texts = Texts(data, seed)
    passages = texts.passages()
    reading = requests.questions(texts.questions(), texts.random("reading"))
    half = len(passages) // 2
    collected, by_base = texts.instructions(), iter([(text,) for text in written])
    sources: dict[str, Iterator[Turns]] = {
        # Two thirds are the base model's, as long as no source is exhausted.
        "chat": chain(
            requests.alternate(collected, by_base, by_base),
            collected,
            by_base,
            requests.chat_requests(texts.random("chat")),
        ),
        "maths": texts.maths(),
        "code": requests.code_requests(texts.random("code")),
        "summary": requests.alternate(
            requests.summaries(passages[:half], texts.random("summary")), reading
        ),
        "rewriting": requests.rewriting(passages[half:], texts.random("rewriting")),
    }
    mixed = interleave(sources, SHARES)
    clean = (p for p in mixed if all(benchmarks.isdisjoint(runs(text)) for text in p.turns))
    return list(islice(clean, count))


def interleave(
    sources: Mapping[str, Iterator[Turns]], shares: Mapping[str, float]
) -> Iterator[Prompt]:
    """At any point the kinds have the given shares. If a source is exhausted, the others
    continue."""
    seen: set[Turns] = set()
    drawn = dict.fromkeys(sources, 0)
    left = dict(sources)
    while left:
        kind = min(left, key=lambda k: (drawn[k] + 1) / shares[k])
        turns = next(left[kind], None)
        if turns is None:
            del left[kind]
            continue
        drawn[kind] += 1
        if turns not in seen:
            seen.add(turns)
            yield Prompt.of(kind, turns)


def without_near_duplicates(texts: Iterable[str]) -> Iterator[str]:
    """Drop texts that begin like an earlier text, or have the same set of words."""
    seen: set[Hashable] = set()
    for text in texts:
        parts = words(text)
        keys: set[Hashable] = {tuple(parts[:NUM_FIRST_WORDS]), frozenset(parts)}
        if seen.isdisjoint(keys):
            yield text
        seen |= keys


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def runs(text: str) -> set[int]:
    """Hash all sequences of MIN_SHARED_WORDS consecutive words."""
    text_words = words(text)
    return {
        hash(tuple(text_words[i : i + MIN_SHARED_WORDS]))
        for i in range(len(text_words) - MIN_SHARED_WORDS + 1)
    }


def benchmark_runs(folder: Path) -> set[int]:
    """Read all strings in ``*.jsonl`` and ``*.jsonl.gz``."""
    files = sorted(folder.glob("*.jsonl*"))
    return {run for path in files for text in _strings(path) for run in runs(text)}


def _strings(path: Path) -> Iterator[str]:
    open_text = gzip.open if path.suffix == ".gz" else open
    with open_text(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield from _leaves(json.loads(line))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
