"""Streams that are queued stay open behind a proxy with a short read timeout."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from scripted_server import ASK, NAME, Oracle, eventually, said, serving

from mars_runtime.serving.requests import DEFAULT_CAPS, Caps
from mars_runtime.serving.server import bound

KEEP_ALIVE, READ_TIMEOUT = 0.2, 1.0  # seconds
BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": ASK},
    "completions": {"prompt": "Once"},
    "responses": {"input": "Once"},
}
CONFIG = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass {upstream}; proxy_http_version 1.1; proxy_read_timeout {timeout}ms; }}
  }}
}}
"""


@contextmanager
def behind_nginx(folder: Path, upstream: str, timeout: float) -> Iterator[str]:
    """Run nginx in front of ``upstream``. timeout: its read timeout in seconds."""
    nginx = shutil.which("nginx") or pytest.skip("nginx is not installed")
    with closing(bound("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    names = {"folder": folder, "port": port, "upstream": upstream, "timeout": int(timeout * 1000)}
    config = folder / "nginx.conf"
    config.write_text(CONFIG.format(**names))
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen([nginx, "-p", folder, "-c", config]) as process:
        try:
            assert eventually(lambda: process.poll() is not None or is_up(address))
            yield address
        finally:
            process.terminate()


def is_up(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health").status_code == 200
    except httpx.TransportError:
        return False


class Held(Oracle):
    """Generates nothing until it is released."""

    def __init__(self) -> None:
        super().__init__(forward_seconds=0.0)
        self.released = threading.Event()

    def decode(self, *args: Any) -> Any:
        assert self.released.wait(30)
        yield from super().decode(*args)


def body_of(path: str) -> dict[str, Any]:
    limit = "max_output_tokens" if path == "responses" else "max_tokens"
    return {"model": NAME, "stream": True, limit: 4, **BODIES[path]}


def test_streams_without_text_outlive_a_proxy_s_read_timeout(tmp_path: Path) -> None:
    """One of the streams is in prefill, the others are queued."""
    backend, caps = Held(), Caps(keep_alive_seconds=KEEP_ALIVE)
    with (
        serving(tmp_path, backend, max_runs=1, caps=caps) as place,
        behind_nginx(tmp_path, place.address, READ_TIMEOUT) as address,
        ThreadPoolExecutor() as pool,
    ):
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)

        def stream(path: str) -> str:
            return httpx.post(f"{address}/v1/{path}", json=body_of(path), timeout=60).text

        def stream_by_sdk() -> str:
            return said(client.chat.completions.create(**body_of("chat/completions"))).reasons[0]

        streams = {path: pool.submit(stream, path) for path in BODIES}
        reason = pool.submit(stream_by_sdk)
        assert eventually(lambda: place.num_open == 4)
        time.sleep(1.5 * READ_TIMEOUT)
        backend.released.set()
        for path, text in streams.items():
            assert text.result().count(": keep-alive\n\n") >= 3, path
            assert "[DONE]" in text.result() or "response.incomplete" in text.result(), path
        assert reason.result() == "length"


def test_comments_come_often_enough_by_default() -> None:
    """nginx waits 60 s by default, and some proxies only 4 s."""
    assert DEFAULT_CAPS.keep_alive_seconds < 4
