"""The line of Review's work: shared out by address, bounded, dropped when its client leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from app.review import line as lines
from app.review.line import Line
from mars_runtime.review import budget
from mars_runtime.review.budget import BudgetError
from mars_runtime.serving.errors import ApiError


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end in another thread: the browser of other tests may hold this one's loop."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()


async def stays() -> Any:
    """A client that waits for its answer."""
    await asyncio.sleep(3600)


def test_an_address_that_fills_its_line_delays_no_other() -> None:
    held, begun = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        held.wait(60)

    async def attack() -> None:
        line = Line()
        tasks = [asyncio.ensure_future(line.done(hold, "many", stays))]
        await asyncio.sleep(0)
        await asyncio.to_thread(begun.wait, 30)
        for _ in range(lines.MAX_OF_ONE):
            tasks.append(asyncio.ensure_future(line.done(hold, "many", stays)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(ApiError, match="your address") as refused:
            await line.done(held.wait, "many", stays)
        assert (refused.value.status, refused.value.retry_after) == (429, 1)
        assert await asyncio.wait_for(line.done(lambda: "served", "one", stays), 30) == "served"
        held.set()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(attack())


def test_work_ends_when_its_client_leaves() -> None:
    ended, begun = threading.Event(), threading.Event()

    def endless() -> None:
        begun.set()
        try:
            while True:
                budget.check()
        finally:
            ended.set()

    async def leaves() -> dict[str, str]:
        await asyncio.to_thread(begun.wait, 30)
        return {"type": "http.disconnect"}

    async def ask() -> None:
        with pytest.raises(ClientDisconnect):
            await Line().done(endless, "one", leaves)

    run(ask())
    assert ended.wait(30)


def test_work_that_waits_is_dropped_when_its_client_leaves() -> None:
    held, done = threading.Event(), list[str]()

    async def leaves() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def ask() -> None:
        line = Line()
        first = asyncio.ensure_future(line.done(held.wait, "one", stays))
        await asyncio.sleep(0.1)
        with pytest.raises(ClientDisconnect):
            await line.done(lambda: done.append("left"), "one", leaves)
        held.set()
        await first
        await line.done(lambda: done.append("stayed"), "one", stays)

    run(ask())
    assert done == ["stayed"]


def test_no_work_takes_longer_than_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_SECONDS", 0.05)

    def endless() -> None:
        while True:
            budget.check()

    async def ask() -> None:
        with pytest.raises(BudgetError, match=r"longer than 0\.05 seconds"):
            await Line().done(endless, "one", stays)

    run(ask())
