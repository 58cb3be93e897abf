"""Prompts from files of strangers: every form read, every bad line named, whatever is in it."""

from __future__ import annotations

import json
import random

import pytest

from mars_runtime.review.prompts import (
    MAX_PROMPTS,
    Item,
    PromptError,
    Prompts,
    as_jsonl,
    bundled,
    read_prompts,
)


def prompts(text: str, name: str = "") -> list[str]:
    return [item.prompt for item in read_prompts(text, name=name).items]


def test_text_is_a_prompt_a_line_or_paragraphs_between_blank_lines() -> None:
    assert prompts("one\r\ntwo\n") == ["one", "two"]
    assert prompts("first line\nsecond line\n\n \nother\n") == ["first line\nsecond line", "other"]


def test_a_csv_file_names_its_columns() -> None:
    text = 'prompt,id,category\n"Say ""hi"",\nplease",a,chat\nNext,,\n'
    found = read_prompts(text, name="x.csv").items
    assert found[0] == Item("a", 'Say "hi",\nplease', category="chat")
    assert found[1] == Item("2", "Next")
    with pytest.raises(PromptError, match="names its columns"):
        read_prompts("question\nwhat\n", name="x.csv")


def test_json_lines_bring_everything_and_come_back_as_they_were() -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    line = {"prompt": "c", "id": 7, "system": "s", "reference": "r", "turns": turns}
    [item] = read_prompts(json.dumps(line), name="x.jsonl").items
    assert item == Item("7", "c", "s", "", "r", (("user", "a"), ("assistant", "b")))
    assert item.before == [("system", "s"), ("user", "a"), ("assistant", "b")]
    for name in ("study", "requests"):
        assert read_prompts(as_jsonl(bundled(name)), name="x.jsonl").items == bundled(name)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "it is not valid JSON"),
        ("[1]", "an object is expected"),
        ("[" * 100_000, "it is nested too deeply"),
        ("{}", "'prompt' is missing"),
        ('{"prompt": 1}', "'prompt' must be a text"),
        ('{"prompt": " "}', "its prompt is empty"),
        ('{"prompt": "a", "promt": "b"}', "'promt' is none of id, prompt, system"),
        ('{"prompt": "\\ud800"}', "'prompt' holds half of a character"),
        ('{"prompt": "a", "category": "%s"}' % ("x" * 61), "'category' is longer than 60"),
        ('{"prompt": "a", "id": "1"}', "the id '1' is there already"),
        (
            '{"prompt": "a", "turns": [["assistant", "b"]]}',
            "its turns must be by user and assistant",
        ),
        ('{"prompt": "a", "turns": [["user", "b"]]}', "its last turn must be the assistant's"),
        ('{"prompt": "a", "task": {"family": "x"}}', "its task must have family"),
    ],
)
def test_a_bad_line_is_named_and_the_good_ones_go_on(line: str, reason: str) -> None:
    found = read_prompts(f'{{"prompt": "good"}}\n\n{line}\n{{"prompt": "too"}}', name="x.jsonl")
    assert [item.prompt for item in found.items] == ["good", "too"]
    [fault] = found.faults
    assert str(fault).startswith(f"Line 3: {reason}")


def test_a_set_has_at_most_five_hundred_prompts() -> None:
    found = read_prompts("\n".join(f"p{n}" for n in range(MAX_PROMPTS + 2)))
    assert len(found.items) == MAX_PROMPTS
    assert [fault.line for fault in found.faults] == [501]
    with pytest.raises(PromptError, match=r"There is no prompt in empty\.txt"):
        read_prompts(" \n", name="empty.txt")


GOOD = [
    '{"prompt": "a", "id": "x", "turns": [["user", "q"], ["assistant", "r"]]}',
    "prompt,category\nWhat is this?,chat\n",
    "A line\n\nAnother block\nof two lines\n",
]
NOISE = ['"', "{", "]", ",", "\n", "\x00", "\ud83d", "é", "null", "1e999", "\\u0000", "\u2028"]


def test_what_nobody_would_write_gets_a_sentence_or_is_read() -> None:
    for seed in range(300):
        text, name = noisy(random.Random(seed))
        sentence = "Read."
        try:
            found = read_prompts(text, name=name)
        except PromptError as error:
            sentence = str(error)
        else:
            check(text, found)
        assert sentence.endswith("."), seed


def noisy(rng: random.Random) -> tuple[str, str]:
    """A good text with noise in it, and the name of a file."""
    text = rng.choice(GOOD)
    for _ in range(rng.randrange(1, 12)):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(NOISE) * rng.randrange(1, 3) + text[at + rng.randrange(3) :]
    return text, rng.choice(["x.txt", "x.csv", "x.jsonl"])


def check(text: str, found: Prompts) -> None:
    lines = text.count("\n") + text.count("\r") + 1
    for fault in found.faults:
        assert 1 <= fault.line <= lines
        assert fault.reason
    for item in found.items:
        item.prompt.encode()  # no half of a character
