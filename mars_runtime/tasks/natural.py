"""Natural text: tales to continue and real questions about tales, from the data folder.

Knows the folder's file names; it knows no checker for a continuation, since there is none.
"""

from __future__ import annotations

import json
import random
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .base import Split, Task
from .natural_text import clean, close_quotes, passages, sentences, to_ascii
from .reading import FRAMES as READING_FRAMES

NAME = "natural"
TITLE = "Continue a tale"
EVAL_ONE_IN = 25  # tales and chapters
FRAMES = (
    "Continue this tale:\n\n{opening}",
    "Continue the story:\n\n{opening}",
    "Tell me how this tale goes on:\n\n{opening}",
    "Go on with this story:\n\n{opening}",
    "Here is how a tale begins. Continue it.\n\n{opening}",
    "What happens next in this tale?\n\n{opening}",
)
OPENINGS = (
    "Once upon a time a miller's daughter found a small silver door in the trunk of an old oak "
    "tree. She knocked three times, and a voice from within told her to wait until the moon rose.",
    "There was once a poor fisherman who lived with his wife in a hut by the sea. One grey "
    "morning he drew up his net and found in it a golden comb and no fish at all.",
    "In a village at the foot of the mountain there lived a tailor who could sew anything but a "
    "coat for himself. One winter evening a stranger in a cloak of feathers came to his shop.",
    "A king had three sons, and the youngest was so fond of sleeping that he was called the "
    "Dormouse. One day the king fell ill, and no doctor in the land could help him.",
    "Deep in the forest lived an old bear who was the guardian of all the honey in the world. "
    "One summer the bees did not come home, and the bear set out to look for them.",
    "Long ago there was a little girl who had nothing but a lantern and a grey cat. When the "
    "great snow came, she lit the lantern, took the cat under her arm and went out of the house.",
    "Two brothers owned a mill together, but the one did all the work and the other ate all the "
    "bread. At last the elder brother took his hat and his stick and went out into the world.",
    "A crow and a mouse once made a promise to share whatever they found. The first day they "
    "found a crust of bread, and the second day they found a ring that could speak.",
)


def _is_held_out(name: str) -> bool:
    """By title, so that one tale told in two sources falls on one side."""
    title = re.sub(r"^(the|a|an)[^a-z]+|[^a-z0-9/]", "", name.strip().lower())
    return zlib.crc32(title.encode()) % EVAL_ONE_IN == 0


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def _tales(data: Path) -> dict[str, dict[str, str]]:
    """Tale name -> section number -> raw text, in the order of the file."""
    tales: dict[str, dict[str, str]] = {}
    for record in _records(data / "fairytale_sections_train.jsonl"):
        tales.setdefault(record["tale"], {})[str(record["section"])] = close_quotes(record["text"])
    return tales


def _chapters(data: Path) -> Iterator[tuple[str, str]]:
    """(book and chapter name, raw text) of the children's classics."""
    text = (data / "childrens_classics.txt").read_text(encoding="utf-8")
    for book in re.split(r"^<<<BOOK ", text, flags=re.MULTILINE)[1:]:
        title, _, body = book.partition(">>>")
        for number, chapter in enumerate(re.split(r"^#+ ", body, flags=re.MULTILINE)):
            heading, _, content = chapter.partition("\n")
            is_numbered = re.match(r"\s*(?:chapter|[\divxl]+\b)", heading, re.IGNORECASE)
            name = heading if number and not is_numbered else f"{title}/{heading}"
            yield name, content


def _natural_task(opening: str, continuation: str) -> Task:
    frame = FRAMES[zlib.crc32(opening.encode()) % len(FRAMES)]
    return Task(NAME, "tale", frame.format(opening=opening), continuation, "")


def tale_passages(data: Path, split: Split) -> list[Task]:
    """Openings of one to three sentences with the 1500 to 2500 characters that follow."""
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
    """The sentence that holds the answer with a neighbour on each side, or nothing."""
    parts = sentences(section.replace("\n", " "))
    for index, part in enumerate(parts):
        if re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", part, re.IGNORECASE):
            kept = " ".join(parts[max(0, index - 1) : index + 2])
            return kept if len(kept) <= 450 else (part if len(part) <= 450 else "")
    return ""


def fairytale_questions(data: Path, split: Split) -> list[Task]:
    """Real questions whose answer stands word for word in a short piece of the tale."""
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
        frame = READING_FRAMES[zlib.crc32(question.encode()) % len(READING_FRAMES)]
        prompt = frame.format(story=story, question=question)
        reply = answer[0].upper() + answer[1:] + "."
        tasks.append(Task("reading", "fairytale", prompt, reply, json.dumps({"gold": answer})))
    return tasks


def natural_tasks(split: Split, seed: int, count: int) -> list[Task]:
    """Openings of our own to continue; there is no reference and no checker."""
    rng = random.Random(f"{NAME}:{split}:{seed}")
    shown = [(frame, opening) for opening in OPENINGS for frame in FRAMES]
    rng.shuffle(shown)
    return [
        Task(NAME, "opening", frame.format(opening=opening), "", "")
        for frame, opening in (shown[index % len(shown)] for index in range(count))
    ]
