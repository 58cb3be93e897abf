"""Damaged files that several clients post to Review at once: each gets prompts or a sentence, and
a run of another visitor is answered meanwhile.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.attack.attacked import JSON, OTHER, client_of
from tests.review.test_review_prompts import DAMAGED, is_sentence
from tests.review.test_sets import GOOD, PLACES, RAW, VALUES, changed

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="127.0.0.2")

SETS = [
    json.dumps(changed(GOOD[at], path, value)).encode()
    for at, path in PLACES
    for value in VALUES.values()
]
FILES = [
    *DAMAGED,
    *((f"{number}.jsonl", content) for number, content in enumerate([*RAW.values(), *SETS[::4]])),
    ("quotes.csv", b"prompt\n" + b'"a\n' * 100_000),
    ("columns.csv", b"prompt" + b"," * 490_000),
]


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
            assert neighbour.post("v1/completions", json=ask, timeout=10).is_success
        assert len(list(posting)) == len(FILES)
