"""Prompts from untrusted files: every form is read, and every bad line is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.__main__ import main
from mars_runtime.review.prompts import (
    MAX_FAULTS,
    MAX_PROMPTS,
    Item,
    PromptError,
    as_jsonl,
    bundled,
    decoded,
    read_prompts,
)


def prompts(text: str, name: str = "") -> list[str]:
    return [item.prompt for item in read_prompts(text, name=name).items]


def test_text_is_a_prompt_a_line_or_paragraphs_between_blank_lines() -> None:
    assert prompts("one\r\ntwo\n") == ["one", "two"]
    assert prompts("first line\nsecond line\n\n \nother\n") == ["first line\nsecond line", "other"]
    assert prompts('["one", "two\\nlines"]', "x.json") == ["one", "two\nlines"]
    assert prompts('[{"prompt": "a"}]', "x.csv") == ["a"]


def test_a_csv_file_names_its_columns() -> None:
    text = 'prompt,id,category\n"Say ""hi"",\nplease",a,chat\nNext,,\n'
    first, second = read_prompts(text, name="x.csv").items
    assert first == Item("a", 'Say "hi",\nplease', category="chat")
    assert second == Item("2", "Next")


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
        ("[1]", "expected an object"),
        ("[" * 100_000, "it is nested too deeply"),
        ("{}", "'prompt' is missing"),
        ('{"prompt": "a", "promt": "b"}', "'promt' is not one of the keys id, prompt, system"),
        ('{"prompt": "\\ud800"}', "'prompt' contains an incomplete character"),
        ('{"prompt": "a", "id": "1"}', "the id '1' occurs twice"),
        ('{"prompt": "a", "turns": [["user", "b"]]}', "its last turn must be the assistant's"),
        ('{"prompt": "a", "task": {"family": "x"}}', "its task must have family"),
    ],
)
def test_a_bad_line_is_named_and_the_good_ones_go_on(line: str, reason: str) -> None:
    outcome = read_prompts(f'{{"prompt": "good"}}\n\n{line}\n{{"prompt": "too"}}', name="x.jsonl")
    assert [item.prompt for item in outcome.items] == ["good", "too"]
    [fault] = outcome.faults
    assert str(fault).startswith(f"Line 3: {reason}")


def test_a_set_has_at_most_five_hundred_prompts() -> None:
    outcome = read_prompts("\n".join(f"p{n}" for n in range(MAX_PROMPTS + 2)))
    assert len(outcome.items) == MAX_PROMPTS
    assert [str(fault) for fault in outcome.faults] == [
        "Line 501: a set has at most 500 prompts; the rest was skipped."
    ]


GOOD = [
    '{"prompt": "a", "id": "x", "turns": [["user", "q"], ["assistant", "r"]]}',
    "prompt,category\nWhat is this?,chat\n",
    "A line\n\nAnother block\nof two lines\n",
]
NOISE = ['"', "{", "]", ",", "\n", "\x00", "\ud83d", "é", "null", "1e999", "\\u0000", "\u2028"]


@given(
    st.sampled_from(GOOD),
    st.lists(st.tuples(st.integers(0, 99), st.sampled_from(NOISE), st.integers(0, 2)), max_size=12),
    st.sampled_from(["x.txt", "x.csv", "x.jsonl"]),
)
def test_any_noise_gets_a_sentence_or_is_read(text: str, noise: list[Any], name: str) -> None:
    for place, piece, num_replaced in noise:
        at = place % (len(text) + 1)
        text = text[:at] + piece + text[at + num_replaced :]
    try:
        outcome = read_prompts(text, name=name)
    except PromptError:  # raised with a sentence, as each form has a test of its own
        return
    lines = text.count("\n") + text.count("\r") + 1
    assert all(1 <= fault.line <= lines and fault.reason for fault in outcome.faults)
    for item in outcome.items:
        item.prompt.encode()  # no half of a character


ROWS = [{"prompt": "a, b", "category": "x"}, {"prompt": "c"}]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("prompt\tcategory\na, b\tx\nc\t\n", "x.tsv"),
        ('sep=;\r\n"prompt";"category"\r\n"a, b";"x"\r\n"c";\r\n', "x.csv"),
        ('\ufeffprompt,category\n"a, b",x\nc,\n', ""),
        ('prompt,category,,\n"a, b",x,,\nc\n,,,\n', "x.csv"),
        ("prompt;id;category\na, b;;x;;\nc\n", "x.csv"),
        (json.dumps(ROWS), ""),
        ("[\n" + ",\n".join(map(json.dumps, ROWS)) + "\n]\n", "x.json"),
        ("\n".join(json.dumps(row, indent=4) for row in ROWS), "x.jsonl"),
        ("\r\n".join(map(json.dumps, ROWS)), "x.txt"),
    ],
)
def test_tables_and_json_in_any_usual_form_hold_the_same_prompts(text: str, name: str) -> None:
    outcome = read_prompts(text, name=name)
    assert outcome.items == [Item("1", "a, b", category="x"), Item("2", "c")]
    assert not outcome.faults


ALPACA = [
    {"instruction": "Add them.", "input": "1, 2", "output": "3", "text": "Below is …"},
    {"instruction": "Say hi.", "input": "", "output": "Hi."},
]


def test_alpaca_keys_are_read_in_json_and_in_tables() -> None:
    wanted = [Item("1", "Add them.\n\n1, 2", reference="3"), Item("2", "Say hi.", reference="Hi.")]
    table = 'instruction,input,output\nAdd them.,"1, 2",3\nSay hi.,,Hi.\n'
    files = {"x.json": json.dumps(ALPACA), "x.jsonl": "\n".join(map(json.dumps, ALPACA))}
    for name, text in {**files, "x.csv": table, "": table}.items():
        assert read_prompts(text, name=name).items == wanted, name


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('prompt,id\n"a"b,x\nc,y\nd,z\n', [2]),
        ('prompt,id\n"two\nlines"x,1\nc,y\nd,z\n', [2]),
        ('\n\nprompt,id\n"a"b,x\nc,y\nd,z\n', [4]),
        ("prompt,id\n" + "a" * 200_000 + ",x\nc,y\nd,z\n", [2]),
    ],
)
def test_a_bad_row_of_a_table_does_not_lose_the_others(text: str, lines: list[int]) -> None:
    outcome = read_prompts(text, name="x.csv")
    assert [(item.prompt, item.id) for item in outcome.items] == [("c", "y"), ("d", "z")]
    assert [fault.line for fault in outcome.faults] == lines


@pytest.mark.parametrize("bad", ['{"prompt": }', '{"prompt": "a" "id": 1}', "{}", "nothing"])
@pytest.mark.parametrize("indent", ["  "])
def test_a_bad_element_of_an_array_does_not_lose_the_others(bad: str, indent: str) -> None:
    rows = ['{"prompt": "a"}', bad, '{\n    "prompt": "b"\n  }']
    outcome = read_prompts("[\n" + ",\n".join(indent + row for row in rows) + "\n]", name="x.json")
    assert [item.prompt for item in outcome.items] == ["a", "b"]
    assert [fault.line for fault in outcome.faults] == [3]


def test_an_array_that_was_cut_short_says_so() -> None:
    outcome = read_prompts('[\n{"prompt": "a"},\n', name="x.json")
    assert [item.prompt for item in outcome.items] == ["a"]
    assert "before the closing bracket" in str(outcome.faults[0])


@pytest.mark.parametrize(
    ("text", "name", "sentence"),
    [
        ("question\nwhat\n", "x.csv", "must name the columns"),
        ("question;answer\nx;y\n", "x.csv", r"x\.csv is a table.*'question;answer'\.$"),
        ("prompt,prompt\na,b\n", "x.csv", r"Two columns of x\.csv have the same name"),
        ("p\0r\0o\0m\0p\0t\0", "x.txt", r"x\.txt is not UTF-8 text"),
        ("prompt,id\na,1,b\n", "x.csv", "it has 3 columns, but the first line has 2"),
        ("%PDF-1.7\n1 0 obj\n", "x.txt", "is a PDF document. Save its prompts as plain text, CSV"),
        ("{\\rtf1\\ansi Hello}", "x.rtf", "is an RTF document"),
        ("PK\x03\x04\x14\0", "x.csv", "is a zip archive, as are .docx"),
        (" \n", "empty.txt", r"empty\.txt has no valid prompts"),
        ('[{"instruction": 3}]', "x.json", "'instruction' must be text"),
    ],
)
def test_a_file_of_another_form_is_named(text: str, name: str, sentence: str) -> None:
    with pytest.raises(PromptError, match=sentence):
        read_prompts(text, name=name)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le"])
def test_files_in_utf_8_and_in_utf_16_with_a_mark_are_decoded(encoding: str) -> None:
    mark = "\ufeff" if encoding in ("utf-16-le", "utf-16-be") else ""
    assert decoded((mark + "prompt\nné\n").encode(encoding)) == "prompt\nné\n"


def test_the_command_refuses_what_is_no_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes("prompt;id\nné;7\n".encode("latin-1"))
    assert main(["review", "make", str(file), "--methods", "ar", "lossless", "--out", "x"]) == 2
    assert capsys.readouterr().err == f"{file} is not UTF-8 text. Save it as UTF-8.\n"
    file.write_bytes(b"PK\x03\x04\xff\xfe")
    assert main(["review", "make", str(file), "--methods", "ar", "lossless", "--out", "x"]) == 2
    assert capsys.readouterr().err.startswith(f"{file} is a zip archive")


def test_a_file_that_is_wrong_everywhere_ends_soon() -> None:
    """Neither does the work grow with the square of the lines nor the list of faults with them."""
    texts = {
        "x.csv": "prompt,id\n" + '"\n' + 'x","\n' * 300_000,
        "x.json": '{"k":[1,\n' * 100_000,
        "y.json": '"k":1,\n' * 300_000,
        "x.jsonl": "no\n" * 300_000,
        "z.json": "[" * 1_000_000,
    }
    for name, text in texts.items():
        with pytest.raises(PromptError, match=f"{name} has no valid prompts"):
            read_prompts(text, name=name)
    good = '{"prompt": "good"}\n'
    outcome = read_prompts(good + "no\n" * 300_000, name="x.jsonl")
    assert len(outcome.faults) == MAX_FAULTS + 1
    assert "the rest was skipped" in str(outcome.faults[-1])
