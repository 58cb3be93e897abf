"""More structures of word problems: many times as many, three terms, age and need.

Knows no checker and no split; a structure's last story and last question are held out.
"""

from __future__ import annotations

from .word_structures import (
    Structure,
    addition,
    difference,
    sum_less,
    three_terms,
    times_multiple,
    two_products,
)

MORE_STRUCTURES = (
    Structure(
        "times_as_many",
        times_multiple,
        (
            "{n} has {a} {things}. {m} has {b} times as many.",
            "{n} owns {a} {things}, and {m} owns {b} times that number.",
            "{m} has {b} times as many {things} as {n}, who has {a}.",
            "{n} counts {a} {things}. {m} counts {b} times as many.",
        ),
        (
            "How many {things} do they have together?",
            "How many {things} do the two have?",
            "What is their total number of {things}?",
            "How many {things} have they altogether?",
        ),
        "{m} has {b} times as many as {n}: {a} * {b} = {c}.\nTogether they have {a} + {c} = {r}.",
    ),
    Structure(
        "three_days",
        three_terms,
        (
            "{n} picks {a} {things} on Monday, {b} on Tuesday and {c} on Wednesday.",
            "{n} has {a} {things}, {m} has {b} and a friend has {c}.",
            "One box holds {a} {things}, one holds {b} and one holds {c}.",
            "{n} sells {a} {things} in May, {b} in June and {c} in July.",
        ),
        (
            "How many {things} is that in all?",
            "How many {things} are there in all?",
            "What is the total number of {things}?",
            "How many {things} are there altogether?",
        ),
        "The first two make {a} + {b} = {s}.\nWith the third: {s} + {c} = {r}.",
    ),
    Structure(
        "gain_loss",
        sum_less,
        (
            "{n} has {a} {things}. {He} buys {b} more and gives {c} to {m}.",
            "There were {a} {things} in the jar. {n} put in {b} and took out {c}.",
            "{n} had {a} {things}, found {b} more and lost {c}.",
            "{n} begins with {a} {things}, wins {b} and then sells {c}.",
        ),
        (
            "How many {things} are there now?",
            "How many {things} are left?",
            "What is the number of {things} now?",
            "How many {things} are there in the end?",
        ),
        "After the gain there are {a} + {b} = {s}.\nAfter the loss there are {s} - {c} = {r}.",
    ),
    Structure(
        "two_kinds",
        two_products,
        (
            "{n} has {a} {boxes} of {b} {things} and {c} bundles of {d} {things}.",
            "There are {a} {boxes} with {b} {things} each and {c} bundles with {d} {things} each.",
            "{n} buys {a} {boxes} of {b} {things}. {m} buys {c} bundles of {d} {things}.",
            "{n} counts {a} {boxes} with {b} {things} each, and {m} counts {c} bundles of {d}.",
        ),
        (
            "How many {things} are there in all?",
            "How many {things} is that?",
            "What is the total number of {things}?",
            "How many {things} are there altogether?",
        ),
        "{a} {boxes} of {b}: {a} * {b} = {p}.\n{c} bundles of {d}: {c} * {d} = {q}.\n"
        "In all there are {p} + {q} = {r}.",
    ),
    Structure(
        "older",
        addition,
        (
            "{n} is {a} years old.",
            "{n} has just turned {a}.",
            "Today {n} is {a} years old.",
            "{n} is now {a}.",
        ),
        (
            "How old will {he} be in {b} years?",
            "What will {his} age be in {b} years?",
            "How old will {he} be after {b} more years?",
            "{b} years from now, how old will {he} be?",
        ),
        "{n} is {a} now. In {b} years {he} will be {a} + {b} = {r}.",
    ),
    Structure(
        "need",
        difference,
        (
            "{n} wants {a} {things} and has {b}.",
            "{n} has {b} {things}, but {he} wants {a}.",
            "A game needs {a} {things}. {n} has {b} of them.",
            "{n} hopes to have {a} {things}. So far {he} has {b}.",
        ),
        (
            "How many more {things} does {he} need?",
            "How many {things} are missing?",
            "What number of {things} must {he} still get?",
            "How many {things} must {he} still find?",
        ),
        "{he_} wants {a} and has {b}: {a} - {b} = {r}.",
    ),
    Structure(
        "difference",
        difference,
        (
            "{n} has {a} {things}, and {m} has {b}.",
            "{m} found {b} {things}. {n} found {a}.",
            "{n} keeps {a} {things} and {m} keeps {b}.",
            "{n} carries {a} {things} while {m} carries {b}.",
        ),
        (
            "How many more {things} is that for {n} than for {m}?",
            "By how many {things} is {n} ahead of {m}?",
            "What is the difference between the two?",
            "What is the difference in {things}?",
        ),
        "{n} has {a} and {m} has {b} of the {things}. The difference is {a} - {b} = {r}.",
    ),
)
