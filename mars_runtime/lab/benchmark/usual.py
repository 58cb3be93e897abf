"""What is measured where nothing else is asked: one set of numbers for tasks, one for requests.

Answers of a chat model are long, so fewer are timed, and transformers' ways, many times slower,
answer some of them once. Knows names and numbers; knows no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mars_runtime import tasks
from mars_runtime.model.registry import is_chat


@dataclass(frozen=True, slots=True)
class Usual:
    """Defaults of a benchmark.

    num_slow, num_first, has_memory: as of an Order.
    """

    families: tuple[str, ...]
    num_prompts: int
    num_rounds: int
    batch_sizes: tuple[int, ...]
    max_new_tokens: int
    threads: tuple[int, ...]
    num_slow: int | None
    num_first: int
    has_memory: bool


TASKS = Usual(
    families=tuple(tasks.all_families()),
    num_prompts=10,
    num_rounds=3,
    batch_sizes=(1, 8),
    max_new_tokens=96,
    threads=(1, 2),
    num_slow=None,
    num_first=0,
    has_memory=True,
)
REQUESTS = Usual(
    families=tasks.KINDS,
    num_prompts=12,
    num_rounds=2,
    batch_sizes=(1,),
    max_new_tokens=64,
    threads=(2,),
    num_slow=2,
    num_first=200,
    has_memory=False,
)


def usual_for(checkpoint: str, families: Sequence[str] | None) -> Usual:
    """Of requests where some are asked for, or a chat model is asked without saying what."""
    if families is None:
        return REQUESTS if is_chat(checkpoint) else TASKS
    return REQUESTS if set(families) & set(tasks.KINDS) else TASKS


def in_words(name: str, what: str) -> str:
    """A line of help with both defaults."""
    values = [getattr(usual, name) for usual in (TASKS, REQUESTS)]
    told = [" ".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in values]
    return f"{what} ({told[0]}; {told[1]} of requests)"
