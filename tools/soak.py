"""Soak test of the app: random runs, stops and reloads of three visitors of the APIs and one in a
browser. Every run must end as intended, and the server's memory must stay flat. Writes JSON; the
exit code is 1 if a run was lost or memory grew."""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import httpx  # noqa: E402
from browser import CHROMIUM, chromium, playwright  # noqa: E402
from environments import free_port, wait_until_it_serves  # noqa: E402
from gradio_client import Client  # noqa: E402

from mars_runtime.files.outputs import write_text  # noqa: E402
from mars_runtime.system.provenance import provenance  # noqa: E402
from mars_runtime.tasks import KINDS, generate  # noqa: E402

LENGTHS, RUN_SECONDS = (24, 160), 300  # tokens of a run; limit of any run, and to load the model
MAX_GROWTH = 0.05  # maximum growth of memory, as a share of that at a quarter of the time
WHOLE = ("eos", "limit", "repeats")
RACE = "#race .mars-race"
LOADED = "document.querySelector('#footer')?.innerText.startsWith('Load') === false"


@contextmanager
def served(checkpoint: str) -> Iterator[tuple[int, str]]:
    """Start the app; yield its process id and address when its checkpoint is loaded."""
    port, log = free_port(), ROOT / "runs" / "soak.log"
    write_text(log, "")
    command = [sys.executable, "app.py", "--port", str(port), "--checkpoint", checkpoint]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            wait_until_it_serves(client, process, log, seconds=RUN_SECONDS)
        yield process.pid, f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(60)


ENDED, STOPPED = Counter[str](), Counter[str]()  # numbers of runs, by action
LOST: list[str] = []  # a sentence for each run that did not end as intended


class Guest:
    def __init__(self, address: str, checkpoint: str, seed: int) -> None:
        self._rng = random.Random(seed)
        self._prompts = [task.prompt for kind in KINDS for task in generate(kind, "eval", seed, 40)]
        self._address, self._checkpoint = address, checkpoint
        self._client = Client(address, verbose=False, httpx_kwargs={"timeout": RUN_SECONDS})
        self.actions = (self.single, self.race, self.stop, self.program)

    def stay(self, until: float) -> None:
        while time.monotonic() < until:
            action = self._rng.choice(self.actions)
            try:
                action()
            except Exception as error:  # any exception means a lost run
                LOST.append(f"{action.__name__}: {type(error).__name__}: {error}"[:300])

    def single(self) -> None:
        self._check("single", self._submit("/generate").result())

    def race(self) -> None:
        result = self._submit("/compare").result()
        self._check("race", result["mars"], result["ar"])
        assert result["is_same_text"], f"first difference at {result['first_divergence']}"

    def stop(self) -> None:
        job = self._submit("/compare")
        time.sleep(self._rng.uniform(0.0, 2.0))
        job.cancel()
        STOPPED["stop"] += 1

    def program(self) -> None:
        """Stream an answer of the OpenAI-compatible endpoint; sometimes disconnect early."""
        num_wanted = self._rng.choice([3, 20, 1000])
        messages = [{"role": "user", "content": self._rng.choice(self._prompts)}]
        body = {"model": self._checkpoint, "messages": messages, "stream": True, "max_tokens": 160}
        url = f"{self._address}v1/chat/completions"
        with httpx.stream("POST", url, json=body, timeout=RUN_SECONDS) as answer:
            chunks = list(islice(filter(None, answer.iter_lines()), num_wanted))
        if answer.status_code == 429:  # the queue is full
            STOPPED["rejected"] += 1
        elif len(chunks) == num_wanted:
            STOPPED["program"] += 1
        else:
            assert chunks[-1] == "data: [DONE]", f"the stream did not end well: {chunks[-2:]}"
            ENDED["program"] += 1

    def _submit(self, endpoint: str) -> Any:
        prompt, length = self._rng.choice(self._prompts), self._rng.randint(*LENGTHS)
        values = {"prompt": prompt, "max_new_tokens": length, "checkpoint": self._checkpoint}
        return self._client.submit(**values, lossless=True, api_name=endpoint)

    def _check(self, action: str, *results: dict[str, Any]) -> None:
        for result in results:
            is_whole = result["ended"] in WHOLE and result["num_tokens"] > 0
            assert is_whole, f"it ended with {result['ended']!r}: {result['message']}"
        ENDED[action] += 1


def browse(address: str, until: float) -> None:
    """Run prompts on the page in a browser; reload it in the middle of every third run."""
    with chromium() as browser:
        page = browser.new_context(reduced_motion="reduce").new_page()
        page.set_default_timeout(1000 * RUN_SECONDS)
        number = 0
        while time.monotonic() < until:
            try:
                if number % 3 == 0:
                    page.goto(f"{address}?max_new_tokens={LENGTHS[1]}")
                    page.wait_for_function(LOADED)
                number += 1
                new = f"{RACE}:not([data-run='{page.get_attribute(RACE, 'data-run') or ''}'])"
                page.fill("#prompt textarea", f"Count from {number} to {number + 30}.")
                page.click("#run")
                page.wait_for_selector(new if number % 3 == 0 else f"{new}[data-state=finished]")
                (ENDED if number % 3 else STOPPED)["page"] += 1
            except playwright.Error as error:
                LOST.append(f"page: {error}"[:300])
                number = 0


def growth(samples: Sequence[int]) -> float:
    """Compare the last quarter with the second: the first uses everything for the first time."""
    quarter = len(samples) // 4
    early = statistics.median(samples[quarter : 2 * quarter])
    return statistics.median(samples[-quarter:]) / early - 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run visitors; report lost runs and memory.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--checkpoint", default="mars-smollm2")
    parser.add_argument("--out", type=Path, default=Path("runs/soak.json"))
    args = parser.parse_args(arguments)
    name, samples, seconds = Path(args.checkpoint).name, [], 60 * args.minutes
    with served(args.checkpoint) as (process, address):
        guests = [Guest(address, name, seed) for seed in range(3)]
        for action in guests[0].actions:  # each at least once before memory is measured
            action()
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=guest.stay, args=(until,)) for guest in guests]
        if CHROMIUM:
            threads.append(threading.Thread(target=browse, args=(address, until)))
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
            samples.append(pages * os.sysconf("SC_PAGE_SIZE") // 2**20)
            time.sleep(min(5.0, seconds / 20))
        guests[0].single()  # the server must still work
    grown = growth(samples)
    result = {"kind": "soak", "version": 3, **provenance(), "minutes": args.minutes}
    result |= {"ended": ENDED, "stopped": STOPPED, "lost": LOST, "memory_mib": samples}
    write_text(args.out, json.dumps(result | {"growth": grown}, indent=1))
    print(f"ended {dict(ENDED)}, stopped {dict(STOPPED)}, lost {len(LOST)}", *LOST[:9], sep="\n")
    print(f"Memory: {samples[-1]} MiB, {grown:+.1%} over the soak.")
    return int(bool(LOST) or grown > MAX_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
