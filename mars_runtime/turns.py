"""What stands before an answer beside its question: earlier turns, and a beginning of the answer.

Plain values. Knows no tokenizer, model or page.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """A question as typed and the tokens of its answer, without the one that ended it.

    Tokens and not text, which could be cut into other tokens when it is encoded again: the next
    prompt begins with exactly what the cache of this turn holds.
    """

    prompt: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Context:
    """Of one prompt.

    history: the earlier turns in it, oldest first. num_left_out: older ones that had no room.
    num_given: its last so many tokens are the beginning of the answer, given beforehand.
    """

    history: tuple[Turn, ...] = ()
    num_left_out: int = 0
    num_given: int = 0


ALONE = Context()
"""A first question."""
