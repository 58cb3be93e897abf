"""A client that posts what it likes, without the page."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx
from scripted_page import controls

from app.live.order import ORDERED, STEERED

SECONDS = 300  # for any answer
RUN = (len(ORDERED), 2)  # the first event with so many inputs and outputs


def post(address: str, path: str, body: bytes) -> tuple[int, str]:
    """Status and text of a POST."""
    headers = {"content-type": "application/json"}
    answer = httpx.post(address + path, content=body, headers=headers, timeout=SECONDS)
    return answer.status_code, answer.text


class Visitor:
    """A client with a session of its own."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.session = uuid.uuid4().hex
        dependencies = httpx.get(address + "config", timeout=SECONDS).json()["dependencies"]
        self.events: dict[tuple[int, int], int] = {}
        """The first event of the server by its numbers of inputs and outputs."""
        for event in dependencies:
            if event["backend_fn"]:
                size = len(event["inputs"]), len(event["outputs"])
                self.events.setdefault(size, event["id"])

    def knobs(self, **changes: Any) -> tuple[int, str]:
        """Post the knobs as the page does while text streams: without waiting in line."""
        values = controls(**changes)
        body = {
            "data": [values[name] for name in STEERED],
            "fn_index": self.events[(len(STEERED), 0)],
            "session_hash": self.session,
        }
        return post(self.address, "gradio_api/run/predict", json.dumps(body).encode())

    def join(self, data: list[Any]) -> tuple[int, str]:
        """Post to Run, or to a knob where there are as many values as knobs."""
        index = self.events[(len(STEERED), 0) if len(data) == len(STEERED) else RUN]
        body = {"data": data, "fn_index": index, "session_hash": self.session}
        return post(self.address, "gradio_api/queue/join", json.dumps(body).encode())

    def stream(self) -> list[dict[str, Any]]:
        """What the server sends to this session until it closes the stream."""
        url = f"{self.address}gradio_api/queue/data?session_hash={self.session}"
        lines = httpx.get(url, timeout=SECONDS).text.split("\n")
        return [json.loads(line[5:]) for line in lines if line.startswith("data:")]

    def run(self, **changes: Any) -> tuple[int, str]:
        """Post a run with changes."""
        values = controls(**{"max_new_tokens": 16, **changes})
        return self.join([values[name] for name in ORDERED])


def assert_serves(visitor: Visitor) -> None:
    status, _ = visitor.run()
    assert status == 200
    done = visitor.stream()[-2]
    assert done["msg"] == "process_completed"
    assert done["success"]
    assert '"reason":"limit"' in done["output"]["data"][0]
