"""Load test for locust with visitors of the page and API clients; see docs/api.md.

MODEL is the model that the API clients request. If MARS_API_KEY is set, the clients send it as
their key.
"""

from __future__ import annotations

import json
import os
import random
import time
from typing import Any

from locust import HttpUser, between, events, task

MODEL = os.environ.get("MODEL", "mars-smollm2")
PROMPTS = ["Why is the sky blue?", "Write a note to a neighbour.", "Sort these numbers: 7, 3, 5"]


class Program(HttpUser):
    """API client that mostly streams; also reports the time to the first token."""

    weight = 3
    wait_time = between(0.5, 2)

    def on_start(self) -> None:
        """Send the key with every request."""
        self.client.headers["authorization"] = f"Bearer {os.environ.get('MARS_API_KEY', 'none')}"

    @task(3)
    def stream(self) -> None:
        """Request a streamed answer."""
        began = time.perf_counter()
        first = None
        body = {**self.body(), "stream": True}
        with self.client.post(
            "/v1/chat/completions", json=body, stream=True, name="stream", catch_response=True
        ) as answer:
            if answer.status_code == 429:
                answer.success()  # rejected with retry-after, as intended
                return
            for line in answer.iter_lines():
                if first is None and b'"content":"' in line and b'"content":""' not in line:
                    first = time.perf_counter() - began
        if first is not None:
            events.request.fire(
                request_type="SSE", name="first token", response_time=1000 * first,
                response_length=0, exception=None, context={},
            )  # fmt: skip

    @task
    def whole(self) -> None:
        """Request an answer without streaming."""
        with self.client.post(
            "/v1/chat/completions", json=self.body(), name="whole", catch_response=True
        ) as answer:
            if answer.status_code == 429:
                answer.success()

    def body(self) -> dict[str, Any]:
        """Return a request body."""
        content = random.choice(PROMPTS)
        return {
            "model": MODEL,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": random.choice([16, 48]),
        }


class Visitor(HttpUser):
    """Opens the page and runs a prompt through its endpoint. Needs a running ``python app.py``."""

    weight = 1
    wait_time = between(1, 4)

    @task
    def play(self) -> None:
        """Run a prompt and follow it to its end."""
        self.client.get("/", name="page")
        data = [random.choice(PROMPTS), "mars", 0.0, "auto", True, "every", True, "probability", 32]
        posted = self.client.post(
            "/gradio_api/call/generate", data=json.dumps({"data": [*data, 0.0, 0, ""]}),
            headers={"content-type": "application/json"}, name="generate",
        )  # fmt: skip
        if not posted.ok:
            return
        path = f"/gradio_api/call/generate/{posted.json()['event_id']}"
        with self.client.get(path, name="generate (stream)", catch_response=True) as stream:
            if "event: complete" not in stream.text:
                stream.failure("the run did not come to its end")
