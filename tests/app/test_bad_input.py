"""What is posted past the page: every bad value gets a sentence, and the next run works."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request

import pytest
from scripted_page import ScriptedBackend
from visitor import RUN, Visitor, assert_serves, post

BAD = [
    ("prompt", "x" * 8001, "Shorten the prompt"),
    ("tau", math.nan, "threshold"),
]


@pytest.fixture
def visitor(address: str, scripted_backend: ScriptedBackend) -> Visitor:
    scripted_backend.forward_seconds = 0.001
    return Visitor(address)


@pytest.mark.parametrize(("field", "value", "sentence"), BAD)
def test_a_bad_run_is_refused_in_a_sentence(
    visitor: Visitor, field: str, value: object, sentence: str
) -> None:
    status, text = visitor.run(**{field: value})
    assert status == 422
    (refused,) = (part for part in json.loads(text)["detail"] if not part["is_valid"])
    assert sentence.lower() in refused["message"].lower()
    assert len(refused["message"]) < 120


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"[" * 5000 + b"]" * 5000, b'{"data": "x", "fn_index": "y"}']
)
def test_broken_bodies_do_no_harm(visitor: Visitor, body: bytes) -> None:
    status, _ = post(visitor.address, "gradio_api/queue/join", body)
    assert 400 <= status < 500
    for data in ([], ["x"] * 40):  # a wrong number of values
        values = {"data": data, "fn_index": visitor.events[RUN], "session_hash": visitor.session}
        status, _ = post(visitor.address, "gradio_api/queue/join", json.dumps(values).encode())
        assert 400 <= status < 500
    assert_serves(visitor)


def test_the_queue_cannot_be_gone_round(visitor: Visitor) -> None:
    body = json.dumps({"data": ["hello"], "session_hash": visitor.session}).encode()
    assert post(visitor.address, "gradio_api/run/generate", body)[0] in (401, 403, 404)
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(visitor.address + "gradio_api/monitoring/summary", timeout=30)
