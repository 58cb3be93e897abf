"""``tools/measure_serving.py``: every server gets the same requests, as many at a time as there are
streams, and its figures are those of its streams."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator

import httpx
import pytest

from tools.measure_serving import MeasuredServer, answer, measure, table_of

MODEL = "mars-smollm2"
SERVERS = (
    MeasuredServer.parse("here=http://here/v1/?method=ar"),
    MeasuredServer.parse("other=http://other/v1"),
)


def event(content: str = "", usage: int | None = None) -> bytes:
    choices = [] if usage else [{"delta": {"content": content}}]
    chunk = {"choices": choices, "usage": usage and {"completion_tokens": usage}}
    return f"data: {json.dumps(chunk)}\n\n".encode()


class ScriptedServers(httpx.AsyncBaseTransport):
    """Servers that stream 7 tokens in two chunks, the other one more slowly."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, dict[str, object]]] = []
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/chat/completions"
        host = request.url.host
        self.bodies.append((host, json.loads(await request.aread())))
        return httpx.Response(200, content=self._stream(host))

    async def _stream(self, host: str) -> AsyncIterator[bytes]:
        self.running[host] += 1
        self.most[host] = max(self.most[host], self.running[host])
        yield event()
        await asyncio.sleep(0.01 if host == "here" else 0.05)
        yield event("some words")
        await asyncio.sleep(0.01)
        yield event(" and more")
        yield event(usage=7)
        yield b"data: [DONE]\n\n"
        self.running[host] -= 1


def test_an_answer_has_its_tokens_and_the_time_of_its_first_text():
    async def run() -> None:
        async with httpx.AsyncClient(transport=ScriptedServers()) as client:
            actual = await answer(client, SERVERS[1], MODEL, "Hello")
        assert actual.num_tokens == 7
        assert 0.05 <= actual.first_seconds <= actual.seconds - 0.01

    asyncio.run(run())


def test_servers_are_compared_on_the_same_requests():
    transport = ScriptedServers()

    async def run() -> None:
        async with httpx.AsyncClient(transport=transport) as client:
            cells = await measure(client, SERVERS, MODEL, [1, 3], 2, 2, 0)
        assert [(cell.server, cell.streams) for cell in cells] == [
            *[("other", 1), ("here", 1), ("other", 3), ("here", 3)]
        ]
        assert [cell.num_tokens for cell in cells] == [7 * 4, 7 * 4, 7 * 12, 7 * 12]
        slow, fast = (
            {cell.streams: cell for cell in cells if cell.server == name}
            for name in ("other", "here")
        )
        for streams in (1, 3):
            assert fast[streams].tokens_per_second > slow[streams].tokens_per_second
            assert fast[streams].first_ms < slow[streams].first_ms
        assert "| other | 1 |" in table_of(cells).to_markdown()

    asyncio.run(run())
    sent = {
        name: [body["messages"] for host, body in transport.bodies if host == name]
        for name in ("here", "other")
    }
    assert len(sent["here"]) == 3 * (2 + 6)
    assert sorted(map(str, sent["here"])) == sorted(map(str, sent["other"]))
    assert transport.most == {"here": 3, "other": 3}
    assert {body.get("method") for host, body in transport.bodies if host == "here"} == {"ar"}
    assert not any("method" in body for host, body in transport.bodies if host == "other")


@pytest.mark.parametrize("text", ["http://here/v1", "here", "=http://here/v1", "here=ftp://x"])
def test_a_server_without_name_or_address_is_rejected(text: str):
    with pytest.raises(ValueError, match="A server is NAME=http"):
        MeasuredServer.parse(text)
