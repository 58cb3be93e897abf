"""The prompts of a set, read from files that anybody may have written: text, CSV, JSON Lines.

A line that cannot be used becomes a Fault with its number and one sentence; the others go on.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from mars_runtime import tasks
from mars_runtime.json_values import as_list, as_mapping, as_text
from mars_runtime.review import budget
from mars_runtime.tasks import Task
from mars_runtime.text import Said

Kind = Literal["lines", "blocks", "csv", "jsonl"]
MAX_PROMPTS = 500
MAX_FAULTS = 100
"""Lines that may be wrong before the rest of a file is not read."""
MAX_TURNS = 20
MOST: Mapping[str, int] = {
    "id": 80,
    "prompt": 8000,
    "system": 4000,
    "category": 60,
    "reference": 16_000,
}
"""Characters of each text of a prompt."""
MAX_CHARS = 16_000_000
CHECKED = ("word_problems", "python_functions", "formats", "symbolic", "multiple_choice")
SEED, OF_A_FAMILY = 0, 20
NO_COLUMN = "The first line of a CSV file names its columns, prompt among them."
BLANK = re.compile(r"\n[ \t]*\n")
LONE = re.compile("[\ud800-\udfff]")
TASK_FIELDS = tuple(each.name for each in fields(Task))


class PromptError(ValueError):
    """No set can be made of this; the message is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a line of a file, as a sentence without its number."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"Line {self.line}: {self.reason}."


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt. turns: what was said before, (role, text) in order, roles user and assistant in
    turn. reference: an answer to read beside the others. task: what a checker needs, if there is
    one (``tasks.Task``)."""

    id: str
    prompt: str
    system: str = ""
    category: str = ""
    reference: str = ""
    turns: tuple[tuple[str, str], ...] = ()
    task: Task | None = None

    @property
    def before(self) -> list[Said]:
        """What stands before the prompt, as a tokenizer takes it."""
        first: list[Said] = [("system", self.system)] if self.system else []
        return [*first, *self.turns]

    def as_json(self) -> dict[str, Any]:
        """Its values, without those that say nothing."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(slots=True)
class Prompts:
    """What a file held: items, and what is wrong with the lines that gave none."""

    items: list[Item] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def take(self, line: int, make: Callable[[str], Item]) -> None:
        """An item of a line, or its fault. make: given the id for one that has none."""
        try:
            item = make(str(len(self.items) + 1))
            if item.id in self.ids:
                raise ValueError(f"the id {item.id!r} is there already")
        except (ValueError, RecursionError) as error:
            self.faults.append(Fault(line, reason_of(error)))
        else:
            self.items.append(item)
            self.ids.add(item.id)


def reason_of(error: Exception) -> str:
    """What is wrong with a line, in words that follow its number."""
    if isinstance(error, json.JSONDecodeError):
        return "it is not valid JSON"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def read_prompts(text: str, kind: Kind | None = None, name: str = "") -> Prompts:
    """The prompts of a file. kind: told by ``name``'s ending and the text, unless given.

    Raises PromptError where there is none at all.
    """
    if len(text) > MAX_CHARS:
        raise PromptError(f"A file of more than {MAX_CHARS // 1_000_000} MB is not read: split it.")
    text = text.removeprefix("\ufeff")
    found = Prompts()
    for line, make in _READERS[kind or kind_of(text, name)](text):
        budget.check()
        if len(found.items) >= MAX_PROMPTS:
            found.faults.append(
                Fault(line, f"a set has at most {MAX_PROMPTS} prompts, so the rest is not read")
            )
            break
        if len(found.faults) >= MAX_FAULTS:
            found.faults.append(Fault(line, "the rest is not read, for too many lines are wrong"))
            break
        found.take(line, make)
    if not found.items:
        why = f" {found.faults[0]}" if found.faults else ""
        raise PromptError(f"There is no prompt in {name or 'this text'}.{why}")
    return found


def kind_of(text: str, name: str = "") -> Kind:
    """How a file holds its prompts: by its name, else blocks where blank lines stand between."""
    ending = name.rpartition(".")[2].lower()
    if ending in ("jsonl", "ndjson", "json"):
        return "jsonl"
    if ending == "csv":
        return "csv"
    return "blocks" if BLANK.search(text.replace("\r\n", "\n").strip()) else "lines"


def made_item(told: Mapping[str, Any], number: str) -> Item:
    """An item of JSON values; ``number``: its id where it has none. Raises ValueError."""
    unknown = told.keys() - {*MOST, "turns", "task"}
    if unknown:
        raise ValueError(f"{sorted(unknown)[0]!r} is none of {', '.join([*MOST, 'turns', 'task'])}")
    if "prompt" not in told:
        raise ValueError("'prompt' is missing")
    texts = {name: _text(told, name) for name in MOST if told.get(name) is not None}
    if not texts["prompt"].strip():
        raise ValueError("its prompt is empty")
    return Item(**{"id": number, **texts}, turns=_turns(told), task=_task(told.get("task")))


def _text(told: Mapping[str, Any], name: str) -> str:
    value = told[name]
    if name == "id" and type(value) is int:
        value = str(value)
    if not isinstance(value, str):
        raise ValueError(f"{name!r} must be a text")
    if len(value) > MOST[name]:
        raise ValueError(f"{name!r} is longer than {MOST[name]:,} characters")
    if LONE.search(value):
        raise ValueError(f"{name!r} holds half of a character")
    return value


def _turns(told: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Earlier turns, as ``{"role", "content"}`` or pairs of both."""
    found = []
    given = as_list(told.get("turns") or [])
    if len(given) > MAX_TURNS:
        raise ValueError(f"it has more than {MAX_TURNS} earlier turns")
    for number, each in enumerate(given):
        pair = [each.get("role"), each.get("content")] if isinstance(each, dict) else as_list(each)
        if len(pair) != 2 or pair[0] != ("user", "assistant")[number % 2]:
            raise ValueError("its turns must be by user and assistant in turn, the user first")
        found.append((pair[0], _text({"prompt": pair[1]}, "prompt")))
    if len(found) % 2:
        raise ValueError("its last turn must be the assistant's: what the user asks is the prompt")
    return tuple(found)


def _task(told: object) -> Task | None:
    if not told:
        return None
    values = as_mapping(told)
    if set(values) != set(TASK_FIELDS):
        raise ValueError(f"its task must have {', '.join(TASK_FIELDS)}")
    return Task(**{name: as_text(value) for name, value in values.items()})


Made = Iterator[tuple[int, Callable[[str], Item]]]


def _of_json(line: str) -> Callable[[str], Item]:
    return lambda number: made_item(as_mapping(json.loads(line)), number)


def _jsonl(text: str) -> Made:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, _of_json(line)


def _plain(prompt: str) -> Callable[[str], Item]:
    return lambda number: made_item({"prompt": prompt}, number)


def _lines(text: str) -> Made:
    for number, line in enumerate(re.split(r"\r?\n", text), 1):
        if line.strip():
            yield number, _plain(line.strip())


def _blocks(text: str) -> Made:
    """Paragraphs; the line of one is its first."""
    block: list[str] = []
    for number, line in enumerate([*re.split(r"\r?\n", text), ""], 1):
        if line.strip():
            block.append(line.rstrip())
        elif block:
            yield number - len(block), _plain("\n".join(block))
            block = []


def _csv(text: str) -> Made:
    """Rows under a head that names ``prompt``. Raises PromptError where it has none."""
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    head: list[str] | None = None
    line = 1
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            yield line, _refused(f"it is not valid CSV ({error})")
            return
        if row is None:
            return
        if head is None:
            head = [name.strip().lower() for name in row]
            if "prompt" not in head:
                raise PromptError(
                    "The first line of a CSV file names its columns, prompt among them."
                )
            if len(set(head)) < len(head):
                raise PromptError("Two columns of this CSV file have the same name: rename one.")
        elif any(row):
            yield line, _of_row(head, row)
        line = rows.line_num + 1


def _of_row(head: list[str], row: list[str]) -> Callable[[str], Item]:
    def make(number: str) -> Item:
        if len(row) != len(head):
            raise ValueError(f"it has {len(row)} columns, not {len(head)}")
        told: dict[str, Any] = {name: value for name, value in zip(head, row, strict=True) if value}
        known = {name: value for name, value in told.items() if name in MOST}
        if "turns" in told:
            known["turns"] = json.loads(told["turns"])
        return made_item(known, number)

    return make


def _refused(reason: str) -> Callable[[str], Item]:
    def make(_: str) -> Item:
        raise ValueError(reason)

    return make


_READERS: dict[Kind, Callable[[str], Made]] = {
    "lines": _lines,
    "blocks": _blocks,
    "csv": _csv,
    "jsonl": _jsonl,
}


def as_jsonl(items: Iterable[Item]) -> str:
    """One item a line; ``read_prompts`` gives them back."""
    return "".join(json.dumps(item.as_json(), ensure_ascii=False) + "\n" for item in items)


def of_tasks(found: Iterable[Task]) -> list[Item]:
    """An item of each, under its family and its number there."""
    items: list[Item] = []
    for task in found:
        number = 1 + sum(item.category == task.family for item in items)
        items.append(
            Item(
                f"{task.family}-{number}",
                task.prompt,
                category=task.family,
                reference=task.answer,
                task=task if tasks.is_checkable(task) else None,
            )
        )
    return items


def bundled(name: str) -> list[Item]:
    """Prompts that come with the program: ``study`` (80 open requests of five kinds and 20 tasks
    with a checker), ``requests`` (100 of five kinds), or a family of tasks or requests by its name.
    Raises PromptError."""
    if name == "requests":
        return of_tasks(_each(tasks.KINDS, OF_A_FAMILY))
    if name == "study":
        return of_tasks([*_each(tasks.KINDS, 16), *_each(CHECKED, 4)])
    known = [*tasks.all_families(), *tasks.KINDS]
    if name not in known:
        raise PromptError(
            f"No prompts are called {name!r}: choose study, requests, {', '.join(known)}."
        )
    return of_tasks(_each([name], OF_A_FAMILY))


def _each(families: Iterable[str], count: int) -> list[Task]:
    return [task for name in families for task in tasks.generate(name, "eval", SEED, count)]
