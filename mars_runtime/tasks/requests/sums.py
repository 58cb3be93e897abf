"""Maths requests: word problems with a way to be shown, and small exercises.

Knows no model and judges no answer: numbers are drawn so that the questions make sense.
"""

from __future__ import annotations

import random

WRITTEN = (
    "A tank holds 240 litres and loses 3 litres an hour through a crack. After how many hours is "
    "it three quarters full? Show the steps.",
    "Solve 5x - 7 = 2x + 11 and check the result.",
    "A jacket costs 80 euros. It is reduced by 25 percent, and a week later by another 10 percent. "
    "What does it cost in the end?",
    "Two trains leave the same station at the same time in opposite directions, one at 90 km/h "
    "and the other at 70 km/h. How far apart are they after two and a half hours?",
    "What is the sum of all whole numbers from 1 to 60? Explain a quick way to find it.",
    "Ana is four times as old as her son. In 16 years she will be twice as old as he. How old "
    "are they now?",
    "A recipe for 6 pancakes takes 150 g of flour. How much flour do 20 pancakes take?",
    "A rectangle is twice as long as it is wide and has a perimeter of 54 cm. Find its area.",
    "In a class of 28 pupils, 17 play football, 12 play chess and 5 play both. How many play "
    "neither?",
    "Convert 3/8 into a decimal number and a percentage, step by step.",
    "A car uses 6.5 litres of petrol for 100 km. How much does a trip of 340 km cost at 1.80 "
    "euros a litre?",
    "Find the mean and the median of 4, 9, 2, 9, 6, 12 and 7.",
    "A taxi costs 4 euros and then 2.20 euros a kilometre. How far can I go for 26 euros?",
    "What is the probability of throwing two equal numbers with two dice? Explain.",
)

NAMES = ("Lena", "Omar", "Mei", "Jonas", "Adaeze", "Ivo", "Rosa", "Kenji", "Freya", "Samir")
GOODS = ("notebooks", "candles", "tulips", "melons", "lamps", "mugs", "postcards", "brushes")


def further(rng: random.Random, count: int) -> list[str]:
    """``count`` exercises, with repetitions where numbers fall alike."""
    return [_SHAPES[index % len(_SHAPES)](rng) for index in range(count)]


def _shopping(rng: random.Random) -> str:
    name, goods = rng.choice(NAMES), rng.choice(GOODS)
    count, price = rng.randint(3, 9), rng.randint(2, 7)
    note = 50 if count * price < 50 else 100
    return (
        f"{name} buys {count} {goods} at {price} euros each and pays with a note of {note} euros. "
        "How much change is due? Show your reasoning."
    )


def _equation(rng: random.Random) -> str:
    x, a, b = rng.randint(-9, 12), rng.randint(2, 9), rng.randint(1, 20)
    return f"Solve {a}x + {b} = {a * x + b} for x, one step at a time."


def _work(rng: random.Random) -> str:
    people, days, other = rng.randint(2, 6), rng.randint(4, 12), rng.randint(7, 10)
    return (
        f"{people} painters need {days} days for a house. How long would {other} painters need "
        "if all of them work equally fast?"
    )


def _journey(rng: random.Random) -> str:
    name, speed = rng.choice(NAMES), rng.randint(12, 24)
    hours, rest = rng.choice(("two", "three", "four")), rng.choice((15, 20, 30, 45))
    return (
        f"{name} cycles for {hours} hours at {speed} km/h with one break of {rest} minutes, which "
        "is part of that time. How many kilometres is that?"
    )


def _percentage(rng: random.Random) -> str:
    whole, share = rng.randrange(120, 900, 20), rng.choice((5, 15, 35, 40, 65))
    return f"What is {share} percent of {whole}? Explain how you find it without a calculator."


def _sharing(rng: random.Random) -> str:
    first, second = rng.sample(NAMES, 2)
    total, more = rng.randrange(40, 200, 2), rng.randrange(4, 30, 2)
    return (
        f"{first} and {second} share {total} stickers so that {first} gets {more} more than "
        f"{second}. How many does each of them get?"
    )


_SHAPES = (_shopping, _equation, _work, _journey, _percentage, _sharing)
