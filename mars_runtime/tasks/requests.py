"""Open requests of the kinds that a chat model gets: held-out prompts without a checker.

Written for this repository alone and never trained on; names, places and figures are made up. Each
kind begins with prompts that were written out one by one; further ones come from frames and from
texts of our own. Beside them openings of tales to continue, and kinds unlike anything a chat
model's adapter was trained on; some of those have words that a right answer holds, which tell
whether the model still follows, not how well it writes. Knows no model.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

from mars_runtime.json_values import as_list, as_text

from .base import Split, Task, read_data

NATURAL = "natural"
KINDS = ("chat", "maths", "code", "summary", "rewriting")
SHIFTED = ("languages", "odd_code", "tables", "long")
"""Other languages, code in languages that are rare, tables, and prompts of up to about 4,000
tokens."""
MANY_SUMS = 600
"""Exercises that are drawn; those that fall alike are kept once."""

DATA = read_data("requests")
_SHIFTED = read_data("shifted")
_MATHS = DATA["maths"]


def request_tasks(kind: str, seed: int, count: int) -> list[Task]:
    """``count`` different prompts of a kind, those that were written out first; fewer where there
    are not so many. The same arguments always give the same list."""
    rng = random.Random(f"{kind}:{seed}")
    written, further = _prompts(kind, rng)
    rng.shuffle(further)
    prompts = list(dict.fromkeys([*written, *further]))[:count]
    return [Task(kind, "request", prompt, "", "") for prompt in prompts]


def _prompts(kind: str, rng: random.Random) -> tuple[list[str], list[str]]:
    """What was written out, and all the others."""
    told = DATA[kind]
    if kind == "maths":
        return told["written"], [_exercise(rng, number) for number in range(MANY_SUMS)]
    if "texts" in told:
        texts, frames = told["texts"], told["frames"]
        return list(_framed(texts, frames, 1)), list(_framed(texts, frames, len(frames)))
    filled = [frame.format(word) for frame, words in told["frames"].items() for word in words]
    return told["written"], filled


def _framed(texts: Sequence[str], frames: Sequence[str], num_frames: int) -> Iterator[str]:
    """Every text in ``num_frames`` of the frames, its own first."""
    for index, text in enumerate(texts):
        for step in range(num_frames):
            yield frames[(index + step) % len(frames)].format(text=text)


def _exercise(rng: random.Random, number: int) -> str:
    """Numbers are drawn so that the question makes sense."""
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
    """The first ``count`` prompts of a kind; the seed orders the texts of long ones."""
    found = []
    for told in _SHIFTED[kind][:count]:
        prompt = told["prompt"]
        if kind == "long":
            rng = random.Random(f"{seed}:{prompt}")
            ours = [*DATA["summary"]["texts"], *DATA["rewriting"]["texts"]]
            texts = [rng.choice(ours) for _ in range(told["passages"])]
            texts.insert(rng.randrange(len(texts)), told["hidden"])
            prompt = "\n\n".join([*texts, prompt])
        expected = json.dumps(told["right"], ensure_ascii=False) if told["right"] else ""
        found.append(Task(kind, "shifted", prompt, "", expected))
    return found


def says_right(task: Task, text: str) -> bool:
    """Whether the text holds one of the words of a right answer; no where a task is damaged."""
    try:
        words = [as_text(word).lower() for word in as_list(json.loads(task.expected))]
    except (ValueError, RecursionError):
        return False
    return any(word in text.lower() for word in words)


def natural_tasks(split: Split, seed: int, count: int) -> list[Task]:
    """Openings of our own to continue; there is no reference and no checker."""
    rng = random.Random(f"{NATURAL}:{split}:{seed}")
    told = DATA[NATURAL]
    shown = [frame.format(opening=each) for each in told["openings"] for frame in told["frames"]]
    rng.shuffle(shown)
    prompts = [shown[index % len(shown)] for index in range(count)]
    return [Task(NATURAL, "opening", prompt, "", "") for prompt in prompts]
