"""Sets: prompts with the answers of several methods, as untrusted files of JSON Lines. The first
line is a header; each further line is a prompt with its answers, or a vote of a reader."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mars_runtime import tasks
from mars_runtime.errors import MarsError
from mars_runtime.files.inputs import check_regular
from mars_runtime.files.json_values import as_list, as_mapping, as_text
from mars_runtime.review.methods import MAX_METHODS, ReviewMethod, method_of_json
from mars_runtime.review.prompts import Item, item_of
from mars_runtime.runs import folds
from mars_runtime.runs.events import RowStep
from mars_runtime.runs.trace import Trace

VERSION = 1
MAX_LINE, MAX_ITEMS, MAX_FILE = 8_000_000, 10_000, 2_000_000_000
"""Maximum bytes of a line, prompts of a set, and bytes of a file."""
MAX_PAGE_FILE, MAX_PAGE_ITEMS = 256_000_000, 30
"""What the page opens and makes."""
MAX_NAME, MAX_NOTE = 80, 2000
MAX_TEXT = 200_000
FORMULA_STARTS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""Characters at the start of a cell that make a spreadsheet compute it."""
NUM_DIGITS = 6


class SetError(MarsError, ValueError):
    """The message is one sentence that names the first wrong line."""


@dataclass(frozen=True, slots=True)
class SetHeader:
    id: str
    name: str
    methods: tuple[ReviewMethod, ...]
    made: Mapping[str, Any]

    def line(self) -> str:
        methods = [asdict(method) for method in self.methods]
        about = {"id": self.id, "name": self.name, "methods": methods, "made": self.made}
        return _line({"type": "set", "version": VERSION, **about})


def answer_of(trace: Trace, item: Item, reference: str | None) -> dict[str, Any]:
    """reference: AR's text, or None. unlike_ar: indices of tokens that a pass accepted with others
    although AR would choose another token after the same text."""
    steps = [step for step, _ in folds.row_steps(trace.events)]
    text = folds.text(trace)
    is_cut = not steps or steps[-1].stop != "eos"
    return {
        "text": text,
        "passes": [len(step.accepted) for step in steps],
        "is_same": None if reference is None else text == reference,
        "is_looped": folds.loops_at(trace.events) is not None,
        "is_right": tasks.verdict(item.task, text, is_cut=is_cut) if item.task else None,
        "unlike_ar": _unlike_ar(steps),
        "trace": [rounded(json.loads(line)) for line in trace.lines()],
    }


def _unlike_ar(steps: Sequence[RowStep]) -> list[int]:
    tokens: list[int] = []
    is_joint: list[bool] = []
    found = set()
    for step in steps:
        first = step.start - len(step.checks)
        found |= {
            index
            for index, (token, _) in enumerate(step.checks, first)
            if tokens[index] != token and is_joint[index]
        }
        tokens += step.accepted
        is_joint += [len(step.accepted) > 1] * len(step.accepted)
    return sorted(found)


def rounded(value: Any) -> Any:
    """Further digits are noise, which does not compress."""
    if isinstance(value, float):
        return round(value, NUM_DIGITS)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def item_line(item: Item, answers: Sequence[Mapping[str, Any] | None]) -> str:
    return _line({"type": "item", **item.as_json(), "answers": answers})


def _line(values: Mapping[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")) + "\n"


@dataclass(frozen=True, slots=True)
class ReadSet:
    """num_bytes: size of the whole lines; an interrupted command may leave half a line after
    them."""

    header: SetHeader
    items: tuple[Item, ...]
    num_bytes: int


def read_set(path: Path) -> ReadSet:
    """Raises SetError."""
    try:
        if check_regular(path) > MAX_FILE:
            raise SetError(f"{path.name} is larger than {MAX_FILE // 10**9} GB. Split it.")
        with path.open("rb") as file:
            return _read(iter(lambda: file.readline(MAX_LINE + 1), b""), path.name)
    except OSError as error:
        raise SetError(f"{path.name} cannot be read ({error.strerror}).") from error


def _read(lines: Iterable[bytes], name: str) -> ReadSet:
    header: SetHeader | None = None
    items: dict[str, Item] = {}
    num_bytes = 0
    for number, line in enumerate(lines, 1):
        if header and len(line) <= MAX_LINE and not line.endswith(b"\n"):
            break  # a command was interrupted while it wrote this line
        try:
            if len(line) > MAX_LINE:
                raise ValueError(f"it is longer than {MAX_LINE // 10**6} MB")
            values = as_mapping(json.loads(line.decode()))
            if header is None:
                header = _header(values)
            elif values.get("type") != "vote":
                item = _item(values, len(header.methods))
                if item.id in items:
                    raise ValueError(f"the id {item.id!r} occurs twice")
                if len(items) == MAX_ITEMS:
                    raise ValueError(f"a set has at most {MAX_ITEMS:,} prompts")
                items[item.id] = item
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise SetError(
                f"Line {number} of {name} is not part of a set: {_why(error)}."
            ) from None
        num_bytes += len(line)
    if header is None:
        raise SetError(f"{name} is empty. Choose a set that `review` wrote.")
    return ReadSet(header, tuple(items.values()), num_bytes)


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return "it is not valid JSON"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    return str(error).rstrip(".") or "it is damaged"


def _header(values: Mapping[str, Any]) -> SetHeader:
    if values.get("type") != "set" or values.get("version") != VERSION:
        raise ValueError(f"the first line must be the header of a set of version {VERSION}")
    methods = tuple(method_of_json(as_mapping(method)) for method in as_list(values["methods"]))
    if not 1 <= len(methods) <= MAX_METHODS:
        raise ValueError(f"a set has 1 to {MAX_METHODS} methods")
    name, identity = as_text(values["name"]), as_text(values["id"])
    if not identity or len(identity) > MAX_NAME or len(name) > MAX_NAME:
        raise ValueError(f"the name and id of a set have at most {MAX_NAME} characters")
    return SetHeader(identity, name, methods, as_mapping(values.get("made", {})))


def _item(values: Mapping[str, Any], num_methods: int) -> Item:
    if values.get("type") != "item":
        raise ValueError("its type must be item or vote")
    item = item_of({"id": "", **values}, "")
    answers = as_list(values["answers"])
    if len(answers) != num_methods:
        raise ValueError(f"it has {len(answers)} answers for {num_methods} methods")
    return item
