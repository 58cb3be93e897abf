"""Tasks that require an exact format, in the style of IFEval. ``expected``: values of
CONSTRAINTS."""

from __future__ import annotations

import json
import random
import re
import zlib
from collections.abc import Callable

from .base import Family, Split, Task, article, listed, phrase, read_data
from .words import COLOURS, NUMBER_WORDS, SINGULAR, TOPICS, people, plural

_DATA = read_data("formats")
FACTS: dict[str, list[str]] = _DATA["facts"]
COUNTS = (2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 7)
LONGER_COUNTS = (*COUNTS, 6, 7, 8, 9, 10)
Parts = tuple[dict[str, str], str, dict[str, object]]  # prompt fields, answer, constraints


def _items(
    rng: random.Random, counts: tuple[int, ...] = COUNTS
) -> tuple[dict[str, str], list[str], list[str]]:
    """Return the prompt's fields, the items of the answer, and all accepted words. The first item
    depends on topic and number only, so that a model can learn what comes next."""
    topic = rng.choice(sorted(TOPICS))
    count = rng.choice(counts)
    number = rng.choice((str(count), NUMBER_WORDS[count]))
    members = sorted(TOPICS[topic])
    start = zlib.crc32(f"{topic}:{number}".encode())
    items = [members[(start + at) % len(members)] for at in range(count)]
    names = {"furniture": "pieces of furniture", "clothes": "pieces of clothing"}
    known = [form for item in TOPICS[topic] for form in (item, plural(item))]
    return {"n": number, "topic": names.get(topic, topic)}, items, known


def bullet_list(rng: random.Random, split: Split) -> Parts:
    fields, items, known = _items(rng)
    answer = "\n".join(f"- {item}" for item in items)
    return fields, answer, {"bullets": len(items), "members": known}


def numbered_list(rng: random.Random, split: Split) -> Parts:
    fields, items, known = _items(rng, LONGER_COUNTS)
    answer = "\n".join(f"{index}. {item}" for index, item in enumerate(items, 1))
    return fields, answer, {"numbered": len(items), "members": known}


def upper_list(rng: random.Random, split: Split) -> Parts:
    fields, answer, constraints = bullet_list(rng, split)
    return fields, answer.upper(), constraints | {"upper": True}


def semicolons(rng: random.Random, split: Split) -> Parts:
    fields, items, known = _items(rng)
    return fields, "; ".join(items), {"separated": [";", len(items)], "members": known}


def json_object(rng: random.Random, split: Split) -> Parts:
    person = people(rng, split, 1)[0]
    values: dict[str, object] = {
        "age": rng.randint(5, 90),
        "city": rng.choice(_DATA["cities"]),
        "job": rng.choice(_DATA["jobs"]),
        "pet": rng.choice(TOPICS["animals"]),
        "colour": rng.choice(COLOURS),
    }
    texts = {
        "age": f"is {values['age']} years old",
        "city": f"lives in {values['city']}",
        "job": f"works as a {values['job']}",
        "pet": f"has a {values['pet']}",
        "colour": f"likes {values['colour']}",
    }
    keys = rng.sample(sorted(values), rng.randint(2, 3))
    record: dict[str, object] = {"name": person.name} | {key: values[key] for key in keys}
    story = f"{person.name} {listed([texts[key] for key in keys])}."
    return {"keys": listed(["name", *keys]), "story": story}, json.dumps(record), {"json": record}


def _plain_sentence(rng: random.Random) -> str:
    subject = rng.choice(sorted(FACTS))
    fact = rng.choice(FACTS[subject])
    manner = rng.choice(("", *_DATA["manners"])) if len(fact.split()) < 5 else ""
    return " ".join(f"the {manner} {subject} {fact}".split())


def upper_case(rng: random.Random, split: Split) -> Parts:
    text = _plain_sentence(rng)
    return {"text": text}, text.upper(), {"equals": text.upper()}


def quoted(rng: random.Random, split: Split) -> Parts:
    text = _plain_sentence(rng)
    return {"text": text}, f'"{text}"', {"equals": f'"{text}"'}


def repeat(rng: random.Random, split: Split) -> Parts:
    text, count = rng.choice(_DATA["phrases"]), rng.choice((2, 3, 3, 4, 4, 5, 5, 6))
    answer = "\n".join([text] * count)
    fields = {"text": text, "n": rng.choice((str(count), NUMBER_WORDS[count]))}
    return fields, answer, {"equals": answer}


def repeat_upper(rng: random.Random, split: Split) -> Parts:
    fields, answer, _ = repeat(rng, split)
    return fields, answer.upper(), {"equals": answer.upper()}


def _facts(rng: random.Random, subject: str, count: int) -> list[str]:
    facts = FACTS[subject]
    start = rng.randrange(len(facts))
    return [facts[(start + step) % len(facts)] for step in range(count)]


def _about(subject: str, constraints: dict[str, object]) -> dict[str, object]:
    return constraints | {"mentions": subject, "sentences": 1, "plain": True}


def no_commas(rng: random.Random, split: Split) -> Parts:
    subject = rng.choice(sorted(FACTS))
    first, second = _facts(rng, subject, 2)
    answer = f"The {subject} {first} and {second}."
    return {"a_subject": article(subject)}, answer, _about(subject, {"no_commas": True})


def sentence_count(rng: random.Random, split: Split) -> Parts:
    subject, count = rng.choice(sorted(FACTS)), rng.randint(2, 3)
    answer = " ".join(f"The {subject} {fact}." for fact in _facts(rng, subject, count))
    fields = {"a_subject": article(subject), "n": rng.choice((str(count), NUMBER_WORDS[count]))}
    return fields, answer, {"sentences": count, "mentions": subject, "plain": True}


def start_word(rng: random.Random, split: Split) -> Parts:
    subject, word = rng.choice(sorted(FACTS)), rng.choice(_DATA["starters"])
    answer = f"{word} the {subject} {rng.choice(FACTS[subject])}."
    fields = {"a_subject": article(subject), "word": word}
    return fields, answer, _about(subject, {"first_word": word})


def end_word(rng: random.Random, split: Split) -> Parts:
    subject, ending = rng.choice(sorted(FACTS)), rng.choice(sorted(_DATA["endings"]))
    answer = f"The {subject} {rng.choice(FACTS[subject])} {ending}."
    word = _DATA["endings"][ending]
    fields = {"a_subject": article(subject), "word": word}
    return fields, answer, _about(subject, {"last_word": word})


def yes_no(rng: random.Random, split: Split) -> Parts:
    topic = rng.choice(sorted(TOPICS))
    is_member = rng.random() < 0.5
    blurred = _DATA["blurred_topics"]  # pairs of topics; some things belong to both
    clear = [
        name for name in sorted(TOPICS) if name != topic and sorted((topic, name)) not in blurred
    ]
    source = topic if is_member else rng.choice(clear)
    answer = "yes" if is_member else "no"
    item = rng.choice(TOPICS[source])
    noun = item if source == "colours" else article(item)
    question = f"Is {noun} {article(SINGULAR[topic])}?"
    return {"question": question}, answer, {"equals": answer}


KINDS: dict[str, Callable[[random.Random, Split], Parts]] = {
    maker.__name__: maker
    for maker in (
        *(bullet_list, numbered_list, upper_list, semicolons, json_object, upper_case, quoted),
        *(repeat, repeat_upper, no_commas, sentence_count, start_word, end_word, yes_no),
    )
}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines() if line.strip()]


def _words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z']+", text)


def _are_numbered(text: str, count: int) -> bool:
    marks = [re.match(r"(\d+)[.)] \S", line) for line in _lines(text)]
    return [int(mark[1]) if mark else 0 for mark in marks] == list(range(1, count + 1))


def _are_separated(text: str, mark_and_count: tuple[str, int]) -> bool:
    mark, count = mark_and_count
    parts = [part.strip() for part in text.strip().split(mark)]
    return len(parts) == count and all(parts) and len(_lines(text)) == 1


def _are_members(text: str, known: list[str]) -> bool:
    items = [
        re.sub(r"^\s*(?:[-*]|\d+[.)])\s*", "", part).strip(" .!\"'").lower()
        for part in re.split(r"[\n;|/]+", text.strip())
    ]
    items = [item for item in items if item]
    return bool(items) and len(set(items)) == len(items) and set(items) <= set(known)


def _is_json(text: str, value: dict[str, object]) -> bool:
    match = re.fullmatch(r"\s*(?:```(?:json)?\s*)?(\{.*\})\s*(?:```)?\s*", text, re.DOTALL)
    return bool(match) and json.loads(match[1]) == value  # type: ignore[index]


def _are_sentences(text: str, count: int) -> bool:
    parts = [part for part in re.split(r"(?<=[.!?])\s+", text.strip()) if part]
    closed = all(part[-1] in ".!?" and len(_words(part)) >= 3 for part in parts)
    return closed and len(parts) == count and len(set(parts)) == count


PLAIN = re.compile(r"[A-Za-z' .!?,;:\"\n-]+")
CONSTRAINTS: dict[str, Callable[..., bool]] = {
    "bullets": lambda text, count: (
        [bool(re.match(r"[-*] \S", line)) for line in _lines(text)] == [True] * count
    ),
    "numbered": _are_numbered,
    "separated": _are_separated,
    "members": _are_members,
    "json": _is_json,
    "equals": lambda text, wanted: text.strip() == wanted,
    "upper": lambda text, wanted: text.isupper() == wanted,
    "no_commas": lambda text, wanted: ("," not in text) == wanted,
    "mentions": lambda text, word: re.search(rf"\b{re.escape(word)}\b", text, re.I) is not None,
    "sentences": _are_sentences,
    "first_word": lambda text, word: _words(text)[:1] == [word],
    "last_word": lambda text, word: (
        [written.lower() for written in _words(text)[-1:]] == [word.lower()]
    ),
    "plain": lambda text, wanted: bool(PLAIN.fullmatch(text.strip())) == wanted,
}


def holds(text: str, constraints: dict[str, object]) -> bool:
    return bool(text.strip()) and all(
        CONSTRAINTS[name](text, value) for name, value in constraints.items()
    )


class Formats(Family):
    name = "formats"

    def draft(self, rng: random.Random, split: Split) -> Task:
        kind = rng.choice(sorted(KINDS))
        fields, answer, constraints = KINDS[kind](rng, split)
        prompt = phrase(rng, split, _DATA["phrasings"][kind]).format(**fields)
        return Task(self.name, kind, prompt, answer, json.dumps(constraints))

    def is_right(self, task: Task, text: str, is_cut: bool) -> bool:
        return not is_cut and holds(text, json.loads(task.expected))
