"""Compares servers of the same model under a constant number of streams.

Start the servers, then run ``python tools/measure_serving.py NAME=ADDRESS ...``. ADDRESS may end in
fields of the request, such as ``http://127.0.0.1:8000/v1?method=ar``. Each stream sends one
held-out request after the other to ``/chat/completions``, greedy and streamed. The servers take
turns, with the same requests. All of them stay loaded and share the machine with this client.
Prints a table and writes JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from mars_runtime import tasks  # noqa: E402
from mars_runtime.lab.tables import Table  # noqa: E402
from mars_runtime.model.registry import registry  # noqa: E402
from mars_runtime.outputs import path_of, write_text  # noqa: E402
from mars_runtime.provenance import provenance, shipped  # noqa: E402

MAX_TOKENS = 64
TIMEOUT = 120.0


@dataclass(frozen=True, slots=True)
class MeasuredServer:
    """A server to measure. address: the URL of its ``/v1``. fields: fields to add to each
    request.
    """

    name: str
    address: str
    fields: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> MeasuredServer:
        """Parse ``NAME=ADDRESS?FIELD=VALUE``. Raises ValueError."""
        name, _, rest = text.partition("=")
        address, _, query = rest.partition("?")
        if not name or not address.startswith("http"):
            raise ValueError(f"A server is NAME=http://HOST:PORT/v1, got {text!r}.")
        return cls(name, address.rstrip("/"), dict(parse_qsl(query)))


@dataclass(frozen=True, slots=True)
class MeasuredAnswer:
    """An answer: its number of tokens, and the seconds to its first text and to its end."""

    num_tokens: int
    first_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True)
class ServingCell:
    """Figures of one server at one number of streams: medians over the rounds and requests."""

    server: str
    streams: int
    tokens_per_second: float
    first_ms: float
    num_tokens: int


async def answer(
    client: httpx.AsyncClient, server: MeasuredServer, model: str, request: str
) -> MeasuredAnswer:
    """Stream an answer. Raises httpx.HTTPError."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [
            {"role": "system", "content": registry()[model].system},
            {"role": "user", "content": request},
        ],
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **server.fields,
    }
    start = time.perf_counter()
    first, num_tokens = None, 0
    async with client.stream("POST", f"{server.address}/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line.removeprefix("data: "))
            if any(choice["delta"].get("content") for choice in chunk["choices"]):
                first = first or time.perf_counter() - start
            num_tokens = (chunk.get("usage") or {}).get("completion_tokens", num_tokens)
    seconds = time.perf_counter() - start
    return MeasuredAnswer(num_tokens, first or seconds, seconds)


async def play(
    client: httpx.AsyncClient,
    server: MeasuredServer,
    model: str,
    requests: Sequence[str],
    streams: int,
) -> tuple[list[MeasuredAnswer], float]:
    """Send all requests with ``streams`` of them at a time. Return the answers and the total
    seconds.
    """
    waiting = iter(requests)

    async def stream() -> list[MeasuredAnswer]:
        return [await answer(client, server, model, request) for request in waiting]

    start = time.perf_counter()
    answers = await asyncio.gather(*(stream() for _ in range(streams)))
    return [one for own in answers for one in own], time.perf_counter() - start


async def measure(
    client: httpx.AsyncClient,
    servers: Sequence[MeasuredServer],
    model: str,
    streams: Sequence[int],
    num_rounds: int,
    per_stream: int,
    seed: int,
) -> list[ServingCell]:
    """Return a cell for each server and number of streams, after a first round to warm up."""
    rates: dict[tuple[str, int], list[float]] = {}
    answers: dict[tuple[str, int], list[MeasuredAnswer]] = {}
    total = (num_rounds + 1) * sum(streams) * per_stream
    each = -(-total // len(tasks.KINDS))
    drawn = [tasks.generate(kind, "eval", seed, each) for kind in tasks.KINDS]
    pool = iter([task.prompt for group in zip(*drawn, strict=True) for task in group])
    for number, count in product(range(num_rounds + 1), streams):
        requests = [next(pool) for _ in range(count * per_stream)]
        for server in servers if number % 2 == 0 else reversed(servers):
            own, seconds = await play(client, server, model, requests, count)
            if number:
                key = (server.name, count)
                rates.setdefault(key, []).append(sum(one.num_tokens for one in own) / seconds)
                answers.setdefault(key, []).extend(own)
    return [
        ServingCell(
            server=name,
            streams=count,
            tokens_per_second=statistics.median(rates[name, count]),
            first_ms=statistics.median(one.first_seconds for one in own) * 1000,
            num_tokens=sum(one.num_tokens for one in own),
        )
        for (name, count), own in answers.items()
    ]


def table_of(cells: Sequence[ServingCell]) -> Table:
    """Return the cells as a table."""
    return Table.of(
        "Servers",
        cells,
        {
            "server": lambda cell: cell.server,
            "streams": lambda cell: str(cell.streams),
            "tokens/s": lambda cell: f"{cell.tokens_per_second:.0f}",
            "first token, ms": lambda cell: f"{cell.first_ms:.0f}",
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("servers", nargs="+", type=MeasuredServer.parse, metavar="NAME=ADDRESS")
    parser.add_argument("--model", default="mars-smollm2", help="its name in requests")
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 4, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--per-stream", type=int, default=5, help="requests per stream and round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--version", action="append", default=[], metavar="NAME=VERSION")
    parser.add_argument("--out", type=path_of, default=Path("runs/serving.json"))
    args = parser.parse_args()

    async def run() -> list[ServingCell]:
        # A server may close a connection that waits just when the next request is sent.
        limits = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(timeout=TIMEOUT, limits=limits) as client:
            return await measure(
                client, args.servers, args.model, args.streams, args.rounds, args.per_stream,
                args.seed,
            )  # fmt: skip

    cells = asyncio.run(run())
    origin = provenance()
    origin["versions"] |= dict(text.split("=", 1) for text in args.version)
    result = {
        "kind": "serving",
        **origin,
        "subject": {"name": args.model, "fingerprint": shipped(args.model)},
        "max_tokens": MAX_TOKENS,
        "servers": [asdict(server) for server in args.servers],
        "cells": [asdict(cell) for cell in cells],
    }
    write_text(args.out, json.dumps(result, ensure_ascii=False, indent=1))
    print(table_of(cells).to_markdown())


if __name__ == "__main__":
    main()
