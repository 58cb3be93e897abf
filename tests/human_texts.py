"""Texts by people that return to what they said: songs with refrains (in the public domain), and
this repository's documents and code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LONGEST = 2000  # characters of a piece of code or of a document
NUM_PIECES = 200


def human_texts() -> list[tuple[str, str]]:
    """(name, text): every song here, then pieces of documents and code, spread over all there
    are."""
    pieces = [*_documents(), *_code()]
    stride = len(pieces) / NUM_PIECES
    return [*SONGS, *(pieces[int(stride * number)] for number in range(NUM_PIECES))]


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
FARM = "\n\n".join(
    "Old MacDonald had a farm, E-I-E-I-O.\n"
    f"And on that farm he had a {animal}, E-I-E-I-O.\n"
    f"With a {cry}-{cry} here and a {cry}-{cry} there,\n"
    f"Here a {cry}, there a {cry}, everywhere a {cry}-{cry}.\n"
    "Old MacDonald had a farm, E-I-E-I-O."
    for animal, cry in (("cow", "moo"), ("pig", "oink"), ("duck", "quack"), ("sheep", "baa"))
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
SONGS = [
    ("song of the house", _growing("This is the thing", HOUSE)),
    ("song of the farm", FARM),
    ("song of the boat, twice", f"{ROW}\n\n{ROW}"),
    ("song of the sailor", SHIP),
]
