"""What is asked, and when: a seeded mix of held-out prompts and lengths, the same for every method,
and the seconds from the start at which they arrive, in order.

Knows the tasks by their families and a tokenizer; knows no engine and no clock.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mars_runtime.model.registry import is_chat
from mars_runtime.tasks import families_for, generate

if TYPE_CHECKING:
    from mars_runtime.text import Tokenizer
    from mars_runtime.traffic.controller import Way

BURST_SIZE = 6
"""Requests of a burst, on average; they come within ``BURST_SECONDS``."""
BURST_SECONDS = 0.25
MAX_RECORDED = 10_000
SHORTEST = 0.5
"""Answers are limited to this share of the longest, to all of it, or to something between."""
LONG = frozenset({"summary", "rewriting", "reading", "multiple_choice"})
"""Families whose prompts hold a text to work on."""
MIXES = {"short": "short prompts", "all": "short and long prompts"}
"""Mix -> what it is called."""


class ArrivalsError(ValueError):
    """Arrivals that make no sense; the message is one sentence that says what to do."""


def poisson(rate: float, seconds: float, seed: int) -> tuple[float, ...]:
    """Arrivals that do not know of each other: ``rate`` per second on average, for ``seconds``."""
    rng, found, now = random.Random(seed), [], 0.0
    while (now := now + rng.expovariate(rate)) < seconds:
        found.append(now)
    return tuple(found)


def bursts(rate: float, seconds: float, seed: int) -> tuple[float, ...]:
    """The same rate on average, in bursts that arrive as Poisson's requests do."""
    rng = random.Random(f"bursts:{seed}")
    found = [
        begin + rng.uniform(0.0, BURST_SECONDS)
        for begin in poisson(rate / BURST_SIZE, seconds, seed)
        for _ in range(rng.randint(1, 2 * BURST_SIZE - 1))
    ]
    return tuple(sorted(moment for moment in found if moment < seconds))


def read_recorded(text: str) -> tuple[float, ...]:
    """Arrivals that were written down: seconds as a JSON list, or between commas or spaces.

    Raises ArrivalsError for what is no such list.
    """
    try:
        listed = json.loads(text) if text.lstrip().startswith("[") else _numbers(text)
    except (ValueError, RecursionError):
        listed = None
    return arrivals_of(listed)


def arrivals_of(listed: object) -> tuple[float, ...]:
    """The seconds of a list, in order. Raises ArrivalsError."""
    given = listed if isinstance(listed, (list, tuple)) else ()
    if not 0 < len(given) <= MAX_RECORDED or not all(_is_moment(each) for each in given):
        raise ArrivalsError(
            "Give the arrivals as seconds from the start with commas between, such as 0, 0.4, 1.2."
        )
    return tuple(sorted(float(each) for each in given))


def rate_of(arrivals: Sequence[float]) -> float:
    """Arrivals per second up to the last one; 0 where there are no two moments."""
    last = max(arrivals, default=0.0)
    return len(arrivals) / last if last else 0.0


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.replace(",", " ").split()]


def _is_moment(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value < math.inf  # type: ignore[operator]  # NaN compares false


@dataclass(frozen=True, slots=True)
class Ask:
    """A request of the mix. budget: seconds within which it wants its answer, None for any."""

    prompt: str
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    budget: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """What is to be driven: a request for each arrival, one way of decoding.

    places: requests that are with the engine at once; max_queue: that wait behind them, the others
    are refused. max_seconds: from the start; what goes on then is cut. owner: of the requests to
    the engine.
    """

    arrivals: Sequence[float]
    asks: Sequence[Ask]
    way: Way
    places: int = 8
    max_queue: int = 1000
    max_seconds: float = 300.0
    owner: str = ""


def asks_of(
    checkpoint: str,
    tokenizer: Tokenizer,
    mix: str,
    count: int,
    max_new_tokens: int,
    seed: int,
    budget: float | None = None,
    system: str = "",
) -> tuple[Ask, ...]:
    """``count`` requests for a checkpoint of the registry: the families of the mix in turn, limits
    drawn evenly. ``budget`` is every second request's; ``system`` is the system prompt, empty for
    the checkpoint's own."""
    families = families_of(checkpoint, mix)
    each = -(-count // len(families))
    drawn = [generate(family, "eval", seed, each) for family in families]
    prompts = [tasks[turn % len(tasks)].prompt for turn in range(each) for tasks in drawn][:count]
    rng = random.Random(f"lengths:{seed}")
    least = max(1, round(SHORTEST * max_new_tokens))
    return tuple(
        Ask(
            prompt,
            tuple(tokenizer.encode_prompt(prompt, system=system)),
            rng.randint(least, max_new_tokens),
            budget if place % 2 == 0 else None,
        )
        for place, prompt in enumerate(prompts)
    )


def families_of(checkpoint: str, mix: str) -> Sequence[str]:
    """The families that a mix draws from."""
    families = families_for(is_chat(checkpoint))
    return [each for each in families if each not in LONG] if mix == "short" else families
