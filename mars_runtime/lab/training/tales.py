"""Natural text for training: passages of tales to continue, and questions on them."""

from __future__ import annotations

import json
import re
import unicodedata
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mars_runtime.tasks import NATURAL, Split, Task
from mars_runtime.tasks.reading import DATA as READING
from mars_runtime.tasks.requests import DATA as REQUESTS

EVAL_ONE_IN = 25  # one in 25 tales and chapters is held out for evaluation

_REPLACED = {
    "\u2018": "'",
    "\u2019": "'",
    "\u201c": '"',
    "\u201d": '"',
    "\u2013": "-",
    "\u2014": " - ",
    "\u2026": "...",
    "\u00a0": " ",
}
_NOISE = re.compile(
    r"^\s*(?:#.*|[-*_=\s]{3,}|\[?illustration.*|page \d+|\d+|.*gutenberg.*|<<<.*)\s*$",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(A-Z])")


def _is_held_out(name: str) -> bool:
    """Normalise the title, so a tale of two sources is in the same split in both."""
    title = re.sub(r"^(the|a|an)[^a-z]+|[^a-z0-9/]", "", name.strip().lower())
    return zlib.crc32(title.encode()) % EVAL_ONE_IN == 0


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def _tales(data: Path) -> dict[str, dict[str, str]]:
    """Return name of a tale -> number of a section -> raw text."""
    tales: dict[str, dict[str, str]] = {}
    for record in _records(data / "fairytale_sections_train.jsonl"):
        tales.setdefault(record["tale"], {})[str(record["section"])] = close_quotes(record["text"])
    return tales


def _chapters(data: Path) -> Iterator[tuple[str, str]]:
    text = (data / "childrens_classics.txt").read_text(encoding="utf-8")
    for book in re.split(r"^<<<BOOK ", text, flags=re.MULTILINE)[1:]:
        title, _, body = book.partition(">>>")
        for number, chapter in enumerate(re.split(r"^#+ ", body, flags=re.MULTILINE)):
            heading, _, content = chapter.partition("\n")
            is_numbered = re.match(r"\s*(?:chapter|[\divxl]+\b)", heading, re.IGNORECASE)
            name = heading if number and not is_numbered else f"{title}/{heading}"
            yield name, content


def _natural_task(opening: str, continuation: str) -> Task:
    frames = REQUESTS["natural"]["frames"]
    frame = frames[zlib.crc32(opening.encode()) % len(frames)]
    return Task(NATURAL, "tale", frame.format(opening=opening), continuation, "")


def tale_passages(data: Path, split: Split) -> list[Task]:
    texts = [
        (name, "\n\n".join(sections.values())) for name, sections in _tales(data).items()
    ] + list(_chapters(data))
    return [
        _natural_task(opening, continuation)
        for name, text in texts
        if _is_held_out(name) == (split == "eval")
        for opening, continuation in passages(clean(text))
    ]


def _trimmed(section: str, answer: str) -> str:
    """Keep the neighbours of the answer's sentence if that is short."""
    parts = sentences(section.replace("\n", " "))
    for index, part in enumerate(parts):
        if re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", part, re.IGNORECASE):
            piece = " ".join(parts[max(0, index - 1) : index + 2])
            return piece if len(piece) <= 450 else (part if len(part) <= 450 else "")
    return ""


def fairytale_questions(data: Path, split: Split) -> list[Task]:
    tales = {name: {n: clean(t) for n, t in s.items()} for name, s in _tales(data).items()}
    tasks: list[Task] = []
    for record in _records(data / "fairytale_questions_train.jsonl"):
        name = record["tale"]
        if _is_held_out(name) != (split == "eval"):
            continue
        answer = to_ascii(record["answer"]).strip(" .")
        section = tales.get(name, {}).get(str(record["sections"]), "")
        story = _trimmed(section, answer) if len(answer) > 1 else ""
        if not story:
            continue
        question = " ".join(to_ascii(record["question"]).split())
        frames = READING["frames"]["shared"]
        frame = frames[zlib.crc32(question.encode()) % len(frames)]
        prompt = frame.format(story=story, question=question)
        reply = answer[0].upper() + answer[1:] + "."
        tasks.append(Task("reading", "fairytale", prompt, reply, ""))
    return tasks


def to_ascii(text: str) -> str:
    for old, new in _REPLACED.items():
        text = text.replace(old, new)
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return text.replace("``", '"').replace("''", '"')


def close_quotes(text: str) -> str:
    """Restore quotation marks that the data set stripped from the ends of a section."""
    text = to_ascii(text).strip()
    first, last = text.find('"'), text.rfind('"')
    if first > 0 and text[first - 1] in ",.!?;-":
        text = '"' + text
        last += 1
    if 0 <= last < len(text) - 1 and (last == 0 or text[last - 1].isspace()):
        text += '"'
    return text


def clean(text: str) -> str:
    """Return plain paragraphs, one per line."""
    text = re.sub(r"!?\[[^\]]*\]\([^)]*\)", "", to_ascii(text))
    text = re.sub(r"\[[^\]]{0,200}\]|<[^>]{0,80}>", "", text)
    text = re.sub(r"--+", " - ", text)
    lines = ["" if _NOISE.match(line) else line.strip() for line in text.splitlines()]
    text = re.sub(r"[_*#|\\{}~^`<>\[\]]", "", "\n".join(lines))
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
    return "\n".join(paragraph for paragraph in paragraphs if paragraph)


def sentences(text: str) -> list[str]:
    pieces: list[str] = []
    start = 0
    for match in _SENTENCE.finditer(text):
        end = match.start() + len(match.group().rstrip())
        pieces.append(text[start:end].strip())
        start = match.end()
    return [piece for piece in [*pieces, text[start:].strip()] if piece]


def passages(text: str, shortest: int = 1500, longest: int = 2500) -> list[tuple[str, str]]:
    units: list[str] = []
    for paragraph in text.split("\n"):
        parts = sentences(paragraph)
        units += [part + " " for part in parts[:-1]] + [part + "\n" for part in parts[-1:]]
    pairs: list[tuple[str, str]] = []
    index = 0
    while index < len(units):
        opening = units[index]
        index += 1
        for _ in range(2):
            if index < len(units) and len(opening) < 120:
                opening += units[index]
                index += 1
        body = ""
        while index < len(units) and len(body) < (shortest + longest) // 2:
            if len(body) + len(units[index]) > longest and len(body) >= shortest:
                break
            body += units[index]
            index += 1
        if len(body) >= shortest and len(opening) <= 600:
            pairs.append((opening.strip(), body.strip()[: longest + 600]))
    return pairs
