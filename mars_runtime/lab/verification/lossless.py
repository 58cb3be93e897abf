"""The law of lossless decoding: the tokens are AR's, whatever is drafted and whoever is beside.

Knows decoding as a function from prompts and settings to events; knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mars_runtime.lab.evaluation.measure import Decode, RowOutput, decode_in_batches
from mars_runtime.settings import AUTO, DecodeSettings

BATCH_SIZES = (1, 4)


def ways(max_new_tokens: int) -> list[DecodeSettings]:
    """Drafts and masks of many shapes: thresholds low and high, few masks and many, after the last
    token or every one, and text looked up."""
    plain = DecodeSettings(lossless=True, max_new_tokens=max_new_tokens)
    every = replace(plain, groups="every")
    return [
        replace(plain, block_size=2, tau=0.5),
        replace(plain, block_size=8, tau=0.0),
        replace(every, block_size=4, tau=0.0),
        replace(every, block_size=6, tau=0.3, lookup=True),
        replace(every, block_size=AUTO, tau=0.0, lookup=True),
    ]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A prompt, by its number, whose tokens first differ from AR's at ``place``; None where one
    ends."""

    prompt: int
    place: int
    expected: int | None
    found: int | None


@dataclass(frozen=True, slots=True)
class Held:
    """One way of decoding held against AR alone, over all prompts."""

    settings: DecodeSettings
    batch_size: int
    num_prompts: int
    num_tokens: int
    num_forwards: int
    mismatches: tuple[Mismatch, ...]


def hold(
    decode: Decode,
    prompts: Sequence[Sequence[int]],
    settings: DecodeSettings,
    batch_size: int,
    expected: Sequence[RowOutput],
    on_rows: Callable[[int], None] = lambda count: None,
) -> Held:
    """Decode ``prompts`` in batches and compare token by token."""
    found = decode_in_batches(decode, prompts, settings, batch_size, on_rows)
    pairs = enumerate(zip(expected, found, strict=True))
    return Held(
        settings=settings,
        batch_size=batch_size,
        num_prompts=len(prompts),
        num_tokens=sum(len(one.tokens) for one in found),
        num_forwards=sum(one.num_forwards for one in found),
        mismatches=tuple(
            first_difference(number, ar.tokens, own.tokens)
            for number, (ar, own) in pairs
            if ar.tokens != own.tokens
        ),
    )


def first_difference(number: int, expected: Sequence[int], found: Sequence[int]) -> Mismatch:
    """The first difference between two texts that are not the same."""
    pairs = list(zip(expected, found, strict=False))
    place = next((at for at, (one, other) in enumerate(pairs) if one != other), len(pairs))
    here = [text[place] if place < len(text) else None for text in (expected, found)]
    return Mismatch(number, place, *here)
