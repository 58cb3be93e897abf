"""Texts that visitors import: one error message, soon, and no other address waits."""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import sample_traces as samples

from app.ui import imported_runs
from app.ui.imported_runs import read_import
from mars_runtime.settings import DecodeSettings
from tests.attack.attacked import JSON, OTHER, client_of
from tests.review.test_review_prompts import DAMAGED, is_sentence
from tests.review.test_sets import GOOD, PLACES, RAW
from tests.review.test_sets import VALUES as SET_VALUES
from tests.review.test_sets import changed as changed_set

MOST = 4_000_000
SCRIPT = samples.Script(samples.PROSE[:400], moves={3: DecodeSettings(tau=0.5, block_size=8)})
LINES = list(samples.run(SCRIPT).lines())
TEXT = "\n".join(LINES)
VALUES: list[Any] = [
    None, True, -1, 0, 1e308, 10**400, "", "x", "\ud83d", [], {}, [[]], {"a": 1}, "__proto__",
    "<img src=x onerror=alert(1)>", json.loads("[" * 300 + "]" * 300),
]  # fmt: skip


def changed(value: Any, rng: random.Random) -> Any:
    """The value with one place in it, at any depth, replaced or taken out."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        if rng.random() < 0.15:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: changed(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        if rng.random() < 0.15:
            return value[:at] + value[at + 1 :]
        return [*value[:at], changed(value[at], rng), *value[at + 1 :]]
    if isinstance(value, int) and rng.random() < 0.5:
        return value + rng.choice((-1, 1, 1000))
    return rng.choice(VALUES)


def mutated(lines: list[str], rng: random.Random) -> str:
    """Lines of JSON in which one thing is wrong: a value, a line or some characters."""
    at = rng.randrange(len(lines))
    new = json.dumps(changed(json.loads(lines[at]), rng))
    kinds = [[new], [new], [new], [], [lines[at], rng.choice(lines)], [lines[at]]]
    kind = rng.choice(kinds)
    text = "\n".join([*lines[:at], *kind, *lines[at + 1 :]])
    if kind is kinds[-1]:
        at = rng.randrange(len(text))
        odd = "".join(rng.choices('{}[]",:0\x00é\u2028', k=3))
        text = text[:at] + odd + text[at + rng.randrange(8) :]
    return text


def assert_sentence(sentence: str, text: str = "") -> None:
    assert sentence.strip() == sentence, text[:300]
    assert sentence[-1] == ".", sentence
    assert "\n" not in sentence
    assert len(sentence) < 300, sentence
    assert not any(word in sentence for word in ("Traceback", "0x", "<class")), sentence


def test_a_changed_trace_is_a_trace_or_a_sentence() -> None:
    rng, outcomes = random.Random(7), {"lines": 0, "error": 0}
    for _ in range(150):
        text = mutated(LINES, rng)
        actual = read_import(text, MOST)
        if "error" in actual:
            assert_sentence(actual["error"], text)
        else:  # what is kept is what would be written
            assert read_import("\n".join(actual["lines"]), MOST)["lines"] == actual["lines"]
        outcomes["error" if "error" in actual else "lines"] += 1
    assert min(outcomes.values()) > 0, outcomes


@pytest.mark.timed
@pytest.mark.parametrize("text", ["\n" * MOST, " \n" * (MOST // 2)], ids=["many", "spaced"])
def test_blank_lines_cost_nothing(text: str) -> None:
    began = time.monotonic()
    assert list(read_import(text, MOST)) == ["error"]
    padded = "\n".join(["\n" * 2000, *LINES, "\n" * 2000])
    assert read_import(padded, MOST)["lines"] == LINES
    assert time.monotonic() - began < 2.0


def test_reading_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imported_runs, "READ_SECONDS", 0.0)
    assert "longer than" in read_import(TEXT, MOST)["error"]


def test_what_comes_back_can_be_sent() -> None:
    """A lone surrogate is valid JSON and no valid text: the answer could not be encoded."""
    for text in ("\ud800", f"{TEXT}\n\udfff"):
        json.dumps(read_import(text, MOST), ensure_ascii=False).encode()


def test_an_address_leaves_places_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too much is refused, not enqueued."""
    gate, entered = threading.Event(), threading.Semaphore(0)

    def read(text: str) -> dict[str, Any]:
        entered.release()
        assert gate.wait(60)
        return {"lines": []}

    monkeypatch.setattr(imported_runs, "_read", read)
    with ThreadPoolExecutor() as pool:
        addresses = [*["many"] * imported_runs.MAX_OF_ONE, "one"]
        held = [pool.submit(read_import, TEXT, MOST, address) for address in addresses]
        assert all(entered.acquire(timeout=30) for _ in held)
        assert "error" in read_import(TEXT, MOST, "many")
        gate.set()
        assert all("lines" in future.result() for future in held)
        assert "lines" in read_import(TEXT, MOST, "many")


# Files that several clients post to Review at once, while another visitor runs something.

SETS = [
    json.dumps(changed_set(GOOD[at], path, value)).encode()
    for at, path in PLACES
    for value in SET_VALUES.values()
]
FILES = [
    *DAMAGED,
    *((f"{number}.jsonl", content) for number, content in enumerate([*RAW.values(), *SETS[::4]])),
    ("quotes.csv", b"prompt\n" + b'"a\n' * 100_000),
    ("columns.csv", b"prompt" + b"," * 490_000),
]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="127.0.0.2")
def test_damaged_files_are_refused_and_delay_no_other_visitor(url: str) -> None:
    parts = httpx.get(f"{url}config", timeout=60).json()["components"]
    (part,) = (each for each in parts if "prompts" in (each["props"].get("server_fns") or ()))

    def post(file: tuple[int, tuple[str, bytes]]) -> None:
        number, (name, content) = file
        address = f"127.0.2.{1 + number % 5}"
        data = json.dumps({"text": content.decode("latin-1"), "name": name})
        call = {"component_id": part["id"], "fn_name": "prompts", "session_hash": address}
        body = json.dumps({**call, "data": data}).encode()
        with client_of(url, address) as client:
            answer = client.post("gradio_api/component_server", content=body, headers=JSON)
        found = answer.json()
        if answer.status_code != 413:
            assert answer.status_code == 200, (name, found)
            assert "items" in found or is_sentence(found["error"]), (name, found)

    with ThreadPoolExecutor(5) as pool, client_of(url, OTHER) as neighbour:
        posting = pool.map(post, enumerate(FILES))
        ask = {"model": "scripted", "prompt": "Hi", "max_tokens": 8}
        for _ in range(3):
            assert neighbour.post("v1/completions", json=ask, timeout=60).is_success
        assert len(list(posting)) == len(FILES)
