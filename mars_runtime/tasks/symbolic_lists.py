"""Puzzles about lists: sorting, counting, turning round, picking, last letters.

Knows no phrasing and no checker. Steps copy what is known before they use it, and compare two
things at a time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from .arithmetic import add
from .base import Split, listed, word_list
from .names import TRAIN_PEOPLE
from .pools import NUMBER_WORDS, TOPICS, plural

Puzzle = tuple[dict[str, str], str, str]  # prompt fields, steps, result

ORDINALS = word_list("first second third fourth fifth last")
WORDS = tuple(sorted({word for topic in TOPICS.values() for word in topic}))
Item = TypeVar("Item", int, str)
MAX_SPELLED = 7  # letters of a word that is spelled out


def _different_initials(rng: random.Random, count: int) -> list[str]:
    words: list[str] = []
    while len(words) < count:
        word = rng.choice(WORDS)
        if all(word[0] != other[0] for other in words):
            words.append(word)
    return words


def _running_best(
    items: Sequence[Item], pick: Callable[[Item, Item], Item]
) -> tuple[Item, list[str]]:
    """The best of the items, and one line for each comparison on the way to it."""
    best, lines = items[0], []
    for item in items[1:]:
        better = pick(best, item)
        lines.append(f"{best} or {item}: {better}")
        best = better
    return best, lines


def sort_words(rng: random.Random, split: Split) -> Puzzle:
    words = _different_initials(rng, rng.choices((3, 4, 5), (65, 32, 3))[0])
    by_letter = {word[0]: word for word in words}
    left, lines = list(by_letter), [", ".join(f"{word} {word[0]}" for word in words)]
    while left:
        best, compared = _running_best(left, min)
        left.remove(best)
        rest = f", left {', '.join(left)}" if left else ""
        lines += [*compared, f"Take {best} {by_letter[best]}{rest}"]
    return {"items": ", ".join(words)}, "\n".join(lines), ", ".join(sorted(words))


def _selection(rng: random.Random, pick: Callable[[int, int], int]) -> Puzzle:
    numbers = rng.sample(range(1, 100), rng.choices((3, 4), (80, 20))[0])
    left, ordered, lines = list(numbers), [], []
    while len(left) > 1:
        best, compared = _running_best(left, pick)
        left.remove(best)
        ordered.append(best)
        lines += [*compared, f"Take {best}, left {', '.join(map(str, left))}"]
    result = ", ".join(map(str, ordered + left))
    return {"items": ", ".join(map(str, numbers))}, "\n".join(lines), result


def sort_up(rng: random.Random, split: Split) -> Puzzle:
    return _selection(rng, min)


def sort_down(rng: random.Random, split: Split) -> Puzzle:
    return _selection(rng, max)


def largest(rng: random.Random, split: Split) -> Puzzle:
    numbers = rng.sample(range(1, 100), rng.randint(3, 5))
    best, lines = _running_best(numbers, max)
    return {"items": ", ".join(map(str, numbers))}, "\n".join(lines), str(best)


def _counted(item: str, number: int) -> str:
    if number == 1:
        return f"{'an' if item[0] in 'aeiou' else 'a'} {item}"
    return f"{NUMBER_WORDS[number]} {plural(item)}"


def count_objects(rng: random.Random, split: Split) -> Puzzle:
    topic = rng.choice(word_list("fruits animals birds tools vegetables clothes flowers"))
    others = [name for name in ("furniture", "tools", "clothes") if name != topic]
    wanted = rng.sample(TOPICS[topic], rng.randint(2, 3))
    strange = rng.sample(TOPICS[rng.choice(others)], rng.randint(1, 2))
    counts = {item: rng.randint(1, 6) for item in wanted + strange}
    items = wanted + strange
    rng.shuffle(items)
    kept = [item for item in items if item in wanted]
    copied = [f"{counts[i]} {i if counts[i] == 1 else plural(i)}" for i in kept]
    lines, total = [", ".join(copied)], counts[kept[0]]
    for item in kept[1:]:
        lines.append(add(total, counts[item]))
        total += counts[item]
    names = {"clothes": "pieces of clothing"}
    fields = {
        "items": listed([_counted(item, counts[item]) for item in items]),
        "topic": names.get(topic, topic),
    }
    return fields, "\n".join(lines), str(total)


def _numbered(words: Sequence[str]) -> list[str]:
    return [f"{number} {word}" for number, word in enumerate(words, 1)]


def reverse(rng: random.Random, split: Split) -> Puzzle:
    words = rng.sample(WORDS, rng.randint(3, 5))
    numbered = _numbered(words)
    steps = f"{', '.join(numbered)}\n{', '.join(reversed(numbered))}"
    return {"items": ", ".join(words)}, steps, ", ".join(reversed(words))


def nth(rng: random.Random, split: Split) -> Puzzle:
    words = rng.sample(WORDS, rng.randint(3, 5))
    index = rng.randrange(len(words) + 1)
    if index == len(words):
        place, index = "last", len(words) - 1
    else:
        place = ORDINALS[index]
    steps = f"{', '.join(_numbered(words))}\nThe {place} item is {index + 1} {words[index]}."
    return {"items": ", ".join(words), "place": place}, steps, words[index]


def last_letters(rng: random.Random, split: Split) -> Puzzle:
    count = rng.randint(2, 3)
    use_names = rng.random() < 0.5
    names = [person.name for person in TRAIN_PEOPLE]  # spelling of new names cannot be guessed
    pool = [word for word in (names if use_names else WORDS) if len(word) <= MAX_SPELLED]
    words = rng.sample(pool, count)
    steps = "\n".join(f"{word}: {'-'.join(word)}, {word[-1]}" for word in words)
    return {"items": ", ".join(words)}, steps, "".join(word[-1] for word in words)
