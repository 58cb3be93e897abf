"""Multiple-choice tasks about facts that the prompt states, in the style of MMLU-Pro and GPQA."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from .base import Family, Split, Task, article, phrase, read_data
from .symbolic import running_best
from .words import COLOURS, PLACES, THINGS, TOPICS, people

_DATA = read_data("multiple_choice")
QUESTIONS = _DATA["questions"]
Puzzle = tuple[list[str], str, list[str], str, str]
"""Facts, question, options, the right option, and the sentences that justify it."""


def _names(rng: random.Random, split: Split, count: int) -> list[str]:
    return [person.name for person in people(rng, split, count)]


def _things(rng: random.Random, count: int) -> list[str]:
    return [singular for singular, _ in rng.sample(THINGS, count)]


def colour_of(rng: random.Random, split: Split) -> Puzzle:
    thing, _ = rng.choice(THINGS)
    count = rng.randint(3, 4)
    names, colours = _names(rng, split, count), rng.sample(COLOURS, count)
    facts = [f"The {thing} of {n} is {c}." for n, c in zip(names, colours, strict=True)]
    index = rng.randrange(count)
    question = phrase(rng, split, QUESTIONS["colour_of"]).format(thing=thing, name=names[index])
    return facts, question, colours, colours[index], facts[index]


def who_has(rng: random.Random, split: Split) -> Puzzle:
    count = rng.randint(3, 4)
    names, things = _names(rng, split, count), _things(rng, count)
    facts = [f"{n} has {article(t)}." for n, t in zip(names, things, strict=True)]
    index = rng.randrange(count)
    name, thing = names[index], things[index]
    question = phrase(rng, split, QUESTIONS["who_has"]).format(thing=thing)
    return facts, question, names, name, f"{name} has the {thing}."


def where_is(rng: random.Random, split: Split) -> Puzzle:
    count = rng.randint(3, 4)
    names, places = _names(rng, split, count), rng.sample(PLACES, count)
    facts = [f"{n} is in the {place}." for n, place in zip(names, places, strict=True)]
    index = rng.randrange(count)
    question = phrase(rng, split, QUESTIONS["where_is"]).format(name=names[index])
    return facts, question, places, places[index], facts[index]


def compare(rng: random.Random, split: Split) -> Puzzle:
    compared = rng.choice(_DATA["compared"])
    count = rng.choice((3, 3, 3, 3, 4))
    names = _names(rng, split, count)
    values = rng.sample(range(10, 100), count)
    facts = [compared["fact"].format(n=n, v=v) for n, v in zip(names, values, strict=True)]
    best = max(values)
    name = names[values.index(best)]
    question = phrase(rng, split, compared["questions"])
    texts = [f"{value} for {name}" for name, value in zip(names, values, strict=True)]
    _, lines = running_best(texts, lambda a, b: max(a, b, key=lambda text: int(text.split()[0])))
    steps = "\n".join([*lines, compared["statement"].format(n=name, v=best)])
    return facts, question, names, name, steps


def eats(rng: random.Random, split: Split) -> Puzzle:
    count = rng.randint(3, 4)
    animals = rng.sample(TOPICS["animals"] + TOPICS["birds"], count)
    foods = rng.sample(_DATA["foods"], count)
    facts = [f"The {a} eats {f}." for a, f in zip(animals, foods, strict=True)]
    index = rng.randrange(count)
    kind, options = ("what_eats", foods) if rng.random() < 0.5 else ("who_eats", animals)
    question = phrase(rng, split, QUESTIONS[kind])
    question = question.format(animal=animals[index], food=foods[index])
    return facts, question, options, options[index], facts[index]


def two_steps(rng: random.Random, split: Split) -> Puzzle:
    names, things, places = _names(rng, split, 3), _things(rng, 3), rng.sample(PLACES, 3)
    facts = [f"{n} has the {t}." for n, t in zip(names, things, strict=True)]
    facts += [f"{n} is in the {place}." for n, place in zip(names, places, strict=True)]
    index = rng.randrange(3)
    question = phrase(rng, split, QUESTIONS["two_steps"]).format(thing=things[index])
    return facts, question, places, places[index], f"{facts[index]} {facts[index + 3]}"


KINDS: dict[str, Callable[[random.Random, Split], Puzzle]] = {
    maker.__name__: maker for maker in (colour_of, who_has, where_is, compare, eats, two_steps)
}


class MultipleChoice(Family):
    name = "multiple_choice"

    def draft(self, rng: random.Random, split: Split) -> Task:
        kind = rng.choice(sorted(KINDS))
        facts, question, options, right, statement = KINDS[kind](rng, split)
        options = list(options)
        rng.shuffle(options)
        lettered = list(zip("ABCDEF", options, strict=False))
        letter = next(a for a, b in lettered if b == right)
        prompt = phrase(rng, split, _DATA["frames"]).format(
            facts=" ".join(facts),
            question=question,
            options="\n".join(f"{a}. {b}" for a, b in lettered),
        )
        marked = "\n".join(f"{a}. {b}: {'yes' if b == right else 'no'}" for a, b in lettered)
        answer = f"{statement}\n{marked}\nAnswer: {letter}"
        return Task(self.name, kind, prompt, answer, letter)

    def is_right(self, task: Task, text: str, is_cut: bool) -> bool:
        separator = ":" if is_cut else "(?:is)?\\s*:?"
        letters = re.findall(rf"answer\s*{separator}\s*\(?\s*([A-F])\b", text, re.IGNORECASE)
        if not (letters or is_cut):
            letters = re.findall(r"^\s*\(?([A-F])[).]?\s*$", text, re.MULTILINE)
        return bool(letters) and letters[-1].upper() == task.expected
