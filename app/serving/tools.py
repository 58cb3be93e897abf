"""The typed endpoints as tools of an MCP server, where ``gradio[mcp]`` is installed: what gradio's
own server leaves undone. Knows no endpoint.

A call whose caller leaves is ended, a result is JSON, a refusal the page's own sentence.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import httpx
from gradio import mcp

LOOK_SECONDS = 0.2


def has_tools() -> bool:
    """Whether the endpoints can be offered as tools: where gradio found all of the package that it
    was written for, which a plain ``pip install mcp`` does not bring."""
    return hasattr(Tools, "StreamableHTTPSessionManager")


def mend_tools() -> None:
    """From now on gradio serves tools by the class below."""
    mcp.GradioMCPServer = Tools  # type: ignore[misc]


class Tools(mcp.GradioMCPServer):
    """Gradio calls the page's own endpoints by HTTP, each call a job of its client."""

    async def _execute_tool_without_progress(self, job: Any) -> list[Any]:
        result = asyncio.wrap_future(job.future)
        result.add_done_callback(lambda it: it.cancelled() or it.exception())  # if nobody reads it
        with _ended_with_its_caller(job), _in_a_sentence():
            return [await asyncio.shield(result)]

    async def _execute_tool_with_progress(self, job: Any, progress_token: str | int) -> Any:
        with _ended_with_its_caller(job), _in_a_sentence():
            return await super()._execute_tool_with_progress(job, progress_token)

    def postprocess_output_data(self, data: Sequence[Any], root_url: str) -> list[Any]:
        """One text of JSON for each value; no endpoint gives files."""
        texts = (json.dumps(value, ensure_ascii=False) for value in data)
        return [self.types.TextContent(type="text", text=text) for text in texts]


@contextmanager
def _ended_with_its_caller(job: Any) -> Iterator[None]:
    """Cancelled where nobody reads on: in a thread, because it asks this server by HTTP."""
    try:
        yield
    except asyncio.CancelledError:
        threading.Thread(target=_cancel, args=[job], daemon=True).start()
        raise


def _cancel(job: Any) -> None:
    """Once it has given a value: gradio does not end what has given none yet."""
    while not job.done() and not job.outputs():
        time.sleep(LOOK_SECONDS)
    with suppress(httpx.HTTPError):  # the server has ended meanwhile
        job.cancel()


@contextmanager
def _in_a_sentence() -> Iterator[None]:
    """What was refused on the way to gradio says why, not which address refused it."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        raise RuntimeError(error.response.json()["detail"]) from None
