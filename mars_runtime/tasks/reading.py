"""Questions about short generated tales, in the style of FairytaleQA. A correct answer contains the
``key`` of a stated fact and none of its ``rivals``, wrong answers of the same type."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence

from .base import Family, Split, Task, article, phrase, read_data
from .words import COLOURS, NUMBER_WORDS, people

DATA = read_data("reading")
SKIPPED = frozenset({"a", "an", "the", "of", "to", "in", "his", "her", "their", "its"}).union(
    {"was", "were", "is", "are", "and", "that"}
)


def words_of(text: str) -> list[str]:
    words = re.findall(r"[a-z0-9]+", text.lower().replace("'s", ""))
    return [word for word in words if word not in SKIPPED]


def has_phrase(words: list[str], key: str) -> bool:
    wanted = words_of(key)
    spans = range(len(words) - len(wanted) + 1)
    return bool(wanted) and any(words[i : i + len(wanted)] == wanted for i in spans)


def conclusion(prompt: str, text: str) -> str:
    """Drop a quotation from the prompt at the beginning of the text, unless nothing follows it."""
    opening = re.match(r'\s*The text says: "([^"]+)"', text)
    if opening is None or opening[1] not in prompt:
        return text
    return text[opening.end() :].strip() or text


class Reading(Family):
    name = "reading"

    def draft(self, rng: random.Random, split: Split) -> Task:
        fields = _fields(rng, split)
        sentences = [phrase(rng, split, part).format(**fields) for part in DATA["sentences"]]
        kind = rng.choice(sorted(DATA["questions"]))
        questions = DATA["questions"][kind]
        question = phrase(rng, split, questions["phrasings"]).format(**fields)
        frame = phrase(rng, split, DATA["frames"])
        prompt = frame.format(story=" ".join(sentences), question=question)
        key, quote = fields[questions["key"]], sentences[questions["sentence"]]
        # Do not quote a sentence that has a pronoun in place of the key.
        quoted = f'The text says: "{quote}" ' if key in quote else ""
        expected = json.dumps({"key": key, "rivals": _rivals(kind, questions["rivals"], fields)})
        answer = quoted + questions["answer"].format(**fields)
        return Task(self.name, kind, prompt, answer, expected)

    def is_right(self, task: Task, text: str, is_cut: bool) -> bool:
        if is_cut:
            return False
        expected = json.loads(task.expected)
        words = words_of(conclusion(task.prompt, text))
        rivals = any(has_phrase(words, rival) for rival in expected["rivals"])
        return has_phrase(words, expected["key"]) and not rivals


def _fields(rng: random.Random, split: Split) -> dict[str, str]:
    first, second = people(rng, split, 2)
    others = DATA["only_men"] if first.he == "she" else DATA["only_women"]
    fields = {
        "name": first.name,
        "Name": first.name,
        "other": second.name,
        "he": first.he,
        "him": first.him,
        "he_poss": first.his,
        "hero": rng.choice([hero for hero in DATA["heroes"] if hero not in others]),
        "animal": rng.choice(DATA["animals"]),
        "home": rng.choice(DATA["homes"]),
        "find": rng.choice(DATA["finds"]),
        "spot": rng.choice(DATA["spots"]),
        "colour": rng.choice(COLOURS),
        "gift": rng.choice(DATA["gifts"]),
        "reason": rng.choice(sorted(DATA["reasons"])),
        "number": rng.choice(NUMBER_WORDS[2:]),
        "time": rng.choice(DATA["times"]),
    }
    fields |= {f"a_{name}": article(fields[name]) for name in ("hero", "home", "find", "colour")}
    return fields | {"reason_key": DATA["reasons"][fields["reason"]]}


def _rivals(kind: str, names: Sequence[str], fields: dict[str, str]) -> list[str]:
    if kind == "how_long":
        return [word for word in NUMBER_WORDS[1:] if word != fields["number"]]
    if kind == "colour":
        return [word for word in COLOURS if word != fields["colour"]]
    if kind == "why":
        return [
            key for reason, key in sorted(DATA["reasons"].items()) if reason != fields["reason"]
        ]
    return [fields[name] for name in names]
