"""Prompts of a set, read from untrusted files: text, CSV and its relatives, JSON.

A record that cannot be used becomes a Fault with its line number and a reason; the other records
are still read.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from reprlib import repr as shown
from typing import Any, Literal

from mars_runtime import tasks
from mars_runtime.json_values import as_list, as_mapping, as_text
from mars_runtime.review import budget
from mars_runtime.tasks import Task
from mars_runtime.text import MAX_SYSTEM_CHARS, Said

Kind = Literal["lines", "blocks", "csv", "json"]
MAX_PROMPTS = 500
MAX_TURNS = 20
MOST: Mapping[str, int] = {
    "id": 80,
    "prompt": 8000,
    "system": MAX_SYSTEM_CHARS,
    "category": 60,
    "reference": 16_000,
}
"""Characters of each text of a prompt."""
MAX_CHARS = 16_000_000
MAX_FAULTS = 100
"""After so many records that cannot be used, the rest of a file is not read."""
CHECKED = ("word_problems", "python_functions", "formats", "symbolic", "multiple_choice")
SEED, OF_A_FAMILY = 0, 20
DELIMITERS = ",;\t|"
ALPACA = ("instruction", "input", "output")
ALPACA_EXTRAS = ("text", "generator", "dataset")
"""Keys of Alpaca files that repeat the others or say where an answer comes from."""
COLUMNS = ("prompt", "instruction")
"""A table has one of these columns."""
NO_COLUMN = (
    "{name} is read as a table, so its first line must name its columns (separated by commas, "
    "semicolons, tabs or |), prompt or instruction among them; it is {line}."
)
BLANK = re.compile(r"\n[ \t]*\n")
SEPARATOR = re.compile(r"sep=([,;\t|])\r?\n", re.IGNORECASE)
"""First line by which Excel names the delimiter."""
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
    """What a file held: items, and the faults of records that gave none."""

    items: list[Item] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set)

    def take(self, line: int, make: Callable[[str], Item]) -> bool:
        """Add the item of a record, or its fault; return whether to read on.

        make: makes the item, given the id to use where the record names none.
        """
        if len(self.items) == MAX_PROMPTS:
            reason = f"a set has at most {MAX_PROMPTS} prompts, so the rest was not read"
            self.faults.append(Fault(line, reason))
            return False
        try:
            item = make(str(len(self.items) + 1))
            if item.id in self._ids:
                raise ValueError(f"the id {item.id!r} is there already")
        except (ValueError, RecursionError) as error:
            self.faults.append(Fault(line, reason_of(error)))
        else:
            self.items.append(item)
            self._ids.add(item.id)
        if len(self.faults) < MAX_FAULTS:
            return True
        reason = f"{MAX_FAULTS} lines cannot be used, so the rest was not read"
        self.faults.append(Fault(line, reason))
        return False


def reason_of(error: Exception) -> str:
    """What is wrong with a record, as a clause that follows its line number."""
    if isinstance(error, json.JSONDecodeError):
        return f"it is not valid JSON ({error.msg} in line {error.lineno}, column {error.colno})"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def read_prompts(text: str, kind: Kind | None = None, name: str = "") -> Prompts:
    """Read the prompts of a file.

    kind: chosen by ``name``'s ending and the text, unless given. Raises PromptError where there is
    no prompt at all.
    """
    if len(text) > MAX_CHARS:
        raise PromptError(f"A file of more than {MAX_CHARS // 1_000_000} MB is not read: split it.")
    text = text.removeprefix("\ufeff")
    name = name or "this text"
    if text.count("\0") > len(text) // 4:
        raise PromptError(f"{name} is not text in UTF-8: save it as UTF-8 and choose it again.")
    found = Prompts()
    for line, make in _READERS[kind or kind_of(text, name)](text, name):
        budget.check()
        if not found.take(line, make):
            break
    if not found.items:
        why = f" {found.faults[0]}" if found.faults else ""
        raise PromptError(f"There is no prompt in {name}.{why}")
    return found


def decoded(content: bytes) -> str:
    """The text of a file: UTF-8, or UTF-16 with a byte order mark. Raises UnicodeDecodeError."""
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if is_utf16 else "utf-8-sig")


def kind_of(text: str, name: str = "") -> Kind:
    """How a file holds its prompts: by the ending of its name, else by what it begins with."""
    ending = name.rpartition(".")[2].lower()
    if ending in ("jsonl", "ndjson", "json") or _begins_as_json(text):
        return "json"
    if ending in ("csv", "tsv", "tab") or _begins_as_table(text):
        return "csv"
    return "blocks" if BLANK.search(text.replace("\r\n", "\n").strip()) else "lines"


def _begins_as_json(text: str) -> bool:
    """Whether the first value is an object with a prompt."""
    start = text.find("{")
    if start < 0 or text[:start].strip() not in ("", "["):
        return False
    try:
        first, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return False
    return any(name in first for name in COLUMNS)


def _begins_as_table(text: str) -> bool:
    """Whether the first line names two columns or more of a table of prompts."""
    head = _head(text.lstrip(), DELIMITERS)[1]
    return bool(head) and len({*MOST, "turns", *ALPACA}.intersection(head)) > 1


def made_item(told: Mapping[str, Any], number: str) -> Item:
    """An item of JSON values; ``number``: its id where it has none. Raises ValueError."""
    if "instruction" in told and "prompt" not in told:
        told = _from_alpaca(told)
    unknown = told.keys() - {*MOST, "turns", "task"}
    if unknown:
        raise ValueError(f"{sorted(unknown)[0]!r} is none of {', '.join([*MOST, 'turns', 'task'])}")
    if "prompt" not in told:
        raise ValueError("'prompt' is missing")
    texts = {name: _text(told, name) for name in MOST if told.get(name) is not None}
    if not texts["prompt"].strip():
        raise ValueError("its prompt is empty")
    return Item(**{"id": number, **texts}, turns=_turns(told), task=_task(told.get("task")))


def _from_alpaca(told: Mapping[str, Any]) -> dict[str, Any]:
    """The same record under the keys of this program: what is instructed, then its input.

    Source: tatsu-lab/stanford_alpaca, README, "Data Release".
    """
    instruction, given, output = (told.get(name) or "" for name in ALPACA)
    for name, value in zip(ALPACA, (instruction, given, output), strict=True):
        if not isinstance(value, str):
            raise ValueError(f"{name!r} must be a text")
    renamed = {"prompt": f"{instruction}\n\n{given}" if given.strip() else instruction}
    if output:
        renamed["reference"] = output
    return renamed | {
        name: value for name, value in told.items() if name not in (*ALPACA, *ALPACA_EXTRAS)
    }


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
"""The line of each record, and how to make its item."""


def json_records(text: str) -> Iterator[tuple[int, Any]]:
    """Each value of a JSON file with its line; a ValueError or RecursionError for a bad one.

    Reads JSON Lines, values printed over several lines, and a file that is one array (its
    elements). After a bad value it continues at the next line that is indented as that value is.
    """
    decoder = json.JSONDecoder()
    is_array = text.lstrip().startswith("[")
    at, line, counted, num_passed = text.find("[") + 1 if is_array else 0, 1, 0, 0
    while True:
        at += len(_SPACE.match(text, at)[0])  # type: ignore[index]  # it matches anywhere
        line, counted = line + text.count("\n", counted, at), at
        if at == len(text):
            break
        if is_array and text[at] == "]":
            is_array, at = False, at + 1
            continue
        try:
            value, at = decoder.raw_decode(text, at)
            yield line, value
        except (ValueError, RecursionError) as error:
            yield line, error
            num_passed += error.pos - at if isinstance(error, json.JSONDecodeError) else 1
            if num_passed > len(text):  # what is wrong in many places is not read many times
                return
            before = text[text.rfind("\n", 0, at) + 1 : at]
            indent = "" if before.strip() else before
            start = r"\{" if text[at] == "{" else r"[^\s}\]]"
            found = re.compile(rf"\n{indent}(?={start})").search(text, at)
            at = found.end() if found else len(text)
    if is_array:
        yield line, ValueError("the array that ends here has no closing bracket")


_SPACE = re.compile(r"[\s,]*")


def _json(text: str, _: str) -> Made:
    are_texts = re.match(r'\s*\[\s*"', text) is not None
    for line, value in json_records(text):
        is_prompt = are_texts and not isinstance(value, Exception)
        yield line, _of_value({"prompt": value} if is_prompt else value)


def _of_value(value: Any) -> Callable[[str], Item]:
    def make(number: str) -> Item:
        if isinstance(value, Exception):
            raise value
        return made_item(as_mapping(value), number)

    return make


def _plain(prompt: str) -> Callable[[str], Item]:
    return lambda number: made_item({"prompt": prompt}, number)


def _lines(text: str, _: str) -> Made:
    for number, line in enumerate(re.split(r"\r?\n", text), 1):
        if line.strip():
            yield number, _plain(line.strip())


def _blocks(text: str, _: str) -> Made:
    """Paragraphs, each with the number of its first line."""
    block: list[str] = []
    for number, line in enumerate([*re.split(r"\r?\n", text), ""], 1):
        if line.strip():
            block.append(line.rstrip())
        elif block:
            yield number - len(block), _plain("\n".join(block))
            block = []


class _Source:
    """Lines for a csv reader, which may be set back. at: the next one; is_over: all were read."""

    def __init__(self, text: str) -> None:
        self._lines = list(io.StringIO(text, newline=""))
        self.at, self.is_over = 0, False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.at == len(self._lines):
            self.is_over = True
            raise StopIteration
        self.at += 1
        return self._lines[self.at - 1]


def _head(text: str, delimiters: str) -> tuple[str, list[str]]:
    """The delimiter by which the first line names most columns, a prompt's among them; and these.

    No columns where there is no such delimiter.
    """
    found = [(delimiters[0], list[str]())]
    for delimiter in delimiters:
        try:
            lines = io.StringIO(text, newline="")
            row = next(csv.reader(lines, delimiter=delimiter, strict=True), [])
        except csv.Error:
            continue
        head = [name.strip().lower() for name in row]
        if any(name in head for name in COLUMNS):
            found.append((delimiter, head))
    return max(found, key=lambda each: len(each[1]))


def _csv(text: str, name: str) -> Made:
    """Rows below a head that names the prompt's column. Raises PromptError where it has none."""
    body = text.lstrip("\r\n")
    delimiters = "\t,;|" if name.lower().endswith((".tsv", ".tab")) else DELIMITERS
    if named := SEPARATOR.match(body):
        body, delimiters = body[named.end() :], named[1]
    delimiter, head = _head(body, delimiters)
    if not head:
        raise PromptError(NO_COLUMN.format(name=name, line=shown(body.partition("\n")[0].strip())))
    if len(set(head)) < len(head):
        raise PromptError(f"Two columns of {name} have the same name: rename one.")
    source = _Source(body)
    rows = csv.reader(source, delimiter=delimiter, strict=True)
    next(rows)
    num_above = 1 + text[: len(text) - len(body)].count("\n")
    is_set_back = False
    while True:
        start = source.at
        try:
            row = next(rows, None)
        except csv.Error as error:
            reason = f"it is not valid CSV ({error})"
            if source.is_over and not is_set_back:
                # A quote that is never closed takes all lines behind it: read them without it.
                is_set_back, source.is_over, source.at = True, False, start + 1
            elif source.at > start + 1:
                reason += f", nor are the lines up to {source.at - 1 + num_above}"
            yield start + num_above, _refused(reason)
            continue
        if row is None:
            return
        if any(row):
            yield start + num_above, _of_row(head, row)


def _of_row(head: list[str], row: list[str]) -> Callable[[str], Item]:
    def make(number: str) -> Item:
        if len(row) != len(head):
            raise ValueError(f"it has {len(row)} columns, not {len(head)}")
        told: dict[str, Any] = {name: value for name, value in zip(head, row, strict=True) if value}
        known = {name: value for name, value in told.items() if name in (*MOST, *ALPACA)}
        if "prompt" in told:
            known = {name: value for name, value in known.items() if name not in ALPACA}
        if "turns" in told:
            try:
                known["turns"] = json.loads(told["turns"])
            except ValueError:
                raise ValueError("'turns' is not valid JSON") from None
        return made_item(known, number)

    return make


def _refused(reason: str) -> Callable[[str], Item]:
    def make(_: str) -> Item:
        raise ValueError(reason)

    return make


_READERS: dict[Kind, Callable[[str, str], Made]] = {
    "lines": _lines,
    "blocks": _blocks,
    "csv": _csv,
    "json": _json,
}


def with_system(items: Iterable[Item], system: str) -> list[Item]:
    """Give a system prompt to the items that bring none; empty leaves them as they are."""
    return [replace(item, system=item.system or system) for item in items]


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
