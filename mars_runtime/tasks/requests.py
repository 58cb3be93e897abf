"""Prompts for chat models, without a single right answer, and openings of tales to continue; none
is trained on. Kinds in SHIFTED differ from the adapter's training data."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

from mars_runtime.files.json_values import as_list, as_text

from .base import Split, Task, read_data

NATURAL = "natural"
KINDS = ("chat", "maths", "code", "summary", "rewriting")
SHIFTED = ("languages", "odd_code", "tables", "long")
"""Other languages, rare programming languages, tables, and prompts of about 4,000 tokens."""
MANY_SUMS = 600

DATA = read_data("requests")
_SHIFTED = read_data("shifted")
_MATHS = DATA["maths"]


def request_tasks(kind: str, seed: int, count: int) -> list[Task]:
    """Hand-written prompts come first."""
    rng = random.Random(f"{kind}:{seed}")
    written, further = _prompts(kind, rng)
    rng.shuffle(further)
    prompts = list(dict.fromkeys([*written, *further]))[:count]
    return [Task(kind, "request", prompt, "", "") for prompt in prompts]


def _prompts(kind: str, rng: random.Random) -> tuple[list[str], list[str]]:
    written = DATA[kind]
    if kind == "maths":
        return written["written"], [_exercise(rng, number) for number in range(MANY_SUMS)]
    if "texts" in written:
        texts, frames = written["texts"], written["frames"]
        return list(_framed(texts, frames, 1)), list(_framed(texts, frames, len(frames)))
    filled = [frame.format(word) for frame, words in written["frames"].items() for word in words]
    return written["written"], filled


def _framed(texts: Sequence[str], frames: Sequence[str], num_frames: int) -> Iterator[str]:
    for index, text in enumerate(texts):
        for step in range(num_frames):
            yield frames[(index + step) % len(frames)].format(text=text)


def _exercise(rng: random.Random, number: int) -> str:
    draw = EXERCISES[number % len(EXERCISES)]
    return str(_MATHS["exercises"][draw.__name__].format(**draw(rng)))


Fields = dict[str, str | int]


def shopping(rng: random.Random) -> Fields:
    name, goods = rng.choice(_MATHS["names"]), rng.choice(_MATHS["goods"])
    count, price = rng.randint(3, 9), rng.randint(2, 7)
    note = 50 if count * price < 50 else 100
    return {"name": name, "goods": goods, "count": count, "price": price, "note": note}


def equation(rng: random.Random) -> Fields:
    x, a, b = rng.randint(-9, 12), rng.randint(2, 9), rng.randint(1, 20)
    return {"a": a, "b": b, "c": a * x + b}


def work(rng: random.Random) -> Fields:
    people, days, other = rng.randint(2, 6), rng.randint(4, 12), rng.randint(7, 10)
    return {"people": people, "days": days, "other": other}


def journey(rng: random.Random) -> Fields:
    name, speed = rng.choice(_MATHS["names"]), rng.randint(12, 24)
    hours, rest = rng.choice(("two", "three", "four")), rng.choice((15, 20, 30, 45))
    return {"name": name, "speed": speed, "hours": hours, "rest": rest}


def percentage(rng: random.Random) -> Fields:
    return {"whole": rng.randrange(120, 900, 20), "share": rng.choice((5, 15, 35, 40, 65))}


def sharing(rng: random.Random) -> Fields:
    first, second = rng.sample(_MATHS["names"], 2)
    total, more = rng.randrange(40, 200, 2), rng.randrange(4, 30, 2)
    return {"first": first, "second": second, "total": total, "more": more}


EXERCISES = (shopping, equation, work, journey, percentage, sharing)


def shifted_tasks(kind: str, seed: int, count: int) -> list[Task]:
    """seed: selects the passages of long prompts."""
    tasks = []
    for entry in _SHIFTED[kind][:count]:
        prompt = entry["prompt"]
        if kind == "long":
            rng = random.Random(f"{seed}:{prompt}")
            passages = [*DATA["summary"]["texts"], *DATA["rewriting"]["texts"]]
            texts = [rng.choice(passages) for _ in range(entry["passages"])]
            texts.insert(rng.randrange(len(texts)), entry["hidden"])
            prompt = "\n\n".join([*texts, prompt])
        expected = json.dumps(entry["right"], ensure_ascii=False) if entry["right"] else ""
        tasks.append(Task(kind, "shifted", prompt, "", expected))
    return tasks


def contains_right_word(task: Task, text: str) -> bool:
    try:
        words = [as_text(word).lower() for word in as_list(json.loads(task.expected))]
    except (ValueError, RecursionError):
        return False
    return any(word in text.lower() for word in words)


def natural_tasks(split: Split, seed: int, count: int) -> list[Task]:
    rng = random.Random(f"{NATURAL}:{split}:{seed}")
    written = DATA[NATURAL]
    shown = [
        frame.format(opening=opening)
        for opening in written["openings"]
        for frame in written["frames"]
    ]
    rng.shuffle(shown)
    prompts = [shown[index % len(shown)] for index in range(count)]
    return [Task(NATURAL, "opening", prompt, "", "") for prompt in prompts]
