"""Read prompts from untrusted files: plain text, CSV or TSV, or JSON Lines."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from reprlib import repr as shown
from typing import Any

from mars_runtime import tasks
from mars_runtime.errors import MarsError
from mars_runtime.files.inputs import read_bytes
from mars_runtime.files.json_values import as_list, as_mapping, is_text
from mars_runtime.tasks import Task
from mars_runtime.text import MAX_SYSTEM_CHARS, Said

MAX_PROMPTS, MAX_TURNS, MAX_BYTES = 10_000, 20, 16_000_000
MOST: Mapping[str, int] = {
    "id": 80,
    "prompt": 8000,
    "system": MAX_SYSTEM_CHARS,
    "category": 60,
    "reference": 16_000,
}
"""Field of a record -> maximum length in characters."""
CHECKED = ("word_problems", "python_functions", "formats", "symbolic", "multiple_choice")
DELIMITERS = ",;\t|"
SAVE = "Save its prompts as plain text, CSV or JSON Lines in UTF-8."
OTHER_FORMATS = {
    "%PDF-": "a PDF document",
    "PK\x03\x04": "a zip archive, as are .docx, .xlsx and .ods files",
    "\xd0\xcf\x11\xe0": "an old Office document",
    "<!doctype html": "an HTML page",
    "<html": "an HTML page",
    "<?xml": "an XML document",
}
"""First characters of a file -> what it is."""


class PromptError(MarsError, ValueError):
    """The message is one sentence that names the first wrong line."""


@dataclass(frozen=True, slots=True)
class Item:
    """turns: earlier turns as (role, text). task: the bundled task, if its answers can be
    checked."""

    id: str
    prompt: str
    system: str = ""
    category: str = ""
    reference: str = ""
    turns: tuple[tuple[str, str], ...] = ()
    task: Task | None = None

    @property
    def before(self) -> list[Said]:
        system: list[Said] = [("system", self.system)] if self.system else []
        return [*system, *self.turns]

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value}


def prompts_of(source: str) -> list[Item]:
    """source: a file, or the name of bundled prompts. Raises PromptError."""
    path = Path(source)
    if not path.exists():
        return bundled(source)
    try:
        content = read_bytes(path, MAX_BYTES)
    except OSError as error:
        raise PromptError(f"{source} cannot be read ({error.strerror}).") from error
    return read_prompts(decoded(content, path.name), path.name)


def decoded(content: bytes, name: str) -> str:
    """Raises PromptError."""
    _check_format(content[:20].decode("latin-1"), name)
    is_utf16 = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        return content.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError:
        encoding = "UTF-16" if is_utf16 else "UTF-8"
        raise PromptError(f"{name} is not valid {encoding}. {SAVE}") from None


def read_prompts(text: str, name: str) -> list[Item]:
    """Files without a known extension are plain text unless they begin with "{". Raises
    PromptError."""
    _check_format(text[:20], name)
    if len(text) > MAX_BYTES:
        raise PromptError(f"{name} is larger than {MAX_BYTES // 1_000_000} MB. Split it.")
    text = text.removeprefix("\ufeff")
    ending = name.rpartition(".")[2].lower()
    if ending in ("csv", "tsv", "tab"):
        records = _table(text, name, ending)
    elif ending in ("jsonl", "ndjson", "json") or text.lstrip().startswith("{"):
        records = _json_lines(text)
    else:
        records = _lines(text)
    items: dict[str, Item] = {}
    number = 0
    try:
        for number, record in records:  # noqa: B007
            item = item_of(record, str(len(items) + 1))
            if item.id in items:
                raise ValueError(f"the id {item.id!r} occurs twice")
            if len(items) == MAX_PROMPTS:
                raise ValueError(f"a file has at most {MAX_PROMPTS:,} prompts")
            items[item.id] = item
    except PromptError:
        raise
    except ValueError as error:
        raise PromptError(f"Line {number} of {name} is not a prompt: {error}.") from None
    if not items:
        raise PromptError(f"{name} has no prompts. Add at least one.")
    return list(items.values())


def _check_format(text: str, name: str) -> None:
    for first, what in OTHER_FORMATS.items():
        if text.startswith(first) or text.lstrip("\ufeff \r\n").lower().startswith(first):
            raise PromptError(f"{name} is {what}. {SAVE}")


def item_of(record: Mapping[str, Any], number: str) -> Item:
    """number: its id if it has none. Raises ValueError."""
    if "messages" in record:
        record = {**record, **_messages(record["messages"])}
    if record.get("prompt") is None:
        raise ValueError("its prompt is missing")
    given = [name for name in MOST if record.get(name) is not None]
    texts: dict[str, Any] = {name: _text(record[name], name) for name in given}
    if not texts["prompt"].strip():
        raise ValueError("its prompt is empty")
    if not texts.get("id", "1").strip():
        raise ValueError("its id is empty")
    return Item(**{"id": number, **texts}, turns=_turns(record.get("turns") or []))


def _text(value: Any, name: str) -> str:
    if name == "id" and type(value) is int:
        value = str(value)[: MOST[name] + 1]
    if not isinstance(value, str):
        raise ValueError(f"its {name} must be text")
    if len(value) > MOST[name]:
        raise ValueError(f"its {name} is longer than {MOST[name]:,} characters")
    if not is_text(value) or "\0" in value:
        raise ValueError(f"its {name} contains a character that is not valid text")
    return value


def _messages(value: Any) -> dict[str, Any]:
    turns = map(as_mapping, as_list(value))
    pairs = [(turn.get("role"), turn.get("content")) for turn in turns]
    system = pairs.pop(0)[1] if pairs and pairs[0][0] == "system" else ""
    if not pairs or pairs[-1][0] != "user":
        raise ValueError("its last message must be the user's")
    return {"system": system, "turns": [list(pair) for pair in pairs[:-1]], "prompt": pairs[-1][1]}


def _turns(posted: Any) -> tuple[tuple[str, str], ...]:
    if len(as_list(posted)) > MAX_TURNS:
        raise ValueError(f"it has {len(posted)} earlier turns, but at most {MAX_TURNS} are allowed")
    turns = []
    for number, pair in enumerate(posted):
        if len(as_list(pair)) != 2 or pair[0] != ("user", "assistant")[number % 2]:
            raise ValueError("its turns must alternate between user and assistant")
        turns.append((str(pair[0]), _text(pair[1], "prompt")))
    if len(turns) % 2:
        raise ValueError("its turns must end with the assistant's")
    return tuple(turns)


Records = Iterator[tuple[int, Mapping[str, Any]]]


def _json_lines(text: str) -> Records:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield number, as_mapping(json.loads(line))
        except (ValueError, RecursionError) as error:
            deep = isinstance(error, RecursionError)
            fault = "is nested too deeply" if deep else "is not a JSON object"
            raise PromptError(f"Line {number} {fault}. Write one JSON object per line.") from None


def _lines(text: str) -> Records:
    for number, line in enumerate(re.split(r"\r?\n", text), 1):
        if line.strip():
            yield number, {"prompt": line.strip()}


def _table(text: str, name: str, ending: str) -> Records:
    """Accept short rows and rows padded with empty cells. Raises PromptError."""
    lines = text.lstrip("\r\n")
    num_above = text[: len(text) - len(lines)].count("\n")
    delimiters = DELIMITERS if ending == "csv" else "\t,;|"
    if declared := re.match(r"sep=([,;\t|])\r?\n", lines, re.IGNORECASE):  # written by Excel
        lines, delimiters, num_above = lines[declared.end() :], declared[1], num_above + 1
    heads = [(delimiter, _cells(lines, delimiter)) for delimiter in delimiters]
    delimiter, head = max(heads, key=lambda found: ("prompt" in found[1]) * len(found[1]))
    if "prompt" not in head:
        first = shown(lines.partition("\n")[0].strip())
        raise PromptError(
            f"{name} is a table, so one column must be named prompt. Its first line is {first}."
        )
    named = [column for column in head if column]
    if len(set(named)) < len(named):
        raise PromptError(f"Two columns of {name} have the same name. Rename one.")
    rows = csv.reader(io.StringIO(lines, newline=""), delimiter=delimiter, strict=True)
    start = 1
    while True:
        start = rows.line_num + num_above + 1
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise PromptError(f"Line {start} of {name} is not valid CSV ({error}).") from None
        if row is None:
            return
        if start == num_above + 1 or not any(map(str.strip, row)):
            continue
        if any(map(str.strip, row[len(head) :])):
            raise PromptError(
                f"Line {start} of {name} has {len(row)} columns, but the first line has "
                f"{len(head)}. Put quotes around texts that contain {delimiter!r}."
            )
        yield (
            start,
            {key: cell for key, cell in zip(head, row, strict=False) if key in MOST and cell},
        )


def _cells(lines: str, delimiter: str) -> list[str]:
    try:
        row = next(csv.reader(io.StringIO(lines, newline=""), delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []
    cells = [cell.strip().lower() for cell in row]
    while cells and not cells[-1]:
        cells.pop()
    return cells


def bundled(name: str) -> list[Item]:
    """``study`` or the name of a family. Raises PromptError."""
    known = [*tasks.all_families(), *tasks.KINDS]
    counts = {name: 20}
    if name == "study":
        counts = {**dict.fromkeys(tasks.KINDS, 16), **dict.fromkeys(CHECKED, 4)}
    elif name not in known:
        raise PromptError(
            f"{shown(name)} is neither a file nor a bundled set of prompts. Name a file, or study, "
            f"{', '.join(known)}."
        )
    return [
        Item(
            f"{family}-{number}",
            task.prompt,
            category=family,
            reference=task.answer,
            task=task if tasks.has_checker(task) else None,
        )
        for family, count in counts.items()
        for number, task in enumerate(tasks.generate(family, "eval", 0, count), 1)
    ]
