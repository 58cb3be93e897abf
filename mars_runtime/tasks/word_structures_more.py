"""More structures of word problems, in three steps or about age and need.

Knows no checker and no split; a structure's last story and last question are held out.
"""

from __future__ import annotations

from .word_structures import Structure, addition, difference, two_products

MORE_STRUCTURES = (
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
            "{n} sold {a} {things} and {m} sold {b}.",
            "{n} carries {a} {things} while {m} carries {b}.",
        ),
        (
            "How many more {things} is that for {n} than for {m}?",
            "By how many {things} is {n} ahead of {m}?",
            "What is the difference between the two?",
            "How many {things} lie between them?",
        ),
        "{n} has {a} and {m} has {b}. The difference is {a} - {b} = {r}.",
    ),
)
