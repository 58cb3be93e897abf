"""Files of prompts: what is accepted, and what gets one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.review.review_tab import MAX_CHARS, parse_prompts
from mars_runtime.review.prompts import MAX_BYTES, PromptError, bundled, prompts_of

ACCEPTED = {
    "lines.txt": "one\n\n  two  \n",
    "no ending": "one\ntwo",
    "windows.txt": "one\r\ntwo\r\n",
    "marked.csv": "\ufeffprompt\none\ntwo\n",
    "semicolon.csv": "id;prompt\n1;one\n2;two\n",
    "excel.csv": "sep=;\r\nprompt;id\r\none;1\r\ntwo;2\r\n",
    "padded.csv": "id,prompt,,\n1,one,,\n,,,\n2,two,,,,\n",
    "short.csv": "prompt,category,reference\none\ntwo,chat\n",
    "quoted.csv": 'Prompt,note\n"one","a, b"\ntwo,\n',
    "tabs.tsv": "prompt\tid\none\t1\ntwo\t2\n",
    "lines.jsonl": '{"prompt": "one", "id": 1}\n\n{"prompt": "two", "other": [1]}\n',
    "chat.jsonl": '{"messages": [{"role": "user", "content": "one"}]}\n{"prompt": "two"}\n',
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(ACCEPTED[name].encode())
    assert [item.prompt for item in prompts_of(str(path))] == ["one", "two"]


def test_utf_16_with_a_mark_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "notepad.txt"
    path.write_bytes("öne\ntwo".encode("utf-16"))
    assert [item.prompt for item in prompts_of(str(path))] == ["öne", "two"]


def test_messages_become_system_turns_and_prompt(tmp_path: Path) -> None:
    said = [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello"), ("user", "Bye")]
    path = tmp_path / "chat.jsonl"
    messages = [{"role": role, "content": text} for role, text in said]
    path.write_text(json.dumps({"messages": messages}), "utf-8")
    (item,) = prompts_of(str(path))
    assert (item.system, item.prompt) == ("Be brief.", "Bye")
    assert item.turns == (("user", "Hi"), ("assistant", "Hello"))
    assert item.before == said[:-1]


def test_the_study_has_100_prompts_of_which_20_are_checked() -> None:
    items = bundled("study")
    assert (len(items), sum(item.task is not None for item in items)) == (100, 20)


CONTENTS = {
    "html": b"<!DOCTYPE html>\n<html><body>prompt,id</body></html>",
    "html without a type": b"\n<html><head>",
    "xml": b"<?xml version='1.0'?><a/>",
    "nul": b"prompt\na\0b\n",
    "all nul": bytes(1000),
    "cp1252": "prompt\nIch möchte\n".encode("cp1252"),
    "utf-16 without a mark": "prompt\nHello\n".encode("utf-16-le"),
    "utf-16 cut": "prompt\nHello\n".encode("utf-16")[:-1],
    "latin euro": b"prompt\n\x80 5\n",
    "xlsx": b"PK\x03\x04" + bytes(range(256)),
    "xls": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
    "pdf": b"%PDF-1.7\nprompt",
    "rtf": b"{\\rtf1 prompt}",
    "png": b"\x89PNG\r\n\x1a\n",
    "gzip": b"\x1f\x8b\x08\0",
    "empty": b"",
    "blank": b"\n \n\t\n",
    "mark only": b"\xef\xbb\xbf",
    "long line": b"prompt\n" + b"x" * 20_000_000,
    "long prompt": b"prompt\n" + b"x" * 9000,
    "many": b"prompt\n" + b"a\n" * 10_001,
    "large": b"a\n" * (MAX_BYTES // 2 + 1),
}
ENDINGS = ("txt", "csv", "tsv", "jsonl")
DEEP = "[" * 10_000 + "]" * 10_000
BY_ENDING = {
    "csv": [
        "id,text\n1,one\n", "prompt,prompt\na,b\n", 'prompt\n"open', "prompt\na,b\n", "a\nb\n",
        "id,prompt\n1,a\n1,b\n", "id,prompt\n1,\n", 'prompt\n"a"b\n', ",,,\n1,2,3\n", "prompt\n",
        'prompt\n"' + "x\n" * 100_000, "prompt,turns\na,b,c\n",
    ],
    "tsv": ["id\ttext\n1\tone\n", "prompt\na\tb\n", "id\tprompt\n1\ta\n1\tb\n", 'prompt\n"open'],
    "jsonl": [
        DEEP, '{"prompt": ' + DEEP + "}", '{"a":' * 10_000 + "1" + "}" * 10_000, "[", "[]", "1",
        "null", '"text"', '["a"]', "{}", '{"prompt": 1}', '{"prompt": null}', '{"prompt": ""}',
        '{"prompt": [1]}', '{"prompt": "\\ud800"}', '{"prompt": "a\\u0000"}', '{"prompt": "a"',
        '{"id": 1, "prompt": "a"}\n{"id": "1", "prompt": "b"}', '{"prompt": "a", "id": []}',
        '{"prompt": "a", "id": ""}', '{"prompt": "a", "id": ' + "9" * 5000 + "}", "NaN",
        '{"prompt": "a", "turns": 1}', '{"prompt": "a", "turns": [["user"]]}',
        '{"prompt": "a", "turns": [["assistant", "b"], ["user", "c"]]}', '{"messages": []}',
        '{"prompt": "a", "turns": [["user", "b"]]}', '{"messages": 1}', '{"messages": [1]}',
        '{"messages": [{"role": "assistant", "content": "a"}]}',
        '{"messages": [{"role": "user", "content": 1}]}',
        '{"prompt": "a", "system": 1}', '{"prompt": "a"}\n{"prompt":', "{'prompt': 'a'}",
        '{"prompt": "a", "turns": ' + json.dumps([["user", "a"], ["assistant", "b"]] * 11) + "}",
    ],
}  # fmt: skip


DAMAGED = [
    *((f"{kind}: a.{ending}", content) for kind, content in CONTENTS.items() for ending in ENDINGS),
    *(
        (f"{ending}: {n}.{ending}", text.encode())
        for ending, texts in BY_ENDING.items()
        for n, text in enumerate(texts)
    ),
]


def is_sentence(text: str) -> bool:
    """Whether a message is one short line that ends with a full stop."""
    return text.endswith(".") and "\n" not in text and len(text) < 400 and "Traceback" not in text


@pytest.mark.parametrize("kind", [*CONTENTS, *BY_ENDING])
def test_damaged(tmp_path: Path, kind: str) -> None:
    for name, content in DAMAGED:
        if name.startswith(f"{kind}:"):
            path = tmp_path / name.partition(": ")[2]
            path.write_bytes(content)
            with pytest.raises(PromptError) as refused:
                prompts_of(str(path))
            assert is_sentence(str(refused.value)), (name, str(refused.value))


@pytest.mark.parametrize("posted", [None, 1, "", "{", "[]", "{}", '{"text": 1, "name": ""}', DEEP])
def test_what_is_posted_is_prompts_or_one_sentence(posted: object) -> None:
    assert is_sentence(parse_prompts(posted)["error"])


def test_the_page_parses_prompts() -> None:
    posted = json.dumps({"text": "id,prompt\na,One\n", "name": "a.csv"})
    assert parse_prompts(posted) == {"items": [{"id": "a", "prompt": "One", "system": ""}]}
    for text in ("x" * (MAX_CHARS + 1), "a\0"):
        assert is_sentence(parse_prompts(json.dumps({"text": text, "name": "a"}))["error"])
