"""The requests of a load and their arrival times.

Prompts are held-out tasks. A seed determines prompts, lengths and arrivals, so all methods get
equal requests. Arrival times are sorted seconds since the start.
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
"""Average number of requests in a burst of BURST_SECONDS."""
BURST_SECONDS = 0.25
MAX_RECORDED = 10_000
SHORTEST = 0.5
"""Token limits are drawn between this share of the maximum limit and the maximum limit."""
LONG = frozenset({"summary", "rewriting", "reading", "multiple_choice"})
"""Task families with a long text in the prompt."""
MIXES = {"short": "short prompts", "all": "short and long prompts"}
"""Name of a mix of prompts -> its title on the page."""


class ArrivalsError(ValueError):
    """Arrival times are invalid; the message explains how to write them."""


def poisson(rate: float, seconds: float, seed: int) -> tuple[float, ...]:
    """Draw the arrival times of a Poisson process with ``rate`` requests per second."""
    rng, arrivals, at = random.Random(seed), [], 0.0
    while (at := at + rng.expovariate(rate)) < seconds:
        arrivals.append(at)
    return tuple(arrivals)


def bursts(rate: float, seconds: float, seed: int) -> tuple[float, ...]:
    """Draw arrival times in bursts, with ``rate`` requests per second on average.

    The bursts begin at the times of a Poisson process.
    """
    rng = random.Random(f"bursts:{seed}")
    arrivals = [
        begin + rng.uniform(0.0, BURST_SECONDS)
        for begin in poisson(rate / BURST_SIZE, seconds, seed)
        for _ in range(rng.randint(1, 2 * BURST_SIZE - 1))
    ]
    return tuple(sorted(moment for moment in arrivals if moment < seconds))


def read_recorded(text: str) -> tuple[float, ...]:
    """Parse arrival times: a JSON list of seconds, or seconds separated by commas or spaces.

    Raises ArrivalsError for any other text.
    """
    try:
        listed = json.loads(text) if text.lstrip().startswith("[") else _numbers(text)
    except (ValueError, RecursionError):
        listed = None
    return arrivals_of(listed)


def arrivals_of(listed: object) -> tuple[float, ...]:
    """Return a list of arrival times as sorted seconds. Raises ArrivalsError for invalid ones."""
    values = listed if isinstance(listed, (list, tuple)) else ()
    if not 0 < len(values) <= MAX_RECORDED or not all(_is_moment(value) for value in values):
        raise ArrivalsError(
            "Enter the arrival times in seconds from the start, separated by commas, such as "
            "0, 0.4, 1.2."
        )
    return tuple(sorted(float(value) for value in values))


def rate_of(arrivals: Sequence[float]) -> float:
    """Return the average number of arrivals per second up to the last arrival; 0 if the last
    arrival is at time 0.
    """
    last = max(arrivals, default=0.0)
    return len(arrivals) / last if last else 0.0


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.replace(",", " ").split()]


def _is_moment(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value < math.inf  # type: ignore[operator]  # NaN compares false


@dataclass(frozen=True, slots=True)
class Ask:
    """A request of a load. budget: seconds in which its answer should be complete, or None."""

    prompt: str
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    budget: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A load: one request per arrival time, all decoded with one method.

    places: maximum number of requests in the engine at once. max_queue: maximum number of waiting
    requests; further requests are rejected. max_seconds: duration after which unfinished requests
    are cancelled. owner: the owner of the requests in the engine.
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

    Prompts alternate between the families of the mix; token limits are drawn uniformly between
    SHORTEST * ``max_new_tokens`` and ``max_new_tokens``. Every second request has the ``budget``.
    system: the system prompt; empty for the checkpoint's default.
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
            budget if index % 2 == 0 else None,
        )
        for index, prompt in enumerate(prompts)
    )


def families_of(checkpoint: str, mix: str) -> Sequence[str]:
    """Return the task families from which a mix draws its prompts."""
    families = families_for(is_chat(checkpoint))
    return [family for family in families if family not in LONG] if mix == "short" else families
