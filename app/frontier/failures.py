"""What goes wrong, as requests to open as runs: a sentence each says what to look at.

No figure stands here: the kinds are measured by ``evaluate`` (docs/measurements.md), and each run
shows its own. Data alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from mars_runtime.lab import tasks
from mars_runtime.settings import RECOMMENDED, DecodeSettings

CHAT, TINY = "mars-smollm2", "mars-tiny"


@dataclass(frozen=True, slots=True)
class Failure:
    """A request, the checkpoint and the settings that fail at it, and what to see there."""

    title: str
    why: str
    prompt: str
    checkpoint: str = CHAT
    settings: DecodeSettings = RECOMMENDED


def failures() -> list[Failure]:
    """In the order in which they are listed; prompts are those that ``evaluate`` asks."""

    def prompt(kind: str, number: int) -> str:
        return tasks.generate(kind, "eval", 0, number + 1)[number].prompt

    return [
        Failure("Another language", LANGUAGE, prompt("languages", 0)),
        Failure("Code in a rare language", CODE, prompt("odd_code", 0)),
        Failure("A table", TABLE, prompt("tables", 0)),
        Failure("One sentence in a long text", LONG, prompt("long", 0)),
        Failure(
            "Too bold",
            BOLD,
            "Write a JSON list of three fruits, each with name, colour and price.",
            settings=DecodeSettings(tau=0.5, block_size=8),
        ),
        Failure("Free prose", PROSE, prompt("natural", 3), TINY),
    ]


LANGUAGE = (
    "Asked in German, it answers in words that do not exist and repeats itself. AR's own text "
    "breaks, not acceptance: lossless copies it faithfully, and masks still foresee some of it."
)
CODE = "Asked for COBOL, it writes C. AR no longer follows, and the masks go along."
TABLE = "It names a city of the table, the wrong one, in a sentence that masks foresee well."
LONG = (
    "The sentence that answers stands between other texts, and the model takes up one of those: it "
    "answers with a glacier."
)
BOLD = (
    "Nothing is checked at τ 0.5: acceptance holds while the text does not. It leaves AR's and "
    "runs into repetitions, which masks foresee all the better."
)
PROSE = (
    "A model this small cannot foresee a tale: hardly a second token is taken, and drafts cost "
    "time for nothing, until it begins to repeat itself, which masks and look-up foresee well."
)
