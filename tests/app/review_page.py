"""Review without weights: sets of texts, and judgements of them as a browser posts them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mars_runtime.review.methods import read_methods
from mars_runtime.review.prompts import Item
from mars_runtime.review.sets import ReviewSet, SetDescription

KEY = "the review key of a test"
EVIL = '<img src=x onerror="alert(1)">'


def write_set(
    folder: Path, ways: Sequence[str], items: Sequence[Item], answer: Callable[[int, int], str]
) -> ReviewSet:
    """Write a set with the text ``answer(prompt, way)`` of each prompt by each way."""
    about = SetDescription(folder.name, read_methods(list(ways), "tiny"), 0, {})
    made = ReviewSet.create(folder, about, list(items))
    for number, way in made.pairs():
        made.add_text(number, way, answer(number, way))
    return made


def row(number: int, reviewer: str = "anna", **changes: Any) -> dict[str, Any]:
    """Return a judgement of prompt ``p{number}``."""
    return {
        "id": f"{reviewer}-{number}",
        "reviewer": reviewer,
        "item": f"p{number}",
        "left": "ar",
        "right": "tau=0",
        "preference": "left",
        "ratings": [4, 2],
        "tags": [[], ["cut off"]],
        "note": EVIL,
        **changes,
    }
