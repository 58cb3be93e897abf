"""Generate requests like those that people send to a chat model, from ``requests.json`` and a
folder of public texts.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

Turns = tuple[str, ...]
"""The turns of a conversation: user, assistant, user, ... The last turn is the user's."""

_LISTS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
CHAT, CODE, READING = _LISTS["chat"], _LISTS["code"], _LISTS["reading"]
MATHS_FORMS: list[str] = _LISTS["maths"]
SYSTEMS: list[str] = _LISTS["systems"]
"""System prompts other than the default. The first is the one of the base's own template."""
MIN_WORDS, MAX_WORDS = 40, 150


def chat_requests(draw: random.Random) -> Iterator[Turns]:
    """Yield everyday requests without end. One in eight comes after a greeting and a reply."""
    while True:
        request = _everyday(draw)
        if draw.random() < 0.125:
            yield (draw.choice(CHAT["greetings"]), draw.choice(CHAT["replies"]), request)
        else:
            yield (request,)


def _everyday(draw: random.Random) -> str:
    form: str
    if draw.random() < 0.2:
        form = draw.choice(CHAT["advice_ask"])
        return form.format(s=draw.choice(CHAT["advice"]))
    s, t = draw.sample(CHAT["subjects"], 2)
    form = draw.choice(CHAT["questions"])
    return form.format(s=s, t=t)


def code_requests(draw: random.Random) -> Iterator[Turns]:
    makers = [_function] * 6 + [_completion] * 2 + [_snippet] * 2
    makers += [_query] * 2 + [_command] * 2 + [_page, _question, _script, _edit]
    while True:
        yield draw.choice(makers)(draw)


def _action(draw: random.Random) -> tuple[str, str, str]:
    """Choose at random a function to request: (what it does, its name, its arguments)."""
    verb, name, arguments = draw.choice(CODE["actions"])
    qualifier = draw.choice(CODE["qualifiers"]) if draw.random() < 0.35 else ""
    return verb + qualifier, name, arguments


def _function(draw: random.Random) -> Turns:
    task, name, _ = _action(draw)
    language = draw.choice(CODE["languages"])
    return (draw.choice(CODE["ask"]).format(language=language, what=task, name=name),)


def _completion(draw: random.Random) -> Turns:
    task, name, arguments = _action(draw)
    sentence = task[:1].upper() + task[1:]
    form = draw.choice(CODE["complete"])
    return (form.format(name=name, arguments=arguments, what=task, sentence=sentence),)


def _snippet(draw: random.Random) -> Turns:
    tag, code = draw.choice(CODE["snippets"])
    a, b, f = draw.sample(CODE["names"], 3)
    m, n, _ = (draw.randint(2, 50) for _ in range(3))
    filled = code.format(a=a, b=b, f=f, m=m, n=n)
    return (draw.choice(CODE["snippet_ask"]).format(tag=tag, code=filled),)


def _query(draw: random.Random) -> Turns:
    table, columns = draw.choice(CODE["tables"])
    column, other = draw.sample(columns, 2)
    form = draw.choice(CODE["queries"])
    return (form.format(table=table, column=column, other=other, columns=", ".join(columns)),)


def _command(draw: random.Random) -> Turns:
    task = draw.choice(CODE["shell"]).format(
        ext=draw.choice(CODE["extensions"]), n=draw.randint(2, 60), f=draw.choice(CODE["names"])
    )
    return (draw.choice(CODE["shell_ask"]).format(task=task),)


def _page(draw: random.Random) -> Turns:
    page, topic = draw.choice(CODE["pages"]), draw.choice(CODE["topics"])
    return (f"Write {page.format(topic=topic)}.",)


def _question(draw: random.Random) -> Turns:
    concept = draw.choice(CODE["concepts"])
    language = draw.choice(("Python", "JavaScript", "programming", "Java", "Git and the shell"))
    return (draw.choice(CODE["concept_ask"]).format(concept=concept, language=language),)


def _script(draw: random.Random) -> Turns:
    task = draw.choice(CODE["scripts"]).format(
        ext=draw.choice(CODE["extensions"]), topic=draw.choice(CODE["topics"])
    )
    return (f"Write a {draw.choice(('Python', 'Python', 'Node.js', 'bash'))} script that {task}.",)


def _edit(draw: random.Random) -> Turns:
    tag, code = draw.choice(CODE["snippets"])
    a, b, f = draw.sample(CODE["names"], 3)
    filled = code.format(a=a, b=b, f=f, m=draw.randint(2, 9), n=20)
    first_request = f"Write a small function named {f}."
    return (first_request, f"```{tag}\n{filled}\n```", draw.choice(CODE["edits"]))


@dataclass(frozen=True, slots=True)
class PassageQuestion:
    passage: str
    question: str
    answer: str


def summaries(passages: Iterable[str], draw: random.Random) -> Iterator[Turns]:
    for passage in passages:
        yield (_joined(draw.choice(READING["summary"]), passage, draw),)


def questions(items: Iterable[PassageQuestion], draw: random.Random) -> Iterator[Turns]:
    """Yield each question with its passage; some are followed by the answer and a new question."""
    for item in items:
        first = _joined(item.question, item.passage, draw)
        if draw.random() < 0.15:
            yield (first, item.answer.capitalize() + ".", draw.choice(READING["follow_ups"]))
        else:
            yield (first,)


def rewriting(passages: Iterable[str], draw: random.Random) -> Iterator[Turns]:
    """Yield requests to rewrite a short passage (two thirds) or to extract information from it."""
    for passage in passages:
        request = draw.choice(READING["rewriting" if draw.random() < 0.65 else "extraction"])
        text = first_sentences(passage, draw.choice((1, 2, 3, 4)))
        if "grammar" in request:
            text = with_mistakes(text, draw)
        yield (_joined(request, text, draw),)


def first_sentences(text: str, count: int) -> str:
    """Return the first ``count`` sentences of a text, or more until there are ten words."""
    num_sentences, words = 0, text.split()
    for index, word in enumerate(words, 1):
        if word.rstrip("\"'").endswith((".", "!", "?")):
            num_sentences += 1
            if num_sentences >= count and index >= 10:
                return " ".join(words[:index])
    return text


def with_mistakes(text: str, draw: random.Random) -> str:
    for right, wrong in draw.sample(READING["slips"], 5):
        text = text.replace(right, wrong, 2)
    return text


def _joined(request: str, passage: str, draw: random.Random) -> str:
    order: str = draw.choice(READING["orders"])
    return order.format(request, passage)


def alternate(*streams: Iterator[Turns]) -> Iterator[Turns]:
    for stream in cycle(streams):
        turns = next(stream, None)
        if turns is None:
            return
        yield turns


class Texts:
    """Reads the texts in a folder, in a random order by ``seed``. A missing file has no texts."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._seed = seed

    def random(self, name: str) -> random.Random:
        return random.Random(f"{self._seed}/{name}")

    def instructions(self) -> Iterator[Turns]:
        """Yield the requests of public data sets, except very short and very long ones."""
        rows = self._rows("chat_prompts_train.jsonl") + self._rows("chat_prompts_more.jsonl")
        self.random("chat_prompts").shuffle(rows)
        return ((row["prompt"],) for row in rows if 8 <= len(row["prompt"]) <= 1200)

    def maths(self) -> Iterator[Turns]:
        draw = self.random("maths")
        for row in self._shuffled("gsm8k_train.jsonl"):
            question = row["question"].strip()
            yield (draw.choice(MATHS_FORMS).format(question=question),)

    def passages(self) -> list[str]:
        """Return shuffled passages of 40 to 150 words from tales and children's books."""
        paragraphs = [row["text"] for row in self._rows("fairytale_sections_train.jsonl")]
        classics = self._read("childrens_classics.txt")
        paragraphs += re.split(r"\n\s*\n", re.sub(r"<<<BOOK [^>]*>>>", "\n\n", classics))
        tidy = (" ".join(text.split()) for text in paragraphs)
        fitting = [text for text in tidy if MIN_WORDS <= len(text.split()) <= MAX_WORDS]
        self.random("passages").shuffle(fitting)
        return fitting

    def questions(self) -> list[PassageQuestion]:
        """Return shuffled questions about tales, each with the section that contains the answer."""
        sections = {
            (row["tale"], str(row["section"])): " ".join(row["text"].split())
            for row in self._rows("fairytale_sections_train.jsonl")
        }
        questions = [
            PassageQuestion(sections[key], row["question"], row["answer"])
            for row in self._rows("fairytale_questions_train.jsonl")
            if (key := (row["tale"], str(row["sections"]))) in sections
            and len(sections[key].split()) <= MAX_WORDS
        ]
        self.random("questions").shuffle(questions)
        return questions

    def _read(self, name: str) -> str:
        path = self._folder / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def _rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._read(name).splitlines()]

    def _shuffled(self, name: str) -> list[dict[str, Any]]:
        rows = self._rows(name)
        self.random(name).shuffle(rows)
        return rows
