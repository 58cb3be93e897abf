"""Build answers from traces and compute their automatic checks, as pure folds.

Automatic checks are stored separately from the judgements of people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from typing import Any

from pydantic import TypeAdapter

from mars_runtime import folds, tasks
from mars_runtime.json_values import Real, Whole
from mars_runtime.review.prompts import Item
from mars_runtime.text import Detokenizer
from mars_runtime.trace import Trace

WORD = re.compile(r"\S+")
NEAR = 3
"""Number of words shown before and after a first difference."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to a prompt.

    pieces: the text of each token; joined they are ``text``. groups: number of tokens of each
    forward pass. otherwise: position of a token -> the different token of AR, where a pass computed
    it. num_tokens: includes the end of turn, which has no piece. end: eos or limit; empty for text
    without a trace, which has no pieces. is_right: verdict of the task's checker, None without one.
    is_looped: whether the tokens begin to repeat. tpf: tokens per forward pass up to there
    (``folds``), None without a trace.
    """

    text: str
    pieces: tuple[str, ...] = ()
    groups: tuple[Whole, ...] = ()
    otherwise: Mapping[int, str] = field(default_factory=dict)
    num_tokens: Whole = 0
    end: str = ""
    is_right: bool | None = None
    is_looped: bool = False
    tpf: Real | None = None

    def as_json(self) -> dict[str, Any]:
        """Return its values for JSON, with the keys of ``otherwise`` as strings."""
        return {
            **asdict(self),
            "otherwise": {str(at): token for at, token in self.otherwise.items()},
        }


_ANSWER = TypeAdapter(Answer)


def answer_of_json(values: Any) -> Answer:
    """Parse the result of ``Answer.as_json``. Raises ValueError."""
    answer = _ANSWER.validate_python(values)
    "".join((answer.text, *answer.pieces, *answer.otherwise.values())).encode()  # no lone surrogate
    return answer


def answer_of(trace: Trace, item: Item) -> Answer:
    """Build the answer from a trace of one row."""
    spell = trace.vocabulary.__getitem__
    detokenizer, pieces = Detokenizer(spell), []
    groups: list[int] = []
    otherwise: dict[int, str] = {}
    tokens: list[int] = []
    for step, _ in folds.row_steps(trace.events):
        groups.append(len(step.accepted))
        first = step.start - len(step.checks)
        for at, (token, _) in enumerate(step.checks, first):
            if tokens[at] != token:
                otherwise[at] = spell(token).decode("utf-8", "replace")
        tokens += step.accepted
        pieces += [detokenizer.push([token]) for token in folds.visible_tokens(step)]
    if rest := detokenizer.flush():
        pieces.append(rest) if not pieces else pieces.__setitem__(-1, pieces[-1] + rest)
    end = folds.end(trace.events)
    text = "".join(pieces)
    return Answer(
        text,
        tuple(pieces),
        tuple(groups),
        otherwise,
        len(tokens),
        end.reason if end else "",
        verdict(item, text),
        folds.loops_at(trace.events) is not None,
        folds.tpf(trace.events),
    )


def verdict(item: Item, text: str) -> bool | None:
    """Return the verdict of the item's checker, None without a checker."""
    return tasks.check(item.task, text) if item.task and tasks.is_checkable(item.task) else None


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between two texts: the index of the word, and both texts around it."""

    word: int
    reference: str
    own: str


@dataclass(frozen=True, slots=True)
class Marks:
    """Automatic checks of an answer.

    is_same: whether the text equals the reference exactly. difference: the first different word,
    None if all words are the same.
    """

    is_same: bool
    difference: Difference | None
    is_looped: bool
    is_right: bool | None
    tpf: float | None
    end: str


def marks(answer: Answer, reference: Answer) -> Marks:
    """Compute the automatic checks of an answer compared with the reference."""
    return Marks(
        answer.text == reference.text,
        first_difference(reference.text, answer.text),
        answer.is_looped,
        answer.is_right,
        answer.tpf,
        answer.end,
    )


def first_difference(reference: str, text: str) -> Difference | None:
    """Return the first word in which two texts differ, None if they have the same words."""
    words = [WORD.findall(reference), WORD.findall(text)]
    for word, (expected, other) in enumerate(zip_longest(*words)):
        if expected != other:
            near = slice(max(0, word - NEAR), word + NEAR + 1)
            shown = [" ".join(text_words[near]) for text_words in words]
            return Difference(word, *shown)
    return None
