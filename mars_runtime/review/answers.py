"""Answers to the prompts of a set, built from traces, and automatic checks of answers.

All functions are pure. Judgements by people are in ``judgements.py``.
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
"""Number of words that ``first_difference`` returns before and after the different word."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to a prompt, with or without a trace.

    pieces: the text of each token; empty without a trace.
    groups: the number of tokens that each forward pass accepted.
    otherwise: the text of AR's token by position; contains only tokens that a forward pass
    computed and that differ from the answer's.
    num_tokens: the number of tokens, including EOS, which has no piece.
    end: why decoding ended, such as eos or limit; empty without a trace.
    is_right: the verdict of the task's checker; None without a checker.
    is_looped: whether the text ends in a repetition loop.
    tpf: tokens per forward pass, up to the loop; None without a trace.
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
        """Return the fields as JSON values. The keys of ``otherwise`` become strings."""
        return {
            **asdict(self),
            "otherwise": {str(at): token for at, token in self.otherwise.items()},
        }


_ANSWER = TypeAdapter(Answer)


def answer_of_json(values: Any) -> Answer:
    """Parse the result of ``Answer.as_json``. Raises ValueError for invalid values."""
    answer = _ANSWER.validate_python(values)
    texts = (answer.text, *answer.pieces, *answer.otherwise.values())
    "".join(texts).encode()  # raises for lone surrogates
    return answer


def answer_of(trace: Trace, item: Item) -> Answer:
    """Build an answer to ``item`` from the trace of a run with one row."""
    token_bytes = trace.vocabulary.__getitem__
    detokenizer, pieces = Detokenizer(token_bytes), []
    groups: list[int] = []
    otherwise: dict[int, str] = {}
    tokens: list[int] = []
    for step, _ in folds.row_steps(trace.events):
        groups.append(len(step.accepted))
        first = step.start - len(step.checks)
        for at, (token, _) in enumerate(step.checks, first):
            if tokens[at] != token:
                otherwise[at] = token_bytes(token).decode("utf-8", "replace")
        tokens += step.accepted
        pieces += [detokenizer.push([token]) for token in folds.visible_tokens(step)]
    if incomplete := detokenizer.flush():
        pieces[-1:] = ["".join(pieces[-1:]) + incomplete]
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
    """Return whether the item's checker accepts the text; None if no checker can judge it."""
    return tasks.check(item.task, text) if item.task and tasks.is_checkable(item.task) else None


@dataclass(frozen=True, slots=True)
class Difference:
    """The first word in which a text differs from the reference.

    word: the index of that word. reference, own: the words around it in the reference and the text.
    """

    word: int
    reference: str
    own: str


@dataclass(frozen=True, slots=True)
class Marks:
    """Automatic checks of an answer.

    is_same: whether the text equals the reference's, including white space. difference: the first
    different word; None if all words are equal. Other fields: as in ``Answer``.
    """

    is_same: bool
    difference: Difference | None
    is_looped: bool
    is_right: bool | None
    tpf: float | None
    end: str


def marks(answer: Answer, reference: Answer) -> Marks:
    """Compute the automatic checks of an answer against the reference method's answer."""
    return Marks(
        answer.text == reference.text,
        first_difference(reference.text, answer.text),
        answer.is_looped,
        answer.is_right,
        answer.tpf,
        answer.end,
    )


def first_difference(reference: str, text: str) -> Difference | None:
    """Return the first word in which two texts differ; None if all words are equal."""
    words = [WORD.findall(reference), WORD.findall(text)]
    for word, (expected, other) in enumerate(zip_longest(*words)):
        if expected != other:
            near = slice(max(0, word - NEAR), word + NEAR + 1)
            shown = [" ".join(text_words[near]) for text_words in words]
            return Difference(word, *shown)
    return None
