"""The law on decoders by hand: one that keeps it, one that does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mars_runtime.events import Event, RowStep, Step
from mars_runtime.lab.evaluation.measure import decode_in_batches
from mars_runtime.lab.verification.lossless import Mismatch, first_difference, hold, ways
from mars_runtime.settings import DecodeSettings

AR = DecodeSettings("ar", 1.0, 1)
LOSSLESS = DecodeSettings(tau=0.0, lossless=True)
PROMPTS = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]


def echo(prompts: Sequence[Sequence[int]], settings: DecodeSettings) -> Iterator[Event]:
    """One forward that repeats the prompt; in company, lossless gets the 5 wrong."""
    is_wrong = settings.lossless and len(prompts) > 1
    for number, prompt in enumerate(prompts):
        tokens = tuple(50 if is_wrong and token == 5 else token for token in prompt)
        step = RowStep(number, 0, 0, 1, 1, (), tokens, 0, settings, "eos")
        yield Step((step,))


def test_a_law_that_is_kept_has_no_mismatch():
    expected = decode_in_batches(echo, PROMPTS, AR, 1)
    held = hold(echo, PROMPTS, LOSSLESS, 1, expected)
    assert (held.num_prompts, held.num_tokens, held.num_forwards) == (3, 9, 3)
    assert held.mismatches == ()


def test_a_law_that_is_broken_says_where():
    expected = decode_in_batches(echo, PROMPTS, AR, 1)
    heard: list[int] = []
    held = hold(echo, PROMPTS, LOSSLESS, 4, expected, heard.append)
    assert held.mismatches == (Mismatch(prompt=1, place=1, expected=5, found=50),)
    assert sum(heard) == 3


def test_a_text_that_ends_early_parts_at_its_end():
    assert first_difference(7, [1, 2], [1, 2, 3]) == Mismatch(7, 2, None, 3)
    assert first_difference(7, [1, 2], []) == Mismatch(7, 0, 1, None)


def test_ways_are_many_different_and_lossless():
    found = ways(24)
    assert len(set(found)) == len(found) >= 3
    assert all(way.lossless and way.max_new_tokens == 24 for way in found)
    assert len({way.block_size for way in found}) >= 3
    assert len({way.tau for way in found}) >= 3
