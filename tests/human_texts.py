"""Texts by people that return to what they said: songs, this repository's documents and code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
NUM_PIECES = 200
MAX_CHARS = 2000  # of a piece
FIGURES = re.compile(r"^\|.*\d.*\n", re.M)  # rows of tables, which a command printed


def human_texts() -> list[tuple[str, str]]:
    pieces = list(_pieces())
    stride = len(pieces) / NUM_PIECES
    return [*SONGS.items(), *(pieces[int(stride * number)] for number in range(NUM_PIECES))]


def _pieces() -> Iterator[tuple[str, str]]:
    for pattern in ("*.md", "docs/*.md", "mars_runtime/**/*.py", "assets/web/**/*.js"):
        for path in sorted(ROOT.glob(pattern)):
            text = path.read_text("utf-8")
            text = FIGURES.sub("", text) if path.suffix == ".md" else text
            for first in range(0, len(text), MAX_CHARS):
                yield f"{path.name} from {first}", text[first : first + MAX_CHARS]


HOUSE = [
    "That lay in the house that Jack built.",
    "That ate the malt",
    "That killed the rat",
    "That worried the cat",
    "That tossed the dog",
    "That milked the cow with the crumpled horn",
]
SONGS = {
    "house": "\n\n".join(
        "\n".join(["This is the thing", *reversed(HOUSE[: count + 1])])
        for count in range(len(HOUSE))
    ),
    "farm": "\n\n".join(
        "Old MacDonald had a farm, E-I-E-I-O.\n"
        f"And on that farm he had a {animal}, E-I-E-I-O.\n"
        f"With a {cry}-{cry} here and a {cry}-{cry} there,\n"
        f"Here a {cry}, there a {cry}, everywhere a {cry}-{cry}.\n"
        "Old MacDonald had a farm, E-I-E-I-O."
        for animal, cry in (("cow", "moo"), ("pig", "oink"), ("duck", "quack"), ("sheep", "baa"))
    ),
}
