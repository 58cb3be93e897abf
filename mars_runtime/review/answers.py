"""What a trace says to a reader, and the automatic marks of an answer beside the reference: pure
folds. Marks are a machine's; they stand beside what people say and are never mixed with it.
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
"""Words that are shown before and after a first difference."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. pieces: the text token by token, joined it is ``text``; groups: tokens of each
    forward; otherwise: position of a token -> what AR would have said there, where a forward told.
    num_tokens counts the end of turn, which has no piece. end: eos or limit; empty, with no pieces,
    of text that came without a trace. is_right: by the task's checker, None without one. is_looped:
    whether its tokens begin to repeat themselves; tpf: tokens per forward, up to there (``folds``),
    None without a trace."""

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
        """Its values; the keys of ``otherwise`` as JSON has them."""
        return {**asdict(self), "otherwise": {str(at): told for at, told in self.otherwise.items()}}


_ANSWER = TypeAdapter(Answer)


def answer_of_json(told: Any) -> Answer:
    """Back from ``Answer.as_json``. Raises ValueError."""
    answer = _ANSWER.validate_python(told)
    "".join((answer.text, *answer.pieces, *answer.otherwise.values())).encode()  # no lone surrogate
    return answer


def answer_of(trace: Trace, item: Item) -> Answer:
    """The answer that a trace of one row tells."""
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
    """Whether the item's checker calls a text right, None where it has none."""
    return tasks.check(item.task, text) if item.task and tasks.is_checkable(item.task) else None


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between two texts: ``word`` counts from 0; what each says, from a few
    words before it."""

    word: int
    reference: str
    own: str


@dataclass(frozen=True, slots=True)
class Marks:
    """What is told of an answer without reading it. is_same: to the letter; difference: the first
    by words, None where all words are the reference's."""

    is_same: bool
    difference: Difference | None
    is_looped: bool
    is_right: bool | None
    tpf: float | None
    end: str


def marks(answer: Answer, reference: Answer) -> Marks:
    """The marks of an answer beside the reference."""
    return Marks(
        answer.text == reference.text,
        first_difference(reference.text, answer.text),
        answer.is_looped,
        answer.is_right,
        answer.tpf,
        answer.end,
    )


def first_difference(reference: str, own: str) -> Difference | None:
    """The first word in which two texts differ; None where they have the same words."""
    words = [WORD.findall(reference), WORD.findall(own)]
    for word, (one, other) in enumerate(zip_longest(*words)):
        if one != other:
            near = slice(max(0, word - NEAR), word + NEAR + 1)
            shown = [" ".join(each[near]) for each in words]
            return Difference(word, *shown)
    return None
