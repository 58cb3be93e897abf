"""Format following: exact counts, JSON, upper case, no commas, first and last words.

Knows the constraints by name; each kind's last two phrasings are held out for evaluation.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable

from .base import Family, Split, Task, article, listed, phrase
from .constraints import holds
from .format_facts import CITIES, ENDINGS, FACTS, JOBS, MANNERS, PHRASES, STARTERS
from .format_phrasings import PHRASINGS
from .pools import COLOURS, NUMBER_WORDS, SINGULAR, TOPICS, people, plural

BLURRED = (  # pairs of topics a thing may belong to both of
    {"animals", "birds"},
    {"fruits", "colours"},
    {"fruits", "vegetables"},
    {"flowers", "colours"},
    {"flowers", "trees"},
    {"fruits", "trees"},
)
COUNTS = (2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 7)
LONGER_COUNTS = (*COUNTS, 6, 7, 8, 9, 10)
Made = tuple[dict[str, str], str, dict[str, object]]  # prompt fields, answer, constraints


def _sentence(subject: str, fact: str) -> str:
    return f"The {subject} {fact}."


def _items(
    rng: random.Random, counts: tuple[int, ...] = COUNTS
) -> tuple[str, list[str], dict[str, str]]:
    topic = rng.choice(sorted(TOPICS))
    count = rng.choice(counts)
    number = rng.choice((str(count), NUMBER_WORDS[count]))
    known = sorted(TOPICS[topic])
    start = zlib.crc32(f"{topic}:{number}".encode())  # the same order every time, so a next
    items = [known[(start + step) % len(known)] for step in range(count)]  # item is never a guess
    names = {"furniture": "pieces of furniture", "clothes": "pieces of clothing"}
    return topic, items, {"n": number, "topic": names.get(topic, topic)}


def _known(topic: str) -> list[str]:
    return [form for item in TOPICS[topic] for form in (item, plural(item))]


def bullet_list(rng: random.Random, split: Split) -> Made:
    topic, items, fields = _items(rng)
    answer = "\n".join(f"- {item}" for item in items)
    return fields, answer, {"bullets": len(items), "members": _known(topic)}


def numbered_list(rng: random.Random, split: Split) -> Made:
    topic, items, fields = _items(rng, LONGER_COUNTS)
    answer = "\n".join(f"{index}. {item}" for index, item in enumerate(items, 1))
    return fields, answer, {"numbered": len(items), "members": _known(topic)}


def upper_list(rng: random.Random, split: Split) -> Made:
    topic, items, fields = _items(rng)
    answer = "\n".join(f"- {item.upper()}" for item in items)
    return fields, answer, {"bullets": len(items), "members": _known(topic), "upper": True}


def semicolons(rng: random.Random, split: Split) -> Made:
    topic, items, fields = _items(rng)
    constraints: dict[str, object] = {"separated": [";", len(items)], "members": _known(topic)}
    return fields, "; ".join(items), constraints


def json_object(rng: random.Random, split: Split) -> Made:
    person = people(rng, split, 1)[0]
    values: dict[str, object] = {
        "age": rng.randint(5, 90),
        "city": rng.choice(CITIES),
        "job": rng.choice(JOBS),
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
    made: dict[str, object] = {"name": person.name} | {key: values[key] for key in keys}
    story = f"{person.name} {listed([texts[key] for key in keys])}."
    return {"keys": listed(["name", *keys]), "story": story}, json.dumps(made), {"json": made}


def _plain_sentence(rng: random.Random) -> str:
    """A sentence to copy: few words that combine in many ways, seven at most."""
    subject = rng.choice(sorted(FACTS))
    fact = rng.choice(FACTS[subject])
    manner = rng.choice(("", *MANNERS)) if len(fact.split()) < 5 else ""
    return " ".join(f"the {manner} {subject} {fact}".split())


def upper_case(rng: random.Random, split: Split) -> Made:
    text = _plain_sentence(rng)
    return {"text": text}, text.upper(), {"equals": text.upper()}


def quoted(rng: random.Random, split: Split) -> Made:
    text = _plain_sentence(rng)
    return {"text": text}, f'"{text}"', {"equals": f'"{text}"'}


def repeat(rng: random.Random, split: Split) -> Made:
    text, count = rng.choice(PHRASES), rng.choice((2, 3, 3, 4, 4, 5, 5, 6))
    answer = "\n".join([text] * count)
    fields = {"text": text, "n": rng.choice((str(count), NUMBER_WORDS[count]))}
    return fields, answer, {"equals": answer}


def repeat_upper(rng: random.Random, split: Split) -> Made:
    fields, answer, _ = repeat(rng, split)
    return fields, answer.upper(), {"equals": answer.upper()}


def _facts(rng: random.Random, subject: str, count: int) -> list[str]:
    """Facts about a subject in their fixed order, from any of them on."""
    facts = FACTS[subject]
    start = rng.randrange(len(facts))
    return [facts[(start + step) % len(facts)] for step in range(count)]


def no_commas(rng: random.Random, split: Split) -> Made:
    subject = rng.choice(sorted(FACTS))
    first, second = _facts(rng, subject, 2)
    answer = f"The {subject} {first} and {second}."
    constraints: dict[str, object] = {"no_commas": True, "mentions": subject, "sentences": 1}
    return (
        {"a_subject": article(subject), "subject": subject},
        answer,
        constraints | {"plain": True},
    )


def sentence_count(rng: random.Random, split: Split) -> Made:
    subject, count = rng.choice(sorted(FACTS)), rng.randint(2, 3)
    facts = _facts(rng, subject, count)
    answer = " ".join(_sentence(subject, fact) for fact in facts)
    fields = {"a_subject": article(subject), "n": rng.choice((str(count), NUMBER_WORDS[count]))}
    return fields, answer, {"sentences": count, "mentions": subject, "plain": True}


def start_word(rng: random.Random, split: Split) -> Made:
    subject, word = rng.choice(sorted(FACTS)), rng.choice(STARTERS)
    answer = f"{word} the {subject} {rng.choice(FACTS[subject])}."
    constraints: dict[str, object] = {"first_word": word, "mentions": subject, "sentences": 1}
    return {"a_subject": article(subject), "word": word}, answer, constraints | {"plain": True}


def end_word(rng: random.Random, split: Split) -> Made:
    subject, ending = rng.choice(sorted(FACTS)), rng.choice(sorted(ENDINGS))
    answer = f"The {subject} {rng.choice(FACTS[subject])} {ending}."
    word = ENDINGS[ending]
    constraints: dict[str, object] = {"last_word": word, "mentions": subject, "sentences": 1}
    return {"a_subject": article(subject), "word": word}, answer, constraints | {"plain": True}


def yes_no(rng: random.Random, split: Split) -> Made:
    topic = rng.choice(sorted(TOPICS))
    is_member = rng.random() < 0.5
    clear = [name for name in sorted(TOPICS) if name != topic and {topic, name} not in BLURRED]
    source = topic if is_member else rng.choice(clear)
    answer = "yes" if is_member else "no"
    item = rng.choice(TOPICS[source])
    noun = item if source == "colours" else article(item)
    question = f"Is {noun} {article(SINGULAR[topic])}?"
    return {"question": question}, answer, {"equals": answer}


KINDS: dict[str, Callable[[random.Random, Split], Made]] = {
    maker.__name__: maker
    for maker in (
        bullet_list,
        numbered_list,
        upper_list,
        semicolons,
        json_object,
        upper_case,
        quoted,
        repeat,
        repeat_upper,
        no_commas,
        sentence_count,
        start_word,
        end_word,
        yes_no,
    )
}


class Formats(Family):
    """Answers whose form is asked for exactly."""

    name = "formats"
    title = "Format following"
    benchmark = "IFEval"

    def draft(self, rng: random.Random, split: Split) -> Task:
        kind = rng.choice(sorted(KINDS))
        fields, answer, constraints = KINDS[kind](rng, split)
        phrasings = PHRASINGS[kind]
        prompt = phrase(rng, split, phrasings[:-2], phrasings[-2:]).format(**fields)
        return Task(self.name, kind, prompt, answer, json.dumps(constraints))

    def judge(self, task: Task, text: str) -> bool:
        return holds(text, json.loads(task.expected))
