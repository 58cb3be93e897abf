"""Streams that are queued or in prefill send comments, so that no proxy closes them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from scripted_server import ASK, NAME, Oracle, eventually, serving

from mars_runtime.serving.requests import DEFAULT_CAPS, Caps

BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": ASK, "max_tokens": 4},
    "responses": {"input": "Once", "max_output_tokens": 4},
}


class Held(Oracle):
    """Generates nothing until it is released."""

    def __init__(self) -> None:
        super().__init__(forward_seconds=0.0)
        self.released = threading.Event()

    def decode(self, *args: Any) -> Any:
        assert self.released.wait(30)
        yield from super().decode(*args)


def test_streams_without_text_send_comments(tmp_path: Path) -> None:
    """nginx waits 60 s by default, and some proxies only 4 s."""
    assert DEFAULT_CAPS.keep_alive_seconds < 4
    backend, caps = Held(), Caps(keep_alive_seconds=0.05)
    with serving(tmp_path, backend, max_runs=1, caps=caps) as place, ThreadPoolExecutor() as pool:

        def read(path: str) -> str:
            body, text = {"model": NAME, "stream": True, **BODIES[path]}, ""
            with place.http.stream("POST", f"/v1/{path}", json=body) as stream:
                for part in stream.iter_text():
                    text += part
                    heard[path] = text.count(": keep-alive\n\n")
            return text

        heard = dict.fromkeys(BODIES, 0)
        streams = [pool.submit(read, path) for path in BODIES]
        assert eventually(lambda: min(heard.values()) >= 3)
        backend.released.set()
        chat, response = (stream.result() for stream in streams)
    assert chat.endswith("data: [DONE]\n\n")
    assert "response.incomplete" in response
