"""Where a text begins to repeat itself: in lists of tokens, and rarely in what people write."""

from __future__ import annotations

import random
from collections.abc import Sequence

from human_texts import human_texts
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.model.load import load_checkpoint
from mars_runtime.runs import loops
from mars_runtime.runs.loops import MAX_PERIOD, MIN_REPEATED, REACH, Loop, find_loop, up_to_loop

SHORT = st.lists(st.integers(0, 2), max_size=12)
FEW = st.builds(
    lambda start, phrase, times, rest: [*start, *phrase * times, *rest],
    *(SHORT, SHORT, st.integers(0, 60), SHORT),
).filter(lambda ids: len(ids) < 250)
"""Of so few tokens, and with such phrases, that many a text repeats itself."""


def test_a_loop_needs_enough_repeated_tokens() -> None:
    assert find_loop([]) is find_loop(range(300)) is None
    assert find_loop([1, 2, 3] + [9] * MIN_REPEATED) is None
    assert find_loop([1, 2, 3] + [9] * (1 + MIN_REPEATED)) == Loop(4, 4 + MIN_REPEATED)
    assert find_loop(list(range(MAX_PERIOD)) * 3) == Loop(64, 64 + 96)
    assert find_loop(list(range(MAX_PERIOD + 1)) * 3) == Loop(192 - 112, 192)
    assert find_loop(list(range(161)) * 9) is None
    sentence = list(range(40))  # must come twice and half again
    assert find_loop(sentence * 2 + sentence[:19]) is None
    assert find_loop(sentence * 2 + sentence[:20]) == Loop(40, 100)


def test_stanzas_that_come_back_with_a_word_changed_are_a_loop() -> None:
    text = [token for number in range(3) for token in (*range(99), 1000 + number)]
    # Of the 150 tokens before the 256th all but one stood a hundred tokens before; 240 are too few.
    assert find_loop(text) == Loop(106, 256)
    assert find_loop(text[:255]) is None
    changed = [
        token
        for number in range(3)
        for token in (*range(80), *range(1000 * number, 1000 * number + 20))
    ]
    assert find_loop(changed) is None


def test_lines_that_differ_in_their_number_alone_are_a_loop() -> None:
    def lines(*about: int) -> list[int]:
        return [t for n in range(10, 50) for t in (100, n // 10, n % 10, *about)]

    # In each line one digit is new, in each tenth two.
    assert find_loop(lines(200, 201)) == Loop(16, 128)
    assert find_loop(lines(200)) is None
    two_new = [(100, 1000 + n, 2000 + n, 200, 201) for n in range(40)]
    assert find_loop([token for line in two_new for token in line]) is None


def sentences(order: str) -> list[int]:
    return [token for letter in order for token in range(20 * ord(letter), 20 * ord(letter) + 12)]


def test_a_few_sentences_in_ever_another_order_are_a_loop() -> None:
    # Where a sentence follows another for the first time, three phrases are new. Of the last 96 of
    # 144 tokens that happens three times, which leaves 87, in the second order five times.
    text = sentences("abcacbabcbacabc")
    assert find_loop(text) == Loop(48, 144)
    assert find_loop(text[:143]) is None
    assert find_loop(sentences("abcacbbaccab")) is None
    with_new = [9000 + at if at % 12 == 5 else token for at, token in enumerate(text)]
    assert find_loop(with_new) is None


def loop_by_definition(ids: Sequence[int]) -> Loop | None:
    """By how long each period holds, one token after the other; and, now and then, by where each
    phrase stood first."""
    held = [0] * (MAX_PERIOD + 1)
    for at, token in enumerate(ids):
        for period in range(1, min(MAX_PERIOD, at) + 1):
            held[period] = held[period] + 1 if token == ids[at - period] else 0
        for period in range(1, MAX_PERIOD + 1):
            if held[period] >= loops.num_repeated(period):
                return Loop(at + 1 - loops.num_repeated(period), at + 1)
        if (at + 1) % loops.CHECK_TOKENS == 0:
            for definition in (nearly_by_definition, phrases_by_definition):
                if (num_kept := definition(ids, at + 1)) is not None:
                    return Loop(num_kept, at + 1)
    return None


def nearly_by_definition(ids: Sequence[int], end: int) -> int | None:
    """The first of the last tokens that repeats, under the first rule and period that hold."""
    for rule in loops.NEARLY:
        for period in range(1, rule.longest + 1):
            num = max(rule.at_least, period * rule.halves // 2)
            if end >= num + period:
                repeat = [i for i in range(end - num, end) if ids[i] == ids[i - period]]
                if len(repeat) * 100 >= rule.percent * num:
                    return repeat[0]
    return None


def phrases_by_definition(ids: Sequence[int], end: int) -> int | None:
    """The first of the last phrases that stood somewhere before."""
    rule, reached = loops.PHRASES, range(max(0, end - REACH), end)
    phrases = {first: list(ids[first : first + rule.length]) for first in range(end)}
    old = [
        first
        for first in reached[: 1 - rule.length]
        if first + rule.length > end - rule.among
        and phrases[first] in [phrases[i] for i in reached if i < first]
    ]
    few = len(set(ids[max(0, end - rule.among) : end])) <= rule.kinds
    return old[0] if end >= rule.among and few and len(old) >= rule.at_least else None


@given(FEW)
def test_a_loop_is_what_the_definition_says(ids: list[int]) -> None:
    assert find_loop(ids) == loop_by_definition(ids)


@given(FEW, st.lists(st.integers(1, 9), min_size=1, max_size=20))
def test_it_does_not_matter_how_many_tokens_come_at_once(ids: list[int], counts: list[int]) -> None:
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


def test_text_long_before_a_loop_changes_nothing() -> None:
    stanzas = [token for number in range(4) for token in (*range(99), 1000 + number)]
    ids = [*range(2000, 2737), *stanzas]
    whole = find_loop(ids)
    assert whole is not None
    assert up_to_loop(ids[: whole.end - 3], ids[whole.end - 3 :]) == 3
    assert up_to_loop(ids[: whole.end - 3], ids[whole.end - 3 : whole.end - 1]) is None


def test_at_most_one_of_two_hundred_texts_by_people_is_stopped() -> None:
    encode = load_checkpoint("mars-tiny", device="cpu", dtype="fp32").tokenizer.encode
    texts = human_texts()
    stopped = [name for name, text in texts if find_loop(encode(text)) is not None]
    assert len(stopped) <= len(texts) / 200, stopped


def test_a_passage_is_found_again_as_far_back_as_the_rules_reach() -> None:
    """96 tokens, 352 others and the same 96: 544 in all, as many as are looked at."""
    assert find_loop(passage_again(41, 352)) == Loop(448, REACH)
    assert find_loop(passage_again(41, 368)) is None
    assert find_loop(passage_again(42, 352)) is None


def passage_again(kinds: int, gap: int) -> list[int]:
    rng = random.Random(kinds)
    passage = [*range(kinds), *(rng.randrange(kinds) for _ in range(96 - kinds))]
    return [*passage, *range(100, 100 + gap), *passage]
