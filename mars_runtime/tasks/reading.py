"""Reading: a short passage, a question about it, an answer that quotes it first.

Knows the story pieces of `reading_stories`; it judges real FairytaleQA tasks too, whose expected
data hold a gold answer in place of a key with rivals.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter

from .base import Family, Split, Task, phrase, word_list
from .reading_stories import make_story

FRAMES = (
    "{story}\n\n{question}",
    "Read this: {story}\n{question}",
    "{story}\nQuestion: {question}",
    "Read the story and answer. {story}\n{question}",
    "Story: {story}\nQuestion: {question}",
    "{question} Find the answer in this story.\n{story}",
    "Here is a short tale. {story}\n\n{question}",
)
HELD_OUT_FRAMES = (
    "{story}\nAnswer this question: {question}",
    "Passage: {story}\n{question}",
)
SKIPPED = frozenset(word_list("a an the of to in his her their its was were is are and that"))


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, without articles and the like."""
    words = re.findall(r"[a-z0-9]+", text.lower().replace("'s", ""))
    return [word for word in words if word not in SKIPPED]


def has_phrase(words: list[str], key: str) -> bool:
    """Say whether the words of the key stand in a row among `words`."""
    wanted = words_of(key)
    spans = range(len(words) - len(wanted) + 1)
    return bool(wanted) and any(words[i : i + len(wanted)] == wanted for i in spans)


def token_f1(found: list[str], gold: list[str]) -> float:
    """The balance of precision and recall over words, each counted as often as it comes."""
    common = sum((Counter(found) & Counter(gold)).values())
    return 2 * common / (len(found) + len(gold)) if common else 0.0


def conclusion(prompt: str, text: str) -> str:
    """What follows an opening quotation that stands word for word in the prompt.

    A text without one, or with nothing behind it, is taken whole.
    """
    opening = re.match(r'\s*The text says: "([^"]+)"', text)
    if opening is None or opening[1] not in prompt:
        return text
    return text[opening.end() :].strip() or text


class Reading(Family):
    """Little tales with a question."""

    name = "reading"
    title = "Reading"
    benchmark = "FairytaleQA"

    def draft(self, rng: random.Random, split: Split) -> Task:
        made = make_story(rng, split)
        frame = phrase(rng, split, FRAMES, HELD_OUT_FRAMES)
        prompt = frame.format(story=made.story, question=made.question)
        expected = json.dumps({"key": made.key, "rivals": list(made.rivals)})
        quoted = f'The text says: "{made.quote}" ' if made.quote else ""
        return Task(self.name, made.kind, prompt, quoted + made.answer, expected)

    def judge(self, task: Task, text: str) -> bool:
        expected = json.loads(task.expected)
        words = words_of(text if "gold" in expected else conclusion(task.prompt, text))
        if "gold" in expected:
            gold = words_of(expected["gold"])
            enough = token_f1(words, gold) >= 0.5
            return enough or (has_phrase(words, expected["gold"]) and len(words) <= 40)
        rivals = any(has_phrase(words, rival) for rival in expected["rivals"])
        return has_phrase(words, expected["key"]) and not rivals
