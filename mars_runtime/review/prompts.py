"""Parse the prompts of a set from untrusted files: plain text, CSV or TSV, JSON or JSON Lines.

An invalid record is skipped and reported as a Fault with its line number.
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
"""Field of a record -> maximum length of the field in characters."""
MAX_CHARS = 16_000_000
MAX_FAULTS = 100
"""Number of invalid records after which the rest of the file is skipped."""
CHECKED = ("word_problems", "python_functions", "formats", "symbolic", "multiple_choice")
SEED, PER_FAMILY = 0, 20
DELIMITERS = ",;\t|"
ALPACA = ("instruction", "input", "output")
ALPACA_EXTRAS = ("text", "generator", "dataset")
"""Keys of Alpaca files that are ignored: copies of other keys, and the source of an answer."""
COLUMNS = ("prompt", "instruction")
"""Names of the column or key that contains the prompt."""
NO_COLUMN = (
    "{name} is a table, so its first line must name the columns, separated by commas, semicolons, "
    "tabs or |. One column must be prompt or instruction. The first line is {line}."
)
BLANK = re.compile(r"\n[ \t]*\n")
SEPARATOR = re.compile(r"sep=([,;\t|])\r?\n", re.IGNORECASE)
"""A first line in which Excel declares the delimiter."""
LONE = re.compile("[\ud800-\udfff]")
OTHER_FORMATS = {
    "%PDF-": "a PDF document",
    "{\\rtf": "an RTF document",
    "PK\x03\x04": "a zip archive, as are .docx, .xlsx and .ods files",
}
"""First characters of files that can be mistaken for text -> what they are."""
TASK_FIELDS = tuple(field.name for field in fields(Task))


class PromptError(ValueError):
    """A file has no valid prompts; the message explains what to change."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An invalid record of a file. reason: a clause such as "its prompt is empty"."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"Line {self.line}: {self.reason}."


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt of a set.

    turns: earlier turns as (role, text), alternating between user and assistant. reference: a
    reference answer to show to reviewers. task: the task with data for its checker; None without a
    checker.
    """

    id: str
    prompt: str
    system: str = ""
    category: str = ""
    reference: str = ""
    turns: tuple[tuple[str, str], ...] = ()
    task: Task | None = None

    @property
    def before(self) -> list[Said]:
        """Return the system prompt and the earlier turns as messages for the tokenizer."""
        system: list[Said] = [("system", self.system)] if self.system else []
        return [*system, *self.turns]

    def as_json(self) -> dict[str, Any]:
        """Return the non-empty fields as JSON values."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(slots=True)
class Prompts:
    """The valid prompts of a file, and a fault for each invalid record."""

    items: list[Item] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set)

    def add(self, line: int, make: Callable[[str], Item]) -> bool:
        """Add the prompt of a record, or a fault; return False if the rest of the file is skipped.

        line: line number of the record. make: returns the record's prompt; its argument is the id
        for a record without an id. Raises ValueError or RecursionError for an invalid record.
        """
        if len(self.items) == MAX_PROMPTS:
            reason = f"a set has at most {MAX_PROMPTS} prompts; the rest was skipped"
            self.faults.append(Fault(line, reason))
            return False
        try:
            item = make(str(len(self.items) + 1))
            if item.id in self._ids:
                raise ValueError(f"the id {item.id!r} occurs twice")
        except (ValueError, RecursionError) as error:
            self.faults.append(Fault(line, reason_of(error)))
        else:
            self.items.append(item)
            self._ids.add(item.id)
        if len(self.faults) < MAX_FAULTS:
            return True
        reason = f"{MAX_FAULTS} lines cannot be used; the rest was skipped"
        self.faults.append(Fault(line, reason))
        return False


def reason_of(error: Exception) -> str:
    """Convert an error in a record to a clause for ``Fault.reason``."""
    if isinstance(error, json.JSONDecodeError):
        return f"it is not valid JSON ({error.msg} at line {error.lineno}, column {error.colno})"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def read_prompts(text: str, kind: Kind | None = None, name: str = "") -> Prompts:
    """Parse the prompts of a file.

    kind: the format; None to detect it by ``name`` and content. name: the file's name, also for
    messages. Raises PromptError if there is no valid prompt.
    """
    if len(text) > MAX_CHARS:
        raise PromptError(
            f"This file has more than {MAX_CHARS // 1_000_000} million characters, the maximum. "
            "Split it."
        )
    text = text.removeprefix("\ufeff")
    name = name or "This text"
    if text.count("\0") > len(text) // 4:
        raise PromptError(f"{name} is not UTF-8 text. Save it as UTF-8 and choose it again.")
    check_format(text, name)
    prompts = Prompts()
    for line, make in _READERS[kind or kind_of(text, name)](text, name):
        budget.check()
        if not prompts.add(line, make):
            break
    if not prompts.items:
        reason = prompts.faults[0] if prompts.faults else "Add at least one."
        raise PromptError(f"{name} has no valid prompts. {reason}")
    return prompts


def check_format(text: str, name: str) -> None:
    """Raise PromptError if a file is known not to be text. text: at least its first characters."""
    for first, what in OTHER_FORMATS.items():
        if text.startswith(first):
            raise PromptError(
                f"{name} is {what}. Save its prompts as plain text, CSV or JSON in UTF-8."
            )


def decoded(content: bytes) -> str:
    """Decode the bytes of a file as UTF-8, or as UTF-16 if it has a byte order mark.

    Raises UnicodeDecodeError.
    """
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if is_utf16 else "utf-8-sig")


def kind_of(text: str, name: str = "") -> Kind:
    """Detect the format of a file by the extension of its name, then by its first line."""
    ending = name.rpartition(".")[2].lower()
    if ending in ("jsonl", "ndjson", "json") or _begins_as_json(text):
        return "json"
    if ending in ("csv", "tsv", "tab") or _begins_as_table(text):
        return "csv"
    return "blocks" if BLANK.search(text.replace("\r\n", "\n").strip()) else "lines"


def _begins_as_json(text: str) -> bool:
    """Return whether the text begins with a JSON object that has a prompt."""
    start = text.find("{")
    if start < 0 or text[:start].strip() not in ("", "["):
        return False
    try:
        first, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return False
    return any(name in first for name in COLUMNS)


def _begins_as_table(text: str) -> bool:
    """Return whether the first line has two or more known column names."""
    head = _head(text.lstrip(), DELIMITERS)[1]
    return bool(head) and len({*MOST, "turns", *ALPACA}.intersection(head)) > 1


def made_item(record: Mapping[str, Any], number: str) -> Item:
    """Validate a record and return it as an Item. Raises ValueError.

    number: the id for a record without an id.
    """
    if "instruction" in record and "prompt" not in record:
        record = _from_alpaca(record)
    unknown = record.keys() - {*MOST, "turns", "task"}
    if unknown:
        raise ValueError(
            f"{sorted(unknown)[0]!r} is not one of the keys {', '.join([*MOST, 'turns', 'task'])}"
        )
    if "prompt" not in record:
        raise ValueError("'prompt' is missing")
    texts = {name: _text(record, name) for name in MOST if record.get(name) is not None}
    if not texts["prompt"].strip():
        raise ValueError("its prompt is empty")
    return Item(**{"id": number, **texts}, turns=_turns(record), task=_task(record.get("task")))


def _from_alpaca(record: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the keys of an Alpaca record; its prompt is the instruction, followed by the input.

    Source: tatsu-lab/stanford_alpaca, README, "Data Release".
    """
    instruction, extra_input, output = (record.get(name) or "" for name in ALPACA)
    for name, value in zip(ALPACA, (instruction, extra_input, output), strict=True):
        if not isinstance(value, str):
            raise ValueError(f"{name!r} must be text")
    renamed = {"prompt": f"{instruction}\n\n{extra_input}" if extra_input.strip() else instruction}
    if output:
        renamed["reference"] = output
    return renamed | {
        name: value for name, value in record.items() if name not in (*ALPACA, *ALPACA_EXTRAS)
    }


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record[name]
    if name == "id" and type(value) is int:
        value = str(value)
    if not isinstance(value, str):
        raise ValueError(f"{name!r} must be text")
    if len(value) > MOST[name]:
        raise ValueError(f"{name!r} is longer than {MOST[name]:,} characters")
    if LONE.search(value):
        raise ValueError(f"{name!r} contains an incomplete character (a lone surrogate)")
    return value


def _turns(record: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Parse the earlier turns: objects with role and content, or pairs. Raises ValueError."""
    turns = []
    posted = as_list(record.get("turns") or [])
    if len(posted) > MAX_TURNS:
        raise ValueError(f"it has {len(posted)} earlier turns, but at most {MAX_TURNS} are allowed")
    for number, turn in enumerate(posted):
        pair = [turn.get("role"), turn.get("content")] if isinstance(turn, dict) else as_list(turn)
        if len(pair) != 2 or pair[0] != ("user", "assistant")[number % 2]:
            raise ValueError(
                "its turns must alternate between user and assistant, starting with the user"
            )
        turns.append((pair[0], _text({"prompt": pair[1]}, "prompt")))
    if len(turns) % 2:
        raise ValueError(
            "its last turn must be the assistant's, because the prompt is the user's next message"
        )
    return tuple(turns)


def _task(posted: object) -> Task | None:
    if not posted:
        return None
    values = as_mapping(posted)
    if set(values) != set(TASK_FIELDS):
        raise ValueError(f"its task must have {', '.join(TASK_FIELDS)}")
    return Task(**{name: as_text(value) for name, value in values.items()})


Records = Iterator[tuple[int, Callable[[str], Item]]]
"""For each record, its line number and a function that validates it (see ``Prompts.add``)."""


def json_records(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the line number and the value of each JSON value in a text.

    For an invalid value, the ValueError or RecursionError is yielded in its place, and parsing
    continues at the next line with the same indentation. Accepts JSON Lines, values over several
    lines, and an array, whose elements are yielded.
    """
    decoder = json.JSONDecoder()
    is_array = text.lstrip().startswith("[")
    at, line, counted, num_scanned = text.find("[") + 1 if is_array else 0, 1, 0, 0
    while True:
        at += len(_SPACE.match(text, at)[0])  # type: ignore[index]  # always matches
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
            num_scanned += error.pos - at if isinstance(error, json.JSONDecodeError) else 1
            if num_scanned > len(text):  # limits the time for a text with many errors
                return
            before = text[text.rfind("\n", 0, at) + 1 : at]
            indent = "" if before.strip() else before
            start = r"\{" if text[at] == "{" else r"[^\s}\]]"
            match = re.compile(rf"\n{indent}(?={start})").search(text, at)
            at = match.end() if match else len(text)
    if is_array:
        yield line, ValueError("the text ends before the closing bracket of its array")


_SPACE = re.compile(r"[\s,]*")


def _json(text: str, _: str) -> Records:
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


def _lines(text: str, _: str) -> Records:
    for number, line in enumerate(re.split(r"\r?\n", text), 1):
        if line.strip():
            yield number, _plain(line.strip())


def _blocks(text: str, _: str) -> Records:
    """Yield one record per paragraph, with the number of its first line."""
    block: list[str] = []
    for number, line in enumerate([*re.split(r"\r?\n", text), ""], 1):
        if line.strip():
            block.append(line.rstrip())
        elif block:
            yield number - len(block), _plain("\n".join(block))
            block = []


class _Source:
    """Iterator over the lines of a text for a csv reader; setting ``at`` continues at another line.

    at: index of the next line. is_over: whether the end was reached.
    """

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
    """Return the delimiter that splits the first line into the most columns, and these columns.

    Only splits with a column for the prompt count. If no delimiter gives such a column, the list of
    columns is empty.
    Empty columns at the end are dropped.
    """
    candidates = [(delimiters[0], list[str]())]
    for delimiter in delimiters:
        try:
            lines = io.StringIO(text, newline="")
            row = next(csv.reader(lines, delimiter=delimiter, strict=True), [])
        except csv.Error:
            continue
        head = [name.strip().lower() for name in row]
        while head and not head[-1]:
            head.pop()
        if any(name in head for name in COLUMNS):
            candidates.append((delimiter, head))
    return max(candidates, key=lambda candidate: len(candidate[1]))


def _csv(text: str, name: str) -> Records:
    """Yield one record per row of a table. Raises PromptError if no column is for the prompt."""
    body = text.lstrip("\r\n")
    delimiters = "\t,;|" if name.lower().endswith((".tsv", ".tab")) else DELIMITERS
    if declared := SEPARATOR.match(body):
        body, delimiters = body[declared.end() :], declared[1]
    delimiter, head = _head(body, delimiters)
    if not head:
        raise PromptError(NO_COLUMN.format(name=name, line=shown(body.partition("\n")[0].strip())))
    if len(set(head)) < len(head):
        raise PromptError(f"Two columns of {name} have the same name. Rename one.")
    source = _Source(body)
    rows = csv.reader(source, delimiter=delimiter, strict=True)
    next(rows)
    num_above = 1 + text[: len(text) - len(body)].count("\n")
    is_rewound = False
    while True:
        start = source.at
        try:
            row = next(rows, None)
        except csv.Error as error:
            lines = "it is"
            if source.is_over and not is_rewound:
                # An unclosed quote consumes all later lines, so parse them again without its line.
                is_rewound, source.is_over, source.at = True, False, start + 1
            elif source.at > start + 1:
                lines = f"it and the lines up to {source.at - 1 + num_above} are"
            yield start + num_above, _invalid(f"{lines} not valid CSV ({error})")
            continue
        if row is None:
            return
        if any(row):
            yield start + num_above, _of_row(head, row)


def _of_row(head: list[str], row: list[str]) -> Callable[[str], Item]:
    def make(number: str) -> Item:
        if any(row[len(head) :]):
            raise ValueError(f"it has {len(row)} columns, but the first line has {len(head)}")
        # Spreadsheets leave out empty cells at the end of a row, or pad all rows with them.
        record: dict[str, Any] = {
            name: value for name, value in zip(head, row, strict=False) if value
        }
        known = {name: value for name, value in record.items() if name in (*MOST, *ALPACA)}
        if "prompt" in record:
            known = {name: value for name, value in known.items() if name not in ALPACA}
        if "turns" in record:
            try:
                known["turns"] = json.loads(record["turns"])
            except ValueError:
                raise ValueError("'turns' is not valid JSON") from None
        return made_item(known, number)

    return make


def _invalid(reason: str) -> Callable[[str], Item]:
    def make(_: str) -> Item:
        raise ValueError(reason)

    return make


_READERS: dict[Kind, Callable[[str, str], Records]] = {
    "lines": _lines,
    "blocks": _blocks,
    "csv": _csv,
    "json": _json,
}


def with_system(items: Iterable[Item], system: str) -> list[Item]:
    """Return the items, with ``system`` for those without a system prompt of their own."""
    return [replace(item, system=item.system or system) for item in items]


def as_jsonl(items: Iterable[Item]) -> str:
    """Return the items as JSON Lines for ``read_prompts``."""
    return "".join(json.dumps(item.as_json(), ensure_ascii=False) + "\n" for item in items)


def of_tasks(drawn: Iterable[Task]) -> list[Item]:
    """Return an item for each task; ids are the family with a number, such as ``symbolic-2``."""
    items: list[Item] = []
    for task in drawn:
        number = 1 + sum(item.category == task.family for item in items)
        items.append(
            Item(
                f"{task.family}-{number}",
                task.prompt,
                category=task.family,
                reference=task.answer,
                task=task if tasks.has_checker(task) else None,
            )
        )
    return items


def bundled(name: str) -> list[Item]:
    """Return the bundled prompts with this name. Raises PromptError for an unknown name.

    ``study``: 80 open-ended requests of five kinds and 20 tasks with a checker. ``requests``: 100
    open-ended requests of five kinds. Name of a task family or kind of request: 20 prompts of it.
    """
    if name == "requests":
        return of_tasks(_drawn(tasks.KINDS, PER_FAMILY))
    if name == "study":
        return of_tasks([*_drawn(tasks.KINDS, 16), *_drawn(CHECKED, 4)])
    known = [*tasks.all_families(), *tasks.KINDS]
    if name not in known:
        raise PromptError(
            f"There are no prompts named {name!r}. Choose study, requests, {', '.join(known)}."
        )
    return of_tasks(_drawn([name], PER_FAMILY))


def _drawn(families: Iterable[str], count: int) -> list[Task]:
    return [task for name in families for task in tasks.generate(name, "eval", SEED, count)]
