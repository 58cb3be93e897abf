"""Words for generated tasks. Training texts never contain the names in EVAL_PEOPLE."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .base import Split, read_data


class Person(NamedTuple):
    name: str
    he: str
    him: str
    his: str


def _people(names: Mapping[str, Sequence[str]]) -> tuple[Person, ...]:
    pronouns = (("he", "him", "his"), ("she", "her", "her"))
    return tuple(Person(name, *forms) for forms in pronouns for name in names[forms[0]])


_DATA = read_data("words")
REAL_PEOPLE = _people(_DATA["real_people"])
TRAIN_PEOPLE = REAL_PEOPLE + _people(_DATA["made_up_people"])
EVAL_PEOPLE = _people(_DATA["held_out_people"])
THINGS: tuple[tuple[str, str], ...] = tuple((singular, many) for singular, many in _DATA["things"])
CONTAINERS: tuple[str, ...] = tuple(_DATA["containers"])
COLOURS: tuple[str, ...] = tuple(_DATA["colours"])
PLACES: tuple[str, ...] = tuple(_DATA["places"])
TOPICS: dict[str, tuple[str, ...]] = {name: tuple(words) for name, words in _DATA["topics"].items()}
SINGULAR: dict[str, str] = _DATA["singular"]
NUMBER_WORDS: tuple[str, ...] = tuple(_DATA["number_words"])


def people(rng: random.Random, split: Split, count: int) -> list[Person]:
    if split == "eval" and rng.random() < 0.5:
        return rng.sample(EVAL_PEOPLE, count)
    return rng.sample(TRAIN_PEOPLE, count)


def plural(noun: str) -> str:
    if noun in _DATA["plurals"]:
        return str(_DATA["plurals"][noun])
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"
