"""Damaged files that several clients post to Review: each gets prompts or one sentence, and a run
of another visitor takes about as long as without them.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import httpx
import pytest

from tests.attack.attacked import JSON, OTHER, client_of
from tests.attack.test_farewell import started
from tests.review.test_review_prompts import DAMAGED, is_sentence
from tests.review.test_sets import GOOD, PLACES, RAW, VALUES, changed

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="127.0.0.2")

ADDRESSES = [f"127.0.2.{number}" for number in range(1, 6)]
NUM_TOKENS, FACTOR, MAX_SECONDS = 60, 6.0, 120.0
PLACES_AND_VALUES = [(at, path, VALUES[value]) for at, path in PLACES for value in VALUES]
SETS = [
    json.dumps(changed(GOOD[at], path, value)).encode() for at, path, value in PLACES_AND_VALUES
]
FILES = [
    *DAMAGED,
    *((f"{number}.jsonl", content) for number, content in enumerate([*RAW.values(), *SETS])),
    ("quotes.csv", b"prompt\n" + b'"a\n' * 100_000),
    ("columns.csv", b"prompt" + b"," * 490_000),
]


def seconds_of_run(url: str) -> float:
    """Return how long a completion of another address takes."""
    posted = {"model": "scripted", "method": "ar", "prompt": "Hi", "max_tokens": NUM_TOKENS}
    with client_of(url, OTHER) as client:
        began = time.monotonic()
        answer = client.post("v1/completions", json=posted)
    assert answer.json()["usage"]["completion_tokens"] == NUM_TOKENS
    return time.monotonic() - began


def post(url: str, component: int, address: str, files: list[tuple[str, bytes]]) -> int:
    """Post files one after the other, and check each answer."""
    with client_of(url, address) as client:
        for name, content in files:
            data = json.dumps({"text": content.decode("latin-1"), "name": name})
            call = {"component_id": component, "fn_name": "prompts", "session_hash": address}
            body = json.dumps({**call, "data": data}).encode()
            answer = client.post("gradio_api/component_server", content=body, headers=JSON)
            found = answer.json()
            if answer.status_code != 413:
                assert answer.status_code == 200, (name, found)
                assert "items" in found or is_sentence(found["error"]), (name, found)
    return len(files)


def test_damaged_files_do_not_slow_the_run_of_another_visitor(tmp_path: Path) -> None:
    with ThreadPoolExecutor(len(ADDRESSES)) as pool, started(tmp_path) as (_, url):
        parts = httpx.get(f"{url}/config", timeout=60).json()["components"]
        (part,) = (each for each in parts if "prompts" in (each["props"].get("server_fns") or ()))
        seconds_of_run(url)
        quiet = max(seconds_of_run(url) for _ in range(3))
        shares = [FILES[i :: len(ADDRESSES)] for i in range(len(ADDRESSES))]
        posting = [
            pool.submit(post, url, part["id"], address, share)
            for address, share in zip(ADDRESSES, shares, strict=True)
        ]
        during: list[float] = []
        while not all(future.done() for future in posting):
            during.append(seconds_of_run(url))
            assert sum(during) < MAX_SECONDS
        assert sum(future.result() for future in posting) == len(FILES)
        assert median(during) <= FACTOR * quiet
