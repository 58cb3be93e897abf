"""What is asked: a seeded mix of held-out prompts and lengths, the same for every method.

Knows the tasks by their families and a tokenizer; knows no arrivals and no engine.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mars_runtime.model.registry import is_chat
from mars_runtime.tasks import families_for, generate

if TYPE_CHECKING:
    from mars_runtime.text import Tokenizer

SHORTEST = 0.5
"""Answers are limited to this share of the longest, to all of it, or to something between."""
LONG = frozenset({"summary", "rewriting", "reading", "multiple_choice"})
"""Families whose prompts hold a text to work on."""
MIXES = {"short": "short prompts", "all": "short and long prompts"}
"""Mix -> what it is called."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request of the mix. budget: seconds within which it wants its answer, None for any."""

    prompt: str
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    budget: float | None = None


def asks_of(
    checkpoint: str,
    tokenizer: Tokenizer,
    mix: str,
    count: int,
    max_new_tokens: int,
    seed: int,
    budget: float | None = None,
) -> tuple[Ask, ...]:
    """``count`` requests for a checkpoint of the registry: the families of the mix in turn, limits
    drawn evenly. ``budget`` is every second request's."""
    families = families_of(checkpoint, mix)
    each = -(-count // len(families))
    drawn = [generate(family, "eval", seed, each) for family in families]
    prompts = [tasks[turn % len(tasks)].prompt for turn in range(each) for tasks in drawn][:count]
    rng = random.Random(f"lengths:{seed}")
    least = max(1, round(SHORTEST * max_new_tokens))
    return tuple(
        Ask(
            prompt,
            tuple(tokenizer.encode_prompt(prompt)),
            rng.randint(least, max_new_tokens),
            budget if place % 2 == 0 else None,
        )
        for place, prompt in enumerate(prompts)
    )


def families_of(checkpoint: str, mix: str) -> Sequence[str]:
    """The families that a mix draws from."""
    families = families_for(is_chat(checkpoint))
    return [each for each in families if each not in LONG] if mix == "short" else families
