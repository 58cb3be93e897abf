"""Multiple choice over facts given in the prompt; the answer states the fact and
goes through the options before it names the letter.

Knows no fact of the world that the prompt does not say.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from .base import Family, Split, Task, article, phrase, word_list
from .pools import COLOURS, PLACES, THINGS, TOPICS, people

Puzzle = tuple[str, str, list[str], str, str]  # facts, question, options, right one, statement

FRAMES = (
    "{facts}\n{question}\n{options}",
    "{facts} {question}\n{options}",
    "Read the facts. {facts}\n{question}\n{options}",
    "{facts}\nQuestion: {question}\n{options}",
    "Facts: {facts}\nQuestion: {question}\nOptions:\n{options}",
    "{facts}\n{question} Choose one.\n{options}",
    "{facts}\n{question}\n{options}\nGive the letter of the right answer.",
)
HELD_OUT_FRAMES = (
    "{facts}\nPick the right answer. {question}\n{options}",
    "Use only these facts. {facts}\n{question}\n{options}",
)
# more, what is compared, the fact, the statement of the winner
COMPARED = (
    ("oldest", "{n} is {v} years old.", "{n} is the oldest with {v} years."),
    (
        "tallest",
        "The tower of {n} is {v} feet high.",
        "The tower of {n} is the tallest with {v} feet.",
    ),
    ("most coins", "{n} has {v} coins.", "{n} has the most coins with {v}."),
    ("fastest", "{n} ran {v} miles.", "{n} ran the most miles with {v}."),
    (
        "heaviest",
        "The sack of {n} weighs {v} pounds.",
        "The sack of {n} is the heaviest with {v} pounds.",
    ),
)
COMPARE_QUESTIONS = {
    "oldest": ("Who is the oldest?", "Which of them is the oldest?", "Who has the highest age?"),
    "tallest": (
        "Whose tower is the tallest?",
        "Who has the tallest tower?",
        "Whose tower is highest?",
    ),
    "most coins": ("Who has the most coins?", "Who owns the most coins?", "Whose coins are most?"),
    "fastest": ("Who ran the most miles?", "Who ran the farthest?", "Whose run was the longest?"),
    "heaviest": (
        "Whose sack is the heaviest?",
        "Who has the heaviest sack?",
        "Whose sack weighs most?",
    ),
}
FOODS = word_list(
    "grass corn fish seeds bread hay leaves berries nuts honey moss worms snails beetles roots "
    "apples cheese rice oats clover acorns crumbs flies ants frogs eggs carrots turnips bark algae"
)


def colour_of(rng: random.Random, split: Split) -> Puzzle:
    thing = rng.choice(THINGS)[0]
    count = rng.randint(3, 4)
    persons = people(rng, split, count)
    colours = rng.sample(COLOURS, count)
    facts = [f"The {thing} of {p.name} is {c}." for p, c in zip(persons, colours, strict=True)]
    index = rng.randrange(count)
    name, colour = persons[index].name, colours[index]
    question = phrase(
        rng,
        split,
        (
            f"What colour is the {thing} of {name}?",
            f"Which colour has the {thing} of {name}?",
            f"What is the colour of the {thing} of {name}?",
        ),
        (f"The {thing} of {name} has which colour?",),
    )
    return " ".join(facts), question, colours, colour, f"The {thing} of {name} is {colour}."


def who_has(rng: random.Random, split: Split) -> Puzzle:
    count = rng.randint(3, 4)
    persons = people(rng, split, count)
    things = [pair[0] for pair in rng.sample(THINGS, count)]
    facts = [f"{p.name} has {article(t)}." for p, t in zip(persons, things, strict=True)]
    index = rng.randrange(count)
    name, thing = persons[index].name, things[index]
    question = phrase(
        rng,
        split,
        (f"Who has the {thing}?", f"Who owns the {thing}?", f"The {thing} belongs to whom?"),
        (f"Which of them has the {thing}?",),
    )
    return " ".join(facts), question, [p.name for p in persons], name, f"{name} has the {thing}."


def where_is(rng: random.Random, split: Split) -> Puzzle:
    count = rng.randint(3, 4)
    persons = people(rng, split, count)
    places = rng.sample(PLACES, count)
    facts = [f"{p.name} is in the {place}." for p, place in zip(persons, places, strict=True)]
    index = rng.randrange(count)
    name, place = persons[index].name, places[index]
    question = phrase(
        rng,
        split,
        (f"Where is {name}?", f"In which place is {name}?", f"Where can {name} be found?"),
        (f"Where do you find {name}?",),
    )
    return " ".join(facts), question, places, place, f"{name} is in the {place}."


def _running_best(names: list[str], values: list[int]) -> str:
    """One line a comparison: the best so far against the next."""
    texts = [f"{value} for {name}" for name, value in zip(names, values, strict=True)]
    best, lines = 0, ""
    for index in range(1, len(values)):
        winner = max(best, index, key=lambda i: values[i])
        lines += f"{texts[best]} or {texts[index]}: {texts[winner]}\n"
        best = winner
    return lines


def compare(rng: random.Random, split: Split) -> Puzzle:
    what, fact, statement = rng.choice(COMPARED)
    count = rng.choice((3, 3, 3, 3, 4))
    persons = people(rng, split, count)
    values = rng.sample(range(10, 100), count)
    names = [p.name for p in persons]
    facts = [fact.format(n=n, v=v) for n, v in zip(names, values, strict=True)]
    best = max(values)
    name = names[values.index(best)]
    questions = COMPARE_QUESTIONS[what]
    question = phrase(rng, split, questions[:2], questions[2:])
    steps = _running_best(names, values) + statement.format(n=name, v=best)
    return " ".join(facts), question, names, name, steps


def eats(rng: random.Random, split: Split) -> Puzzle:
    count = rng.randint(3, 4)
    animals = rng.sample(TOPICS["animals"] + TOPICS["birds"], count)
    foods = rng.sample(
        FOODS,
        count,
    )
    facts = [f"The {a} eats {f}." for a, f in zip(animals, foods, strict=True)]
    index = rng.randrange(count)
    animal, food = animals[index], foods[index]
    statement = f"The {animal} eats {food}."
    if rng.random() < 0.5:
        shared = (f"What does the {animal} eat?", f"What is the food of the {animal}?")
        question = phrase(rng, split, shared, (f"Which food does the {animal} eat?",))
        return " ".join(facts), question, foods, food, statement
    shared = (f"Which animal eats {food}?", f"Who eats {food}?")
    question = phrase(rng, split, shared, (f"What animal lives on {food}?",))
    return " ".join(facts), question, animals, animal, statement


def two_steps(rng: random.Random, split: Split) -> Puzzle:
    persons = people(rng, split, 3)
    things = [pair[0] for pair in rng.sample(THINGS, 3)]
    places = rng.sample(PLACES, 3)
    facts = [f"{p.name} has the {t}." for p, t in zip(persons, things, strict=True)]
    facts += [f"{p.name} is in the {place}." for p, place in zip(persons, places, strict=True)]
    index = rng.randrange(3)
    name, thing, place = persons[index].name, things[index], places[index]
    question = phrase(
        rng,
        split,
        (f"Where is the {thing}?", f"In which place is the {thing}?"),
        (f"Where can the {thing} be found?",),
    )
    statement = f"{name} has the {thing}. {name} is in the {place}."
    return " ".join(facts), question, places, place, statement


KINDS: dict[str, Callable[[random.Random, Split], Puzzle]] = {
    maker.__name__: maker for maker in (colour_of, who_has, where_is, compare, eats, two_steps)
}


class MultipleChoice(Family):
    """Facts, a question and lettered options."""

    name = "multiple_choice"
    title = "Multiple choice"
    benchmark = "MMLU-Pro, GPQA"

    def draft(self, rng: random.Random, split: Split) -> Task:
        kind = rng.choice(sorted(KINDS))
        facts, question, options, right, statement = KINDS[kind](rng, split)
        options = list(options)
        rng.shuffle(options)
        letters = "ABCDEF"[: len(options)]
        lines = "\n".join(f"{a}. {b}" for a, b in zip(letters, options, strict=True))
        letter = letters[options.index(right)]
        frame = phrase(rng, split, FRAMES, HELD_OUT_FRAMES)
        prompt = frame.format(facts=facts, question=question, options=lines)
        marked = "\n".join(
            f"{a}. {b}: {'yes' if b == right else 'no'}"
            for a, b in zip(letters, options, strict=True)
        )
        answer = f"{statement}\n{marked}\nAnswer: {letter}"
        return Task(self.name, kind, prompt, answer, letter)

    def judge(self, task: Task, text: str) -> bool:
        found = re.findall(r"answer\s*(?:is)?\s*:?\s*\(?\s*([A-F])\b", text, re.IGNORECASE)
        if not found:
            found = re.findall(r"^\s*\(?([A-F])[).]?\s*$", text, re.MULTILINE)
        return bool(found) and found[-1].upper() == task.expected
