"""The requests of a load and their arrival times.

The mix of held-out prompts and lengths is seeded and the same for every method. Arrivals are
sorted, in seconds from the start.
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
    from mars_runtime.traffic.controller import LoadMethod

BURST_SIZE = 6
"""Average number of requests in a burst, which lasts ``BURST_SECONDS``."""
BURST_SECONDS = 0.25
MAX_RECORDED = 10_000
SHORTEST = 0.5
"""An answer's limit is drawn between this share of the longest limit and all of it."""
LONG = frozenset({"summary", "rewriting", "reading", "multiple_choice"})
"""Families of prompts with a text to work on."""
MIXES = {"short": "short prompts", "all": "short and long prompts"}
"""Titles of the mixes by their names."""


class ArrivalsError(ValueError):
    """Invalid arrivals; the message is one sentence with the remedy."""


def poisson(rate: float, seconds: float, seed: int) -> tuple[float, ...]:
    """Return Poisson arrivals: ``rate`` per second on average, for ``seconds``."""
    rng, arrivals, now = random.Random(seed), [], 0.0
    while (now := now + rng.expovariate(rate)) < seconds:
        arrivals.append(now)
    return tuple(arrivals)


def bursts(rate: float, seconds: float, seed: int) -> tuple[float, ...]:
    """Return arrivals in bursts, with the same average rate. The bursts themselves are a Poisson
    process.
    """
    rng = random.Random(f"bursts:{seed}")
    arrivals = [
        begin + rng.uniform(0.0, BURST_SECONDS)
        for begin in poisson(rate / BURST_SIZE, seconds, seed)
        for _ in range(rng.randint(1, 2 * BURST_SIZE - 1))
    ]
    return tuple(sorted(moment for moment in arrivals if moment < seconds))


def read_recorded(text: str) -> tuple[float, ...]:
    """Parse recorded arrivals: seconds as a JSON list, or separated by commas or spaces.

    Raises ArrivalsError if the text is neither.
    """
    try:
        listed = json.loads(text) if text.lstrip().startswith("[") else _numbers(text)
    except (ValueError, RecursionError):
        listed = None
    return arrivals_of(listed)


def arrivals_of(listed: object) -> tuple[float, ...]:
    """Return the listed seconds in order. Raises ArrivalsError."""
    values = listed if isinstance(listed, (list, tuple)) else ()
    if not 0 < len(values) <= MAX_RECORDED or not all(_is_moment(value) for value in values):
        raise ArrivalsError(
            "Give the arrivals as seconds from the start, separated by commas, such as 0, 0.4, 1.2."
        )
    return tuple(sorted(float(value) for value in values))


def rate_of(arrivals: Sequence[float]) -> float:
    """Return the arrivals per second up to the last one; 0 if there are no two different times."""
    last = max(arrivals, default=0.0)
    return len(arrivals) / last if last else 0.0


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.replace(",", " ").split()]


def _is_moment(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value < math.inf  # type: ignore[operator]  # NaN compares false


@dataclass(frozen=True, slots=True)
class Ask:
    """A request of the mix. budget: seconds within which it needs its answer; None for no limit."""

    prompt: str
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    budget: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A load: a request for each arrival, decoded with one method.

    places: requests submitted to the engine at once. max_queue: requests that wait for a slot;
    further ones are refused. max_seconds: from the start; unfinished requests are then cut. owner:
    owner of the engine's requests.
    """

    arrivals: Sequence[float]
    asks: Sequence[Ask]
    method: LoadMethod
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
    """Return ``count`` requests for a checkpoint of the registry.

    The families of the mix take turns, and limits are drawn evenly. Every second request has the
    ``budget``. ``system``: the system prompt; empty for the checkpoint's own.
    """
    families = families_of(checkpoint, mix)
    per_family = -(-count // len(families))
    drawn = [generate(family, "eval", seed, per_family) for family in families]
    prompts = [tasks[turn % len(tasks)].prompt for turn in range(per_family) for tasks in drawn][
        :count
    ]
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
    """Return the families that a mix draws from."""
    families = families_for(is_chat(checkpoint))
    return [family for family in families if family not in LONG] if mix == "short" else families
