"""The typed endpoints as tools, over MCP's own client. Needs gradio[mcp]."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from scripted_page import page_served

pytest.importorskip("mcp", reason='pip install "gradio[mcp]"')

from batch_page import BatchBackend, make_page
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from test_run_limits import eventually, num_runs

from app.handlers import Handlers
from app.serving.run_limits import FULL

pytestmark = pytest.mark.slow
T = TypeVar("T")
Place = tuple[str, Handlers, BatchBackend]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    handlers, backend = make_page(tmp_path, port=0, max_runs_per_address=3)
    with page_served(handlers) as url:
        yield f"{url}gradio_api/mcp/", handlers, backend


def with_client(address: str, use: Callable[[Any], Awaitable[T]], **headers: str) -> T:
    async def session() -> T:
        async with (
            streamablehttp_client(address, headers) as (read, write, _),
            ClientSession(read, write) as client,
        ):
            await client.initialize()
            return await use(client)

    return asyncio.run(session())


def test_tools_are_listed_and_give_json(place: Place) -> None:
    async def use(client: Any) -> tuple[set[str], list[Any]]:
        names = {tool.name for tool in (await client.list_tools()).tools}
        calls = [
            await client.call_tool("generate", {"prompt": "Say it.", "max_new_tokens": 9}),
            await client.call_tool("compare", {"prompt": "Say it.", "max_new_tokens": 9}),
            await client.call_tool("traces", {"prompt": "Say it.", "max_new_tokens": 9}),
            await client.call_tool("batch", {"prompts": ["Say it."], "max_new_tokens": 9}),
        ]
        return names, [json.loads(call.content[0].text) for call in calls]

    names, (item, race, lines, batch) = with_client(place[0], use)
    assert names == {"generate", "compare", "traces", "batch"}
    assert item["num_tokens"] == race["ar"]["num_tokens"] == 9
    assert race["speedup"] is None
    assert json.loads(lines[0])
    assert len(batch["results"]) == 1


def test_a_tool_asks_this_server_whatever_host_the_request_names(place: Place) -> None:
    """Else a caller could have the server call another one, and all later calls go there."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.setblocking(False)

        async def use(client: Any) -> Any:
            asked = {"prompt": "Say it.", "max_new_tokens": 9}
            return await client.call_tool("generate", asked, timedelta(seconds=60))

        named = f"127.0.0.1:{other.getsockname()[1]}"
        found = with_client(place[0], use, **{"x-forwarded-host": named, "x-gradio-server": named})
        assert json.loads(found.content[0].text)["num_tokens"] == 9
        with pytest.raises(BlockingIOError):
            other.accept()


@pytest.mark.parametrize("is_told", [False, True])
def test_refusals_are_sentences(place: Place, is_told: bool) -> None:
    """Of the endpoint, and of the run limits before it: three runs are going."""
    address, handlers, backend = place
    backend.forward_seconds = 0.2

    async def hear(*_: Any) -> None:
        """A caller who wants to be told of progress is served by other lines."""

    async def use(client: Any) -> tuple[Any, Any]:
        more = {"progress_callback": hear} if is_told else {}
        wrong = await client.call_tool("generate", {"prompt": "Say it.", "tau": 9}, **more)
        asked = {"prompt": "Say it.", "method": "ar", "max_new_tokens": 400}
        going = [asyncio.ensure_future(client.call_tool("generate", asked)) for _ in range(3)]
        await asyncio.to_thread(eventually, lambda: num_runs(handlers) == 3, 20)
        full = await client.call_tool("generate", asked, **more)
        for call in going:
            call.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        return wrong, full

    wrong, full = with_client(address, use)
    assert wrong.isError
    assert wrong.content[0].text.endswith("The threshold τ must be a number from 0 to 1.")
    assert full.isError
    assert full.content[0].text == FULL.format(3)


@pytest.mark.parametrize("is_told", [False, True])
def test_who_leaves_frees_the_place(place: Place, is_told: bool) -> None:
    address, handlers, backend = place
    backend.forward_seconds = 0.2

    async def hear(*_: Any) -> None:
        """As above."""

    async def use(client: Any) -> None:
        more = {"progress_callback": hear} if is_told else {}
        asked = {"prompt": "Say it.", "method": "ar", "max_new_tokens": 400}
        call = asyncio.ensure_future(client.call_tool("generate", asked, **more))
        assert await asyncio.to_thread(eventually, lambda: num_runs(handlers) == 1, 20)
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call

    with_client(address, use)
    assert eventually(lambda: num_runs(handlers) == 0, 10)  # the run itself takes 80 s
