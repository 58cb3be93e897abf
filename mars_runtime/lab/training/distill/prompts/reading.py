"""Requests about a given passage: summaries, questions, rewriting, extraction. Knows no files."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import cycle

from mars_runtime.lab.training.distill.prompts.base import Turns
from mars_runtime.lab.training.distill.prompts.texts import Question

SUMMARY = (
    "Summarize the following text.",
    "Summarize this passage in one sentence.",
    "Summarize this passage in two or three sentences.",
    "What is this text about?",
    "Write a short summary of the passage below.",
    "Give the main idea of the following passage.",
    "List the key points of this text.",
    "Write a title for this passage and a one-sentence summary.",
    "Who are the characters in this passage, and what do they do?",
    "What happens in this part of the story? Explain it to a child.",
    "Continue this story.",
    "Explain the mood of this passage.",
    "TL;DR",
)
REWRITING = (
    "Rewrite the following text to make it more formal.",
    "Rewrite this passage in simple modern English.",
    "Shorten this text to about half of its length.",
    "Correct the grammar and spelling of this text.",
    "Rewrite the passage in the present tense.",
    "Rewrite the passage in the past tense.",
    "Rewrite this text in the first person.",
    "Paraphrase the following paragraph.",
    "Make this text more concise and clear.",
    "Make this text more friendly.",
    "Rewrite this passage so that a ten-year-old understands it.",
    "Turn this passage into a dialogue.",
    "Turn this passage into bullet points.",
    "Translate the following text into French.",
    "Translate the following text into Spanish.",
    "Translate this passage into German.",
    "Edit this text. Keep its meaning, but improve its style.",
    "Rewrite the text as an e-mail to a friend.",
    "Repeat this text, but replace all names with other names.",
)
EXTRACTION = (
    "List all the people and characters mentioned in this text.",
    "Extract the characters, places and objects from the text as JSON.",
    "Extract every noun of the first sentence as a list.",
    "List the places mentioned in the passage.",
    "Make a JSON object with the keys characters, setting and events for this passage.",
    "List the verbs of this passage.",
    "Write down the events of this passage in order, as a numbered list.",
    "Quote the most important sentence of this passage.",
    "Find all adjectives in the text and list them.",
    "Make a table with two columns, character and action, for this passage.",
    "Which numbers occur in this text? List them.",
    "Give three keywords for this text.",
    "Copy every sentence of the passage in which somebody speaks.",
)
SLIPS = (
    (" the ", " teh "),
    (" and ", " adn "),
    (" was ", " were "),
    (" were ", " was "),
    (" their ", " there "),
    (" went ", " goed "),
    (" said ", " sayed "),
    ("ing ", "in "),
    (", ", " "),
)


def summaries(passages: Iterable[str], draw: random.Random) -> Iterator[Turns]:
    """One request for a summary or the like for each passage."""
    for passage in passages:
        yield (_joined(draw.choice(SUMMARY), passage, draw),)


def questions(found: Iterable[Question], draw: random.Random) -> Iterator[Turns]:
    """A question on each passage; some follow the answer up with a second one."""
    for item in found:
        first = _joined(item.question, item.passage, draw)
        if draw.random() < 0.15:
            yield (first, item.answer.capitalize() + ".", draw.choice(FOLLOW_UPS))
        else:
            yield (first,)


FOLLOW_UPS = (
    "How do you know?",
    "What happens next?",
    "Quote the sentence that says so.",
    "Explain your answer in more detail.",
    "Now summarize the passage.",
    "Why?",
)


def rewriting(passages: Iterable[str], draw: random.Random) -> Iterator[Turns]:
    """Rewriting and extraction, about two to one, on passages cut to a few sentences."""
    for passage in passages:
        request = draw.choice(REWRITING if draw.random() < 0.65 else EXTRACTION)
        text = first_sentences(passage, draw.choice((1, 2, 3, 4)))
        if "grammar" in request:
            text = with_slips(text, draw)
        yield (_joined(request, text, draw),)


def first_sentences(text: str, count: int) -> str:
    """The first sentences of a text, at least ten words of it."""
    end, words = 0, text.split()
    for index, word in enumerate(words, 1):
        if word.rstrip("\"'").endswith((".", "!", "?")):
            end += 1
            if end >= count and index >= 10:
                return " ".join(words[:index])
    return text


def with_slips(text: str, draw: random.Random) -> str:
    """The text with a few mistakes of grammar and spelling."""
    for right, wrong in draw.sample(SLIPS, 5):
        text = text.replace(right, wrong, 2)
    return text


def _joined(request: str, passage: str, draw: random.Random) -> str:
    """Request and passage in one of the orders people write them."""
    return draw.choice(
        ("{0}\n\n{1}", "{0}\n\n{1}", "{0} {1}", "{1}\n\n{0}", '{0}\n\n"{1}"')
    ).format(request, passage)


def alternate(*streams: Iterator[Turns]) -> Iterator[Turns]:
    """One of each in turn, until the first has run out."""
    for stream in cycle(streams):
        turns = next(stream, None)
        if turns is None:
            return
        yield turns
