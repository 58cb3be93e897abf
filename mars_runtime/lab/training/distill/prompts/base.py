"""What a prompt is, how a mixture of kinds is put in order, and which prompts are held out.

Knows no kind, no model and no tokens.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

HELD_OUT_ONE_IN = 50

Turns = tuple[str, ...]
"""A conversation: user, assistant, user, ... ending with the user."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation to be answered; ``kind`` names the module it came from."""

    kind: str
    turns: Turns

    @property
    def is_held_out(self) -> bool:
        """Say whether this prompt belongs to evaluation; the same in every process."""
        return zlib.crc32("\x00".join(self.turns).encode()) % HELD_OUT_ONE_IN == 0


def interleave(
    sources: Mapping[str, Iterator[Turns]], shares: Mapping[str, float]
) -> Iterator[Prompt]:
    """Prompts of all kinds, so that every prefix holds each in its share (shares add up to 1).

    A kind that has run out leaves its share to the others. Repeated conversations are left out.
    """
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
            yield Prompt(kind, turns)
