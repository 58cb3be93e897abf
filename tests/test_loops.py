"""Where a text begins to repeat itself: in lists of tokens by hand, and hardly ever in what people
write."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from human_texts import human_texts
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.loops import (
    EVERY,
    MAX_PERIOD,
    MIN_REPEATED,
    MOST_OLD,
    PHRASE,
    REACH,
    WINDOW,
    Loop,
    find_loop,
    num_repeated,
    up_to_loop,
)
from mars_runtime.model.load import load_checkpoint

SHORT = st.lists(st.integers(0, 2), max_size=12)
FEW = st.builds(
    lambda start, phrase, times, rest: [*start, *phrase * times, *rest],
    *(SHORT, SHORT, st.integers(0, 60), SHORT),
).filter(lambda ids: len(ids) < 250)
"""Of so few tokens, and with such phrases, that many a text repeats itself."""


def test_a_text_without_repetition_has_no_loop() -> None:
    assert find_loop(range(300)) is None
    assert find_loop([]) is None


def test_one_token_repeated_keeps_its_first_copy() -> None:
    assert find_loop([1, 2, 3, *[7] * 60]) == Loop(4, 4 + MIN_REPEATED)


def test_a_phrase_repeated_keeps_its_first_copy() -> None:
    start, phrase = list(range(100, 110)), [1, 2, 3, 4, 5]
    assert find_loop(start + phrase * 12) == Loop(15, 15 + MIN_REPEATED)


@pytest.mark.parametrize("repeated", [MIN_REPEATED - 1, MIN_REPEATED])
def test_a_loop_needs_enough_repeated_tokens(repeated: int) -> None:
    found = find_loop([1, 2, 3] + [9] * (1 + repeated))
    assert found == (Loop(4, 4 + MIN_REPEATED) if repeated == MIN_REPEATED else None)


def test_a_long_sentence_must_come_twice_and_half_again() -> None:
    sentence = list(range(40))
    assert find_loop(sentence * 2 + sentence[:19]) is None
    assert find_loop(sentence * 2 + sentence[:20]) == Loop(40, 100)


def test_what_is_longer_than_the_longest_period_loops_once_nearly_all_of_it_was_said() -> None:
    assert find_loop(list(range(MAX_PERIOD)) * 3) == Loop(64, 64 + 96)
    assert find_loop(list(range(MAX_PERIOD + 1)) * 3) == Loop(69, 192)
    assert find_loop(list(range(MAX_PERIOD + 1)) * 2) is None


def test_stanzas_that_come_back_with_a_word_changed_are_a_loop() -> None:
    text = [token for number in range(3) for token in (*range(150), 1000 + number)]
    # Token 163 is the first that ends a phrase of twelve as before; 110 of those 112 do.
    assert find_loop(text) == Loop(151, 272)
    assert find_loop(text[:271]) is None


def test_a_refrain_between_verses_is_no_loop() -> None:
    refrain = list(range(60))
    verses = [range(100 * number, 100 * number + 50) for number in range(1, 6)]
    assert find_loop([token for verse in verses for token in [*verse, *refrain]]) is None


def test_what_was_said_long_ago_does_not_count() -> None:
    said = list(range(1000, 1000 + WINDOW + PHRASE))
    assert find_loop([*said, *range(REACH - len(said) - PHRASE), *said]) is not None
    assert find_loop([*said, *range(REACH + WINDOW), *said]) is None


@given(FEW)
def test_what_is_kept_has_no_loop_itself(ids: list[int]) -> None:
    found = find_loop(ids)
    if found is not None:
        assert 0 < found.kept < found.end <= len(ids)
        assert find_loop(ids[: found.end - 1]) is None
        assert find_loop(ids[: found.end]) == found


def loop_by_definition(ids: Sequence[int]) -> Loop | None:
    """By how long each period holds, one token after the other; and, now and then, by where each
    phrase stood first."""
    held = [0] * (MAX_PERIOD + 1)
    for at, token in enumerate(ids):
        for period in range(1, min(MAX_PERIOD, at) + 1):
            held[period] = held[period] + 1 if token == ids[at - period] else 0
        for period in range(1, MAX_PERIOD + 1):
            if held[period] >= num_repeated(period):
                return Loop(at + 1 - num_repeated(period), at + 1)
        if (at + 1) % EVERY == 0 and at + 1 >= WINDOW:
            old = [end for end in range(at + 1 - WINDOW, at + 1) if was_said(ids, end, at)]
            if len(old) + max(0, PHRASE - 1 - (at + 1 - WINDOW)) >= MOST_OLD:
                return Loop(old[0] + 1 - PHRASE, at + 1)
    return None


def was_said(ids: Sequence[int], end: int, at: int) -> bool:
    """Whether the phrase that ends with token ``end`` stood before, in reach of token ``at``."""
    first = max(0, at + 1 - WINDOW - REACH)
    start = end + 1 - PHRASE
    return start >= first and any(
        ids[other : other + PHRASE] == ids[start : end + 1] for other in range(first, start)
    )


@given(FEW)
def test_a_loop_is_what_the_definition_says(ids: list[int]) -> None:
    assert find_loop(ids) == loop_by_definition(ids)


@given(FEW, st.lists(st.integers(1, 9), min_size=1, max_size=20))
def test_it_does_not_matter_how_many_tokens_come_at_once(ids: list[int], counts: list[int]) -> None:
    """A forward that gives several tokens ends the text where one that gives each alone does."""
    whole, at = find_loop(ids), 0
    for count in counts * len(ids):
        new = ids[at : at + count]
        left = up_to_loop(ids[:at], new)
        if left is not None:
            assert whole is not None
            assert at + left == whole.end
            return
        at += len(new)
    assert whole is None


def test_at_most_one_of_two_hundred_texts_by_people_is_stopped() -> None:
    encode = load_checkpoint("mars-tiny", device="cpu", dtype="fp32").tokenizer.encode
    texts = human_texts()
    assert len(texts) >= 200
    stopped = [name for name, text in texts if find_loop(encode(text)) is not None]
    assert len(stopped) <= len(texts) / 200, stopped


def test_the_texts_by_people_do_repeat_themselves() -> None:
    """Most songs end with words that were sung before."""
    songs = [text for name, text in human_texts() if name.startswith("song")]
    ends = [text.rsplit("\n", 1)[1] for text in songs]
    repeated = [end in text[: -len(end)] for end, text in zip(ends, songs, strict=True)]
    assert sum(repeated) > len(songs) / 2
