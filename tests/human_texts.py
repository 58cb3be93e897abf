"""Texts by people, of the kinds that return to what they said: songs with refrains, verses that
grow, tables, listings, code. The songs and verses are in the public domain; all others are this
repository's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LONGEST = 2000  # characters of a piece of code or of a document
NUM_PIECES = 190


def human_texts() -> list[tuple[str, str]]:
    """(name, text): every song and table made here, then pieces of documents, code and data, spread
    over all there are."""
    pieces = [*_documents(), *_code(), *_data()]
    stride = len(pieces) / NUM_PIECES
    return [*SONGS, *_tables(), *(pieces[int(stride * number)] for number in range(NUM_PIECES))]


def _pieces(name: str, text: str) -> Iterator[tuple[str, str]]:
    for first in range(0, len(text), LONGEST):
        yield f"{name} from {first}", text[first : first + LONGEST]


FIGURES = re.compile(r"^\|.*\d.*\n", re.M)
"""Rows of tables with numbers, which a command printed."""


def _documents() -> Iterator[tuple[str, str]]:
    """Prose, lists and tables that people wrote."""
    for path in sorted(
        [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("checkpoints/*.md")]
    ):
        yield from _pieces(path.name, FIGURES.sub("", path.read_text("utf-8")))


def _code() -> Iterator[tuple[str, str]]:
    for path in sorted([*ROOT.glob("mars_runtime/**/*.py"), *ROOT.glob("assets/web/**/*.js")]):
        yield from _pieces(path.name, path.read_text("utf-8"))


def _data() -> Iterator[tuple[str, str]]:
    """Lists of words and of prompts."""
    for path in sorted(ROOT.glob("mars_runtime/tasks/*.json")):
        text = json.dumps(json.loads(path.read_text("utf-8")), indent=1, ensure_ascii=False)
        yield from _pieces(path.name, text)


def _tables() -> Iterator[tuple[str, str]]:
    """As a person would write them down: multiplication, a calendar, squares, a crossed-out board,
    truth values, a matrix."""
    rows = range(1, 11)
    times = "\n".join(" ".join(f"{a * b:3}" for b in rows) for a in rows)
    yield "table of multiplication", times
    days = "\n".join(
        " ".join(f"{day:2}" for day in range(first, min(first + 7, 32)))
        for first in range(1, 32, 7)
    )
    yield "table of a month", f"Mo Tu We Th Fr Sa Su\n{days}"
    head = "| n | square | cube |\n| --: | --: | --: |\n"
    yield "table of squares", head + "\n".join(f"| {n} | {n**2} | {n**3} |" for n in range(1, 21))
    yield "table of truth", "\n".join(
        f"{a} and {b} is {a and b}; {a} or {b} is {a or b}"
        for a in (True, False) for b in (True, False)
    )  # fmt: skip
    unit = [[int(a == b) for b in range(5)] for a in range(5)]
    yield "table of the unit matrix", "\n".join(map(str, unit))
    yield "table of empty fields", "name | phone | mail\n--- | --- | ---\n" + " |  | \n" * 6


def _growing(opening: str, lines: list[str]) -> str:
    """Verses that each repeat all verses before."""
    verses = ["\n".join([opening, *reversed(lines[:count])]) for count in range(1, len(lines) + 1)]
    return "\n\n".join(verses)


HOUSE = [
    "That lay in the house that Jack built.",
    "That ate the malt",
    "That killed the rat",
    "That worried the cat",
    "That tossed the dog",
    "That milked the cow with the crumpled horn",
    "That kissed the maiden all forlorn",
    "That married the man all tattered and torn",
]
GIFTS = [
    "And a partridge in a pear tree.",
    "Two turtle doves,",
    "Three French hens,",
    "Four calling birds,",
    "Five gold rings,",
    "Six geese a-laying,",
    "Seven swans a-swimming,",
]
FARM = "\n\n".join(
    "Old MacDonald had a farm, E-I-E-I-O.\n"
    f"And on that farm he had a {animal}, E-I-E-I-O.\n"
    f"With a {cry}-{cry} here and a {cry}-{cry} there,\n"
    f"Here a {cry}, there a {cry}, everywhere a {cry}-{cry}.\n"
    "Old MacDonald had a farm, E-I-E-I-O."
    for animal, cry in (("cow", "moo"), ("pig", "oink"), ("duck", "quack"), ("sheep", "baa"))
)
BOTTLES = "\n\n".join(
    f"{n} green bottles hanging on the wall,\n{n} green bottles hanging on the wall,\n"
    f"And if one green bottle should accidentally fall,\n"
    f"There'll be {n - 1} green bottles hanging on the wall."
    for n in range(10, 1, -1)
)
ROW = (
    "Row, row, row your boat,\nGently down the stream,\n"
    "Merrily, merrily, merrily, merrily,\nLife is but a dream."
)
SHIP = (
    "What shall we do with the drunken sailor,\n" * 3
    + "Early in the morning?\n\n"
    + "Way-hay, up she rises,\n" * 3
    + "Early in the morning.\n\n"
    + "Put him in the long boat till he's sober,\n" * 3
    + "Early in the morning.\n\n"
    + "Way-hay, up she rises,\n" * 3
    + "Early in the morning."
)
BRIDGE = (
    "London Bridge is falling down,\nFalling down, falling down,\n"
    "London Bridge is falling down,\nMy fair lady.\n\n"
    "Build it up with iron bars,\nIron bars, iron bars,\n"
    "Build it up with iron bars,\nMy fair lady."
)
COUNTING = "One, two, buckle my shoe;\nThree, four, knock at the door;\nFive, six, pick up sticks;"
SONGS = [
    ("song of the house", _growing("This is the thing", HOUSE)),
    ("song of the gifts", _growing("On that day my true love gave to me", GIFTS)),
    ("song of the farm", FARM),
    ("song of the bottles", BOTTLES),
    ("song of the boat, twice", f"{ROW}\n\n{ROW}"),
    ("song of the sailor", SHIP),
    ("song of the bridge", BRIDGE),
    ("rhyme of numbers", COUNTING),
]
