"""The structures of the word problems: numbers, stories, questions, steps.

Knows no checker and no split; a structure's last story and last question are held out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Numbers = dict[str, int]


@dataclass(frozen=True, slots=True)
class Structure:
    """One shape of problem; texts are format strings over people, things and numbers."""

    kind: str
    numbers: Callable[[random.Random], Numbers]
    stories: tuple[str, ...]
    questions: tuple[str, ...]
    steps: str


def addition(rng: random.Random) -> Numbers:
    a, b = rng.randint(2, 40), rng.randint(2, 20)
    return {"a": a, "b": b, "r": a + b}


def difference(rng: random.Random) -> Numbers:
    b, r = rng.randint(2, 25), rng.randint(2, 30)
    return {"a": b + r, "b": b, "r": r}


def _product(rng: random.Random) -> Numbers:
    a, b = rng.randint(2, 9), rng.randint(2, 9)
    return {"a": a, "b": b, "p": a * b, "r": a * b}


def _product_less(rng: random.Random) -> Numbers:
    n = _product(rng)
    c = rng.randint(2, max(2, n["p"] - 2))
    return n | {"c": c, "r": n["p"] - c}


def _product_more(rng: random.Random) -> Numbers:
    n = _product(rng)
    c = rng.randint(2, 20)
    return n | {"c": c, "r": n["p"] + c}


def _change(rng: random.Random) -> Numbers:
    n = _product(rng)
    r = rng.randint(2, 25)
    return n | {"c": n["p"] + r, "r": r}


def _share(rng: random.Random) -> Numbers:
    b, r = rng.randint(2, 9), rng.randint(2, 9)
    return {"a": b * r, "b": b, "r": r}


def _more_than(rng: random.Random) -> Numbers:
    a, b = rng.randint(2, 20), rng.randint(2, 12)
    return {"a": a, "b": b, "c": a + b, "r": a + a + b}


def times_multiple(rng: random.Random) -> Numbers:
    a, b = rng.randint(2, 9), rng.randint(2, 5)
    return {"a": a, "b": b, "c": a * b, "r": a + a * b}


def three_terms(rng: random.Random) -> Numbers:
    a, b, c = (rng.randint(2, 19) for _ in range(3))
    return {"a": a, "b": b, "c": c, "s": a + b, "r": a + b + c}


def sum_less(rng: random.Random) -> Numbers:
    a, b = rng.randint(5, 30), rng.randint(2, 20)
    c = rng.randint(2, min(30, a + b - 2))
    return {"a": a, "b": b, "c": c, "s": a + b, "r": a + b - c}


def two_products(rng: random.Random) -> Numbers:
    a, b, c, d = (rng.randint(2, 6) for _ in range(4))
    return {"a": a, "b": b, "c": c, "d": d, "p": a * b, "q": c * d, "r": a * b + c * d}


STRUCTURES = (
    Structure(
        "gain",
        addition,
        (
            "{n} has {a} {things}. {He} finds {b} more.",
            "There are {a} {things} in a box. {n} puts in {b} more.",
            "{n} owns {a} {things}, and {m} gives {him} {b} more.",
            "{n} had {a} {things}. Then {he} bought {b} more.",
        ),
        (
            "How many {things} are there now?",
            "What is the number of {things} now?",
            "How many {things} is that in all?",
            "How many {things} does that make?",
        ),
        "There were {a} {things} and then {b} more: {a} + {b} = {r}.",
    ),
    Structure(
        "loss",
        difference,
        (
            "{n} has {a} {things}. {He} gives {b} of them to {m}.",
            "There were {a} {things} on the table. {n} took {b}.",
            "{n} had {a} {things} and lost {b} of them.",
            "{n} had {a} {things} and sold {b} of them.",
        ),
        (
            "How many {things} are left?",
            "How many {things} remain?",
            "What number of {things} is left?",
            "How many {things} are still there?",
        ),
        "There were {a} {things} and {b} are gone: {a} - {b} = {r}.",
    ),
    Structure(
        "groups",
        _product,
        (
            "{n} has {a} {boxes} with {b} {things} each.",
            "There are {a} {boxes}, and each holds {b} {things}.",
            "{n} fills {a} {boxes}. {He} puts {b} {things} in each.",
            "{n} buys {a} {boxes} of {b} {things}.",
        ),
        (
            "How many {things} are there in all?",
            "How many {things} is that?",
            "What is the total number of {things}?",
            "How many {things} are there altogether?",
        ),
        "{a} {boxes} of {b} {things}: {a} * {b} = {r}.",
    ),
    Structure(
        "groups_less",
        _product_less,
        (
            "{n} has {a} {boxes} of {b} {things}. {He} gives away {c} {things}.",
            "There are {a} {boxes} with {b} {things} each. {n} takes out {c} {things}.",
            "{n} buys {a} {boxes} of {b} {things} and loses {c} of the {things}.",
            "{n} fills {a} {boxes} with {b} {things} each and then sells {c} {things}.",
        ),
        (
            "How many {things} are left?",
            "How many {things} remain?",
            "What number of {things} is left?",
            "How many {things} are still there?",
        ),
        "{a} {boxes} of {b} {things}: {a} * {b} = {p}.\n{c} are gone: {p} - {c} = {r}.",
    ),
    Structure(
        "groups_more",
        _product_more,
        (
            "{n} has {a} {boxes} of {b} {things} and finds {c} more {things}.",
            "There are {a} {boxes} with {b} {things} each, and {c} {things} lie beside them.",
            "{n} buys {a} {boxes} of {b} {things}. {m} gives {him} {c} more {things}.",
            "{n} packs {a} {boxes} with {b} {things} each and keeps {c} more in {his} hand.",
        ),
        (
            "How many {things} are there in all?",
            "How many {things} is that?",
            "What is the total number of {things}?",
            "How many {things} are there altogether?",
        ),
        "{a} {boxes} of {b} {things}: {a} * {b} = {p}.\nThere are {c} more: {p} + {c} = {r}.",
    ),
    Structure(
        "share",
        _share,
        (
            "{n} shares {a} {things} equally among {b} friends.",
            "{b} children divide {a} {things} into equal parts.",
            "{n} puts {a} {things} into {b} equal piles.",
            "{n} deals out {a} {things} to {b} players, the same number to each.",
        ),
        (
            "How many {things} are in each part?",
            "How many {things} does each part have?",
            "What is the size of each part?",
            "How many {things} make one part?",
        ),
        "{a} {things} in {b} equal parts: {b} * {r} = {a}, so {a} / {b} = {r}.",
    ),
    Structure(
        "cost",
        _product_more,
        (
            "{n} buys {a} {things} for {b} coins each and a hat for {c} coins.",
            "One {thing} costs {b} coins and a bag costs {c} coins. "
            "{n} buys {a} {things} and a bag.",
            "A {thing} costs {b} coins. {n} takes {a} of them and a lamp for {c} coins.",
            "{n} pays {b} coins for each of {a} {things}, and {c} coins for a rope.",
        ),
        (
            "How many coins does {n} pay?",
            "How much does {n} pay in coins?",
            "What is the price of it all in coins?",
            "How many coins does {n} spend?",
        ),
        "{a} {things} for {b} coins each: {a} * {b} = {p}.\n"
        "With the other {c} coins: {p} + {c} = {r}.",
    ),
    Structure(
        "change",
        _change,
        (
            "{n} has {c} coins. {He} buys {a} {things} for {b} coins each.",
            "{n} goes to the market with {c} coins and buys {a} {things} at {b} coins each.",
            "A {thing} costs {b} coins. {n} has {c} coins and takes {a} of them.",
            "{n} saved {c} coins and pays {b} coins for each of {a} {things}.",
        ),
        (
            "How many coins are left?",
            "How many coins does {he} have left?",
            "What is left of the coins?",
            "How many coins does {he} keep?",
        ),
        "{a} {things} for {b} coins each: {a} * {b} = {p}.\nThe rest is left: {c} - {p} = {r}.",
    ),
    Structure(
        "more_than",
        _more_than,
        (
            "{n} has {a} {things}. {m} has {b} more than {n}.",
            "{n} owns {a} {things}, and {m} owns {b} more than that.",
            "{m} has {b} more {things} than {n}, who has {a}.",
            "{n} counts {a} {things}. {m} counts {b} more than {n}.",
        ),
        (
            "How many {things} do they have together?",
            "How many {things} do the two have?",
            "What is their total number of {things}?",
            "How many {things} have they altogether?",
        ),
        "{m} has {b} more than {n}: {a} + {b} = {c}.\nTogether they have {a} + {c} = {r}.",
    ),
)
