"""What lm-eval hands over as text, as token ids: plain text, or a conversation.

lm-eval renders a conversation to one string before a model sees it. A rendered template would let
the words of a question become control tokens, so here the string is the conversation itself as
JSON, and control tokens are put in by id. Knows no model and no decoding.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from mars_runtime.text import Said, Tokenizer

MARK = "conversation:"
"""What a string that holds a conversation begins with."""


def render(turns: Sequence[Mapping[str, str]], *, is_open: bool) -> str:
    """A conversation as one string; ``is_open``: its last turn is to be gone on with."""
    said = [[str(turn["role"]), str(turn["content"])] for turn in turns]
    return MARK + json.dumps({"turns": said, "open": is_open}, ensure_ascii=False)


def encode_context(tokenizer: Tokenizer, context: str) -> list[int]:
    """Ids of what lm-eval calls a context."""
    if not context.startswith(MARK):
        return tokenizer.encode(context)
    told = json.loads(context[len(MARK) :])
    turns: list[Said] = [(role, content) for role, content in told["turns"]]
    if not told["open"]:
        return tokenizer.encode_chat(turns)
    *before, (_, begun) = turns
    assert isinstance(begun, str), "turns are text"
    return [*tokenizer.encode_chat(before), *tokenizer.encode(begun)]


def encode_pair(tokenizer: Tokenizer, context: str, continuation: str) -> tuple[list[int], int]:
    """Ids of both together, and how many of them are context.

    Plain text is encoded in one piece and cut where the context ends, spaces at its end counted to
    the continuation, as lm-eval does for every model; after a conversation, or nothing, the
    continuation begins anew.
    """
    if not context or context.startswith(MARK):
        before = encode_context(tokenizer, context) if context else [tokenizer.im_end_id]
        return [*before, *tokenizer.encode(continuation)], len(before)
    stem = context.rstrip() or context
    whole = tokenizer.encode(context + continuation)
    return whole, min(len(tokenizer.encode(stem)), len(whole) - 1)


def shortened(ids: Sequence[int], room: int) -> list[int]:
    """The last ``room`` ids: what does not fit is left out at the beginning."""
    return list(ids[-room:])
