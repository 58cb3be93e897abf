"""Requests as people send them to a chat model: everyday requests, code, word problems, and work
on a passage.

Subjects and phrasings are in ``requests.json``; passages and questions come from a folder of public
texts.
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
"""A conversation: user, assistant, user, ... ending with the user."""

_LISTS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
CHAT, CODE, READING = _LISTS["chat"], _LISTS["code"], _LISTS["reading"]
MATHS_FORMS: list[str] = _LISTS["maths"]
MIN_WORDS, MAX_WORDS = 40, 150


def chat_requests(draw: random.Random) -> Iterator[Turns]:
    """Yield everyday requests without end; one in eight is part of a conversation."""
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
    """Yield requests for code without end: functions, scripts, queries, commands, explanations and
    corrections.
    """
    makers = [_function] * 6 + [_completion] * 2 + [_snippet] * 2
    makers += [_query] * 2 + [_command] * 2 + [_page, _question, _script, _edit]
    while True:
        yield draw.choice(makers)(draw)


def _action(draw: random.Random) -> tuple[str, str, str]:
    """Return what a function does, its name and its arguments."""
    verb, name, arguments = draw.choice(CODE["actions"])
    qualifier = draw.choice(CODE["qualifiers"]) if draw.random() < 0.35 else ""
    return verb + qualifier, name, arguments


def _function(draw: random.Random) -> Turns:
    what, name, _ = _action(draw)
    language = draw.choice(CODE["languages"])
    return (draw.choice(CODE["ask"]).format(language=language, what=what, name=name),)


def _completion(draw: random.Random) -> Turns:
    what, name, arguments = _action(draw)
    sentence = what[:1].upper() + what[1:]
    form = draw.choice(CODE["complete"])
    return (form.format(name=name, arguments=arguments, what=what, sentence=sentence),)


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
    what, topic = draw.choice(CODE["pages"]), draw.choice(CODE["topics"])
    return (f"Write {what.format(topic=topic)}.",)


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
    """Return two user turns: code, and a request to change it."""
    tag, code = draw.choice(CODE["snippets"])
    a, b, f = draw.sample(CODE["names"], 3)
    filled = code.format(a=a, b=b, f=f, m=draw.randint(2, 9), n=20)
    first_request = f"Write a small function named {f}."
    return (first_request, f"```{tag}\n{filled}\n```", draw.choice(CODE["edits"]))


@dataclass(frozen=True, slots=True)
class PassageQuestion:
    """A question, its short answer, and the passage that contains it."""

    passage: str
    question: str
    answer: str


def summaries(passages: Iterable[str], draw: random.Random) -> Iterator[Turns]:
    """Yield one request for a summary or similar for each passage."""
    for passage in passages:
        yield (_joined(draw.choice(READING["summary"]), passage, draw),)


def questions(asked_questions: Iterable[PassageQuestion], draw: random.Random) -> Iterator[Turns]:
    """Yield a question on each passage; some continue with a second question after the answer."""
    for item in asked_questions:
        first = _joined(item.question, item.passage, draw)
        if draw.random() < 0.15:
            yield (first, item.answer.capitalize() + ".", draw.choice(READING["follow_ups"]))
        else:
            yield (first,)


def rewriting(passages: Iterable[str], draw: random.Random) -> Iterator[Turns]:
    """Yield requests for rewriting and extraction, about two to one, on passages of a few
    sentences.
    """
    for passage in passages:
        request = draw.choice(READING["rewriting" if draw.random() < 0.65 else "extraction"])
        text = first_sentences(passage, draw.choice((1, 2, 3, 4)))
        if "grammar" in request:
            text = with_slips(text, draw)
        yield (_joined(request, text, draw),)


def first_sentences(text: str, count: int) -> str:
    """Return the first sentences of a text, with at least ten words."""
    end, words = 0, text.split()
    for index, word in enumerate(words, 1):
        if word.rstrip("\"'").endswith((".", "!", "?")):
            end += 1
            if end >= count and index >= 10:
                return " ".join(words[:index])
    return text


def with_slips(text: str, draw: random.Random) -> str:
    """Return the text with a few mistakes of grammar and spelling."""
    for right, wrong in draw.sample(READING["slips"], 5):
        text = text.replace(right, wrong, 2)
    return text


def _joined(request: str, passage: str, draw: random.Random) -> str:
    """Return request and passage in one of the usual orders."""
    order: str = draw.choice(READING["orders"])
    return order.format(request, passage)


def alternate(*streams: Iterator[Turns]) -> Iterator[Turns]:
    """Yield one item of each iterator in turn, until one is exhausted."""
    for stream in cycle(streams):
        turns = next(stream, None)
        if turns is None:
            return
        yield turns


class Texts:
    """The public texts of one folder, read once, in a seeded order. Raises FileNotFoundError for a
    missing file.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._seed = seed

    def random(self, name: str) -> random.Random:
        """Return a separate generator for each use, the same in every process."""
        return random.Random(f"{self._seed}/{name}")

    def instructions(self) -> Iterator[Turns]:
        """Yield general requests, unchanged."""
        rows = self._shuffled("chat_prompts_train.jsonl")
        return ((row["prompt"],) for row in rows if 8 <= len(row["prompt"]) <= 1200)

    def maths(self) -> Iterator[Turns]:
        """Yield word problems of primary school, some with a request for steps."""
        draw = self.random("maths")
        for row in self._shuffled("gsm8k_train.jsonl"):
            question = row["question"].strip()
            yield (draw.choice(MATHS_FORMS).format(question=question),)

    def passages(self) -> list[str]:
        """Yield passages of 40 to 150 words from tales and children's books, shuffled."""
        paragraphs = [row["text"] for row in self._rows("fairytale_sections_train.jsonl")]
        classics = (self._folder / "childrens_classics.txt").read_text(encoding="utf-8")
        paragraphs += re.split(r"\n\s*\n", re.sub(r"<<<BOOK [^>]*>>>", "\n\n", classics))
        tidy = (" ".join(text.split()) for text in paragraphs)
        fitting = [text for text in tidy if MIN_WORDS <= len(text.split()) <= MAX_WORDS]
        self.random("passages").shuffle(fitting)
        return fitting

    def questions(self) -> list[PassageQuestion]:
        """Yield questions on tales with a passage of one section, shuffled."""
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

    def _rows(self, name: str) -> list[dict[str, Any]]:
        lines = (self._folder / name).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def _shuffled(self, name: str) -> list[dict[str, Any]]:
        rows = self._rows(name)
        self.random(name).shuffle(rows)
        return rows
