"""What Grid and Batch open with, by set of examples: requests at which τ, B and method matter.

Chosen by measurement (docs/measurements.md). Data alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.examples.book import CHAT, TASKS

Openings = Mapping[str, tuple[str, ...]]
"""Set of examples -> prompts; a set that has none opens with its first examples."""

MONTHS = "What are the twelve months of the year?"

GRID: Openings = {
    CHAT: (MONTHS,),
    TASKS: ("Say this in all capitals: the young king has many servants",),
}
BATCH: Openings = {
    CHAT: (
        MONTHS,
        "Write a JSON list of the seven days of the week, each with a name and a number.",
        "Write an HTML table with the name and age of three people: Ann 31, Bob 27 and Cy 45.",
        "Write a Python dictionary that maps the twelve months to their number of days.",
        "Write a multiplication table for 7, from 7 x 1 to 7 x 12.",
        "What is the area of a rectangle that is 6 cm long and 4 cm wide?",
        "Write a Python function that returns the largest of three numbers.",
        "Write a short tale about a fox who learns to paint.",
    )
}
