"""An order as a request of one model's engine: its prompt in tokens, as much as there is room for.

Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mars_runtime.engine.request import Request
from mars_runtime.serving.errors import ApiError
from mars_runtime.serving.models import Model
from mars_runtime.serving.order import Order
from mars_runtime.settings import MAX_NEW_TOKENS, RECOMMENDED, DecodeSettings
from mars_runtime.text import Said, Tokenizer


@dataclass(frozen=True, slots=True)
class Caps:
    """What keeps a server alive. max_new_tokens: of an answer; max_seconds: from submission to its
    end, then it ends as it is; max_body_bytes: larger requests are refused unread;
    max_runs_per_address: of one address at once, waiting ones included, 0 for any number."""

    max_new_tokens: int = MAX_NEW_TOKENS
    max_seconds: float = 300.0
    max_body_bytes: int = 1_048_576
    max_runs_per_address: int = 0


DEFAULT_CAPS = Caps()


def make_request(order: Order, model: Model, caps: Caps) -> Request:
    """What to submit. Raises ApiError, TextError or RequestError."""
    asked, most = order.max_tokens, caps.max_new_tokens
    if asked is not None:
        check_length(asked, most)
    check_depth(order.settings, model.block_size)
    ids = _encode(order, model.tokenizer)
    if asked is None:  # as much as there is room for, within reason
        asked = max(1, min(RECOMMENDED.max_new_tokens, most, model.capacity - len(ids)))
    return Request(ids, replace(order.settings, max_new_tokens=asked), caps.max_seconds)


def check_length(num_tokens: int, most: int) -> None:
    """Raises ApiError for an answer that may not be so long."""
    if num_tokens > most:
        raise ApiError(400, f"Ask for at most {most} tokens here.", "max_tokens")


def check_depth(settings: DecodeSettings, depth: int) -> None:
    """Raises ApiError for more proposals than the checkpoint was trained for."""
    if isinstance(settings.block_size, int) and settings.block_size > depth:
        sentence = f"Choose a B of at most {depth}, this checkpoint's trained depth."
        raise ApiError(400, sentence, "block_size")


def check_ids(ids: Sequence[Any], tokenizer: Tokenizer) -> list[int]:
    """The ids, where they are tokens that a prompt may hold. Raises ApiError."""
    size, never = tokenizer.size, tokenizer.mask_id
    if any(type(token) is not int or not 0 <= token < size or token == never for token in ids):
        raise ApiError(400, "The prompt holds tokens that are no text of this model.", "prompt")
    return list(ids)


def _encode(order: Order, tokenizer: Tokenizer) -> list[int]:
    if order.kind == "chat":
        *before, (_, text) = (_said(each, tokenizer) for each in order.prompt)  # type: ignore[arg-type]
        return tokenizer.encode_prompt(str(text), before=before)
    if isinstance(order.prompt, str):
        return tokenizer.encode(order.prompt)
    return check_ids(order.prompt, tokenizer)


def _said(said: Said, tokenizer: Tokenizer) -> Said:
    """Answers in tokens, cut as the model writes them: a prompt then begins with what is kept of
    the turn before."""
    role, content = said
    is_answer = role == "assistant" and isinstance(content, str)
    return (role, tokenizer.encode(str(content))) if is_answer else said
