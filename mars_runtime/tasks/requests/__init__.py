"""Open requests of the kinds that a chat model gets: held-out prompts without a checker.

Written for this repository alone and never trained on. Each kind begins with prompts that were
written out one by one; further ones come from frames and from passages of our own. Knows no model.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from mars_runtime.tasks.base import Task
from mars_runtime.tasks.requests import open_questions, programs, sums
from mars_runtime.tasks.requests.notes import NOTES
from mars_runtime.tasks.requests.passages import PASSAGES

KINDS = ("chat", "maths", "code", "summary", "rewriting")

SUMMARY_FRAMES = (
    "Summarize this text in two sentences:\n\n{text}",
    "{text}\n\nWhat are the main points of this text?",
    "Give me the gist of the following in plain words.\n\n{text}",
    "Read this and write a headline with one sentence below it.\n\n{text}",
    "Sum up the text below as three short bullet points.\n\n{text}",
    "{text}\n\nTell me what this is about, in at most fifty words.",
)
REWRITING_FRAMES = (
    "Rewrite this so that it is polite and formal:\n\n{text}",
    "List every number in the following text and say what it stands for.\n\n{text}",
    "Correct the spelling and grammar, and change nothing else:\n\n{text}",
    "Rewrite the text below in short, simple sentences.\n\n{text}",
    "Who or what is named in this text? Answer with a list.\n\n{text}",
    "Turn this into a message of one paragraph to a friend:\n\n{text}",
)
MANY_SUMS = 600
"""Exercises that are drawn; those that fall alike are kept once."""


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
    if kind == "chat":
        return list(open_questions.WRITTEN), open_questions.further()
    if kind == "maths":
        return list(sums.WRITTEN), sums.further(rng, MANY_SUMS)
    if kind == "code":
        return list(programs.WRITTEN), programs.further()
    if kind == "summary":
        return list(_framed(PASSAGES, SUMMARY_FRAMES, 1)), list(_framed(PASSAGES, SUMMARY_FRAMES))
    return list(_framed(NOTES, REWRITING_FRAMES, 1)), list(_framed(NOTES, REWRITING_FRAMES))


def _framed(
    texts: Sequence[str], frames: Sequence[str], num_frames: int | None = None
) -> Iterator[str]:
    """Every text in ``num_frames`` of the frames, its own first; all of them by default."""
    for index, text in enumerate(texts):
        for step in range(len(frames) if num_frames is None else num_frames):
            yield frames[(index + step) % len(frames)].format(text=text)
