"""Earlier turns as posted, checked, and as many of them in front of a prompt as there is room for.

The page keeps its conversation and posts it with each run: the server remembers nothing of it.
Knows no gradio and no run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.controls import Limits, RefusalError, read_prompt
from app.methods import TITLES
from app.serving.loads import Served
from mars_runtime.text import Tokenizer
from mars_runtime.turns import Turn

MAX_TURNS = 100
UNREADABLE = "The conversation cannot be read: press New conversation."
FOREIGN = "The conversation is another model's: press New conversation."
Histories = Mapping[str, tuple[Turn, ...]]
"""Lane -> the turns that it goes on from."""


def read_history(value: object, limits: Limits) -> Histories:
    """Earlier turns, each {"prompt": text, "tokens": ids of the answer}: a list for all lanes, or
    {lane: list}, where a lane that has not answered yet goes on from AR's answers; as JSON or read
    already. Nothing for a first question. Raises RefusalError.

    Whether the checkpoint knows the tokens is looked up later.
    """
    posted = _parsed(value) if isinstance(value, str) else value
    if isinstance(posted, dict):
        return {lane: _turns(posted.get(lane, posted.get("ar")), limits) for lane in TITLES}
    return dict.fromkeys(TITLES, _turns(posted, limits))


def check_history(served: Served, turns: Iterable[Turn]) -> None:
    """Raises RefusalError for answers that this checkpoint cannot have written."""
    tokenizer = served.checkpoint.tokenizer
    never = tokenizer.eos_ids | tokenizer.forbidden_ids
    for turn in turns:
        is_text = all(0 <= token < tokenizer.size for token in turn.tokens)
        if not is_text or never.intersection(turn.tokens):
            raise RefusalError("prompt", FOREIGN)


def fitting(
    tokenizer: Tokenizer, prompt: str, history: Sequence[Turn], room: int
) -> tuple[Turn, ...]:
    """The latest turns that stand whole before the prompt within ``room`` tokens."""
    left = room - len(tokenizer.encode_prompt(prompt))
    num_kept = 0
    for turn in reversed(history):
        left -= tokenizer.num_tokens(turn)
        if left < 0:
            break
        num_kept += 1
    return tuple(history[len(history) - num_kept :])


def _parsed(value: str) -> Any:
    try:
        return json.loads(value) if value else None
    except (ValueError, RecursionError):
        raise RefusalError("prompt", UNREADABLE) from None


def _turns(posted: object, limits: Limits) -> tuple[Turn, ...]:
    if posted is None:
        return ()
    if not isinstance(posted, list) or len(posted) > MAX_TURNS:
        raise RefusalError("prompt", UNREADABLE)
    return tuple(_turn(each, limits) for each in posted)


def _turn(posted: object, limits: Limits) -> Turn:
    """A question as any prompt, and an answer no longer than this app lets one be."""
    given = posted if isinstance(posted, dict) else {}
    tokens = given.get("tokens")
    if not isinstance(tokens, list) or len(tokens) > limits.max_new_tokens:
        raise RefusalError("prompt", UNREADABLE)
    if not all(type(token) is int for token in tokens):
        raise RefusalError("prompt", UNREADABLE)
    try:
        return Turn(read_prompt(given.get("prompt"), limits), tuple(tokens))
    except RefusalError:
        raise RefusalError("prompt", UNREADABLE) from None
