"""Load test of the OpenAI-compatible endpoint with many clients, of which many disconnect early.

``python tools/clients.py --clients 50 --seconds 60`` starts ``python -m mars_runtime serve``. The
clients send requests, stream, disconnect at random moments and send invalid requests. The greedy
answer to a prompt must be the same under load as without load, and what a client received before it
disconnected must be the beginning of that answer. One more client, with another address, sends its
requests one after the other and must never be rejected; its times to the first token are reported.
At the end no request may be left in the server, and threads and memory must be as before. Prints
JSON; the exit code is 1 if a check failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from tests.attack.bad_requests import CHAT, random_requests  # noqa: E402

PROMPTS = [f"Sort these numbers: {n * 7 % 10}, {n * 3 % 10}, {n}" for n in range(8)]
SETTINGS: list[dict[str, Any]] = [
    {"max_tokens": 40},
    {"max_tokens": 30, "method": "ar"},
    {"max_tokens": 48, "lossless": False, "tau": 0.8, "block_size": 4, "mask_layout": "last"},
]
NEIGHBOUR = "127.0.0.2"
GROWTH = 0.1  # maximum growth of memory after the warm-up
SETTLE_SECONDS = 20.0
Asked = dict[str, Any]


@contextmanager
def served(checkpoint: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a server; yield its process and address."""
    command = [sys.executable, "-m", "mars_runtime", "serve", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--checkpoint", checkpoint], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        match = re.search(r"http://\S+(?=/v1)", process.stdout.readline())
        if match is None:
            raise SystemExit("The server did not start.")
        yield process, match.group()
    finally:
        process.terminate()
        process.wait(60)


class Crowd:
    """Clients that compare answers under load with answers without load, and their results."""

    def __init__(self, address: str, checkpoint: str, seed: int) -> None:
        self._address = address
        self._checkpoint = checkpoint
        self._rng = random.Random(seed)
        self._nonsense = random_requests(seed, checkpoint)
        self._alone: list[tuple[Asked, str]] = []
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []

    async def ask_alone(self) -> None:
        """Request every answer once without other load, for comparison."""
        async with httpx.AsyncClient(base_url=self._address, timeout=120) as client:
            for prompt, settings in product(PROMPTS, SETTINGS):
                messages = [{"role": "user", "content": prompt}]
                request = {"model": self._checkpoint, "messages": messages, **settings}
                answer = (await client.post(CHAT, json=request)).json()
                self._alone.append((request, answer["choices"][0]["message"]["content"]))

    async def come(self, num_clients: int, seconds: float) -> list[float]:
        """Run ``num_clients`` clients for ``seconds``. Return the times to the first token, in
        seconds, of the client with the other address.
        """
        until = time.monotonic() + seconds
        clients = (self._client(until) for _ in range(num_clients))
        waits, *_ = await asyncio.gather(self._neighbour(until), *clients)
        return waits

    async def _neighbour(self, until: float) -> list[float]:
        waits: list[float] = []
        way = httpx.AsyncHTTPTransport(local_address=NEIGHBOUR)
        async with httpx.AsyncClient(base_url=self._address, transport=way, timeout=120) as client:
            while time.monotonic() < until:
                request, _ = self._rng.choice(self._alone)
                began = time.monotonic()
                async with client.stream("POST", CHAT, json={**request, "stream": True}) as answer:
                    if answer.status_code != 200:
                        self.faults.append(f"the other client got {answer.status_code}")
                        continue
                    lines = answer.aiter_lines()
                    seen = [time.monotonic() async for line in lines if text_of(chunk_of(line))]
                waits += [at - began for at in seen[:1]]
        return waits

    async def _client(self, until: float) -> None:
        while time.monotonic() < until:
            async with httpx.AsyncClient(base_url=self._address, timeout=120) as client:
                kind = self._rng.choice([self._whole, self._stream, self._stream, self._nuisance])
                try:
                    await asyncio.wait_for(kind(client), self._patience())
                except asyncio.TimeoutError:
                    self.outcomes["left"] += 1
                except httpx.HTTPError as error:
                    self.faults.append(type(error).__name__)

    def _patience(self) -> float:
        """Return the seconds until a client disconnects: short for half of the clients, unlimited
        for the others.
        """
        return self._rng.uniform(0.0, 2.0) if self._rng.random() < 0.5 else 300.0

    async def _whole(self, client: httpx.AsyncClient) -> None:
        request, alone = self._rng.choice(self._alone)
        answer = await client.post(CHAT, json=request)
        if await self._is_answer(answer.status_code):
            text = answer.json()["choices"][0]["message"]["content"]
            self._compare("whole", request, text == alone)

    async def _stream(self, client: httpx.AsyncClient) -> None:
        request, alone = self._rng.choice(self._alone)
        text, is_over = "", False
        async with client.stream("POST", CHAT, json={**request, "stream": True}) as answer:
            if not await self._is_answer(answer.status_code):
                return
            async for line in answer.aiter_lines():
                is_over = is_over or line == "data: [DONE]"
                chunk = chunk_of(line)
                if "error" in chunk:
                    self.faults.append(f"a stream ended with {chunk['error']['message']}")
                    return
                text += text_of(chunk)
                if not alone.startswith(text):
                    break
        self._compare("stream", request, text == alone and is_over)

    async def _nuisance(self, client: httpx.AsyncClient) -> None:
        path, body = next(self._nonsense)
        answer = await client.post(path, content=body, headers={"content-type": "application/json"})
        if answer.status_code >= 500:
            self.faults.append(f"{answer.status_code} for {body[:100]!r}")
        self.outcomes["nonsense"] += 1

    async def _is_answer(self, status: int) -> bool:
        """Whether the status is a success. After a rejection, wait before the client sends its next
        request.
        """
        if status == 200:
            return True
        self.outcomes[str(status)] += 1
        if status not in (429, 503):
            self.faults.append(f"status {status}")
        await asyncio.sleep(self._rng.uniform(0.1, 1.0))
        return False

    def _compare(self, kind: str, request: Asked, is_same: bool) -> None:
        self.outcomes[kind] += 1
        if not is_same:
            self.faults.append(f"another text than without load: {json.dumps(request)}")


def chunk_of(line: str) -> dict[str, Any]:
    """Parse a line of a stream; empty for other lines and the end."""
    chunk: dict[str, Any] = {}
    if line.startswith("data: {"):
        chunk = json.loads(line.removeprefix("data: "))
    return chunk


def text_of(chunk: dict[str, Any]) -> str:
    """Return the text of a chunk."""
    return (chunk["choices"][0]["delta"].get("content") or "") if chunk.get("choices") else ""


def standing(process: subprocess.Popen[str], address: str) -> dict[str, float]:
    """Return the threads, memory and open requests of the server, as soon as it has no open
    requests, or after SETTLE_SECONDS.
    """
    until = time.monotonic() + SETTLE_SECONDS
    while True:
        text = httpx.get(f"{address}/metrics", timeout=30).text
        left = re.findall(r"^mars:num_requests_\w+\{.*\} (\S+)$", text, re.MULTILINE)
        num_left = sum(map(float, left))
        if not num_left or time.monotonic() > until:
            break
        time.sleep(0.1)
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    threads, memory = (
        int(re.search(rf"{name}:\s+(\d+)", status)[1])  # type: ignore[index]
        for name in ("Threads", "VmRSS")
    )
    sockets = sum(1 for _ in Path(f"/proc/{process.pid}/fd").iterdir())
    return {"requests": num_left, "threads": threads, "files": sockets, "kib": memory}


def attack(checkpoint: str, num_clients: int, seconds: float, seed: int) -> dict[str, Any]:
    """Run the test and return the results; ``faults`` is empty if it passed."""
    with served(checkpoint) as (process, address):
        crowd = Crowd(address, checkpoint, seed)
        asyncio.run(crowd.ask_alone())
        asyncio.run(crowd.come(num_clients, min(5.0, seconds)))  # warm-up: fills caches and pools
        before = standing(process, address)
        waits = asyncio.run(crowd.come(num_clients, seconds))
        after = standing(process, address)
        asyncio.run(crowd.come(1, 1.0))
        is_well = httpx.get(f"{address}/health", timeout=30).status_code == 200
    faults = [*crowd.faults] if is_well else [*crowd.faults, "the server is not healthy"]
    for name in ("requests", "threads", "files"):
        if after[name] > before[name] + (2 if name == "files" else 0):
            faults.append(f"{name}: {before[name]:g} before, {after[name]:g} after")
    if after["kib"] > before["kib"] * (1 + GROWTH):
        faults.append("memory grew")
    return {
        "checkpoint": checkpoint,
        "clients": num_clients,
        "seconds": seconds,
        "outcomes": dict(crowd.outcomes),
        "neighbour": {
            "num_answers": len(waits),
            "median_wait_seconds": round(statistics.median(waits), 3),
            "longest_wait_seconds": round(max(waits), 3),
        },
        "before": before,
        "after": after,
        "num_faults": len(faults),
        "faults": faults[:20],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the test and return the exit code."""
    parser = argparse.ArgumentParser(description="Attack the endpoint with many clients at once.")
    parser.add_argument("--clients", type=int, default=50, help="number of clients (%(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="duration in seconds (%(default)s)"
    )
    parser.add_argument(
        "--checkpoint", default="mars-tiny", help="checkpoint to serve (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all choices (%(default)s)")
    args = parser.parse_args(arguments)
    results = attack(args.checkpoint, args.clients, args.seconds, args.seed)
    print(json.dumps(results, indent=1))
    return int(results["num_faults"] > 0)


if __name__ == "__main__":
    sys.exit(main())
