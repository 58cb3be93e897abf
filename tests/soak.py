"""Visitors without end: races, single runs, stops and settings changed on the way.

``python tests/soak.py --minutes 30`` serves the page as people do (``python app.py``), on two
cores, and lets visitors use its endpoints and its own controls, three at a time. Every run must end
as it was meant to, and the memory of the server must stay flat. Writes JSON; the exit code is 1
where a run was lost or memory grew. ``--minutes 0.2 --checkpoint mars-tiny`` is the short form.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests/app")]

from gradio_client import Client  # noqa: E402
from visitor import Visitor  # noqa: E402

from mars_runtime.lab.evaluation.provenance import provenance  # noqa: E402
from mars_runtime.lab.tasks import KINDS, generate  # noqa: E402

NUM_CORES = 2
NUM_PROMPTS = 40  # of each kind
LENGTHS = (24, 160)  # tokens asked for, at least and at most
SAMPLE_SECONDS = 5.0
START_SECONDS, RUN_SECONDS = 600, 300  # to load a model that is slow to build; for any run
GROWTH = 0.05  # of the memory at a quarter of the time: more than that is not flat
MIB = 2**20
WHOLE = ("eos", "limit")


@dataclass
class Tally:
    """What visitors saw. ``ended`` and ``stopped`` count runs by what was done; ``lost`` holds a
    sentence for each run that did not end as it was meant to."""

    ended: Counter[str] = field(default_factory=Counter)
    stopped: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    num_tokens: int = 0


@contextmanager
def served(checkpoint: str) -> Iterator[tuple[int, str]]:
    """The app in a process of its own on two cores: its id and address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "app.py", "--port", str(port), "--checkpoint", checkpoint]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        if hasattr(os, "sched_setaffinity"):
            cores = sorted(os.sched_getaffinity(0))[:NUM_CORES]
            os.sched_setaffinity(process.pid, cores)
        address = f"http://127.0.0.1:{port}/"
        _wait_for(process, address)
        yield process.pid, address
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], address: str) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).read()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit("The app did not start: run python app.py to see why.") from None
            time.sleep(0.2)


class Guest:
    """One visitor, who does something else each time. ``checkpoint``: as the page names it."""

    def __init__(self, address: str, checkpoint: str, seed: int, tally: Tally) -> None:
        self._rng = random.Random(seed)
        self._prompts = [
            task.prompt for kind in KINDS for task in generate(kind, "eval", seed, NUM_PROMPTS)
        ]
        self._address, self._checkpoint = address, checkpoint
        self._client = Client(address, verbose=False)
        self._tally = tally
        self.deeds: list[Callable[[], None]] = [self.single, self.race, self.stop, self.steer]

    def visit(self) -> None:
        """Do one thing, and note what came of it."""
        deed = self._rng.choice(self.deeds)
        try:
            deed()
        except Exception as error:  # whatever it is, a run was lost
            self._tally.lost.append(f"{deed.__name__}: {type(error).__name__}: {error}"[:300])

    def single(self) -> None:
        """One run to its end."""
        method = self._rng.choice(["mars", "ar"])
        item = self._ask("/generate", method=method).result(timeout=RUN_SECONDS)
        self._note("single", [item])

    def race(self) -> None:
        """MARS against AR to the end; lossless, so both must say the same."""
        found = self._ask("/compare").result(timeout=RUN_SECONDS)
        self._note("race", [found["mars"], found["ar"]])
        if not found["is_same_text"]:
            self._tally.lost.append(f"race: first difference at {found['first_divergence']}")

    def stop(self) -> None:
        """Begin something and leave in the middle of it."""
        endpoint = self._rng.choice(["/generate", "/compare"])
        job = self._ask(endpoint, max_new_tokens=LENGTHS[1])
        until = time.monotonic() + RUN_SECONDS
        while not job.outputs() and not job.done():
            if time.monotonic() > until:
                raise TimeoutError("nothing came")
            time.sleep(0.02)
        time.sleep(self._rng.uniform(0.0, 1.0))
        job.cancel()
        self._tally.stopped["stop"] += 1

    def steer(self) -> None:
        """A race on the page itself, with the knobs turned while it runs."""
        visitor = Visitor(self._address)
        status, said = visitor.run(**self._values(lossless=True, tau=0.0))
        if status != 200:
            raise RuntimeError(f"refused with {status}: {said}")
        turning = threading.Event()
        hand = threading.Thread(target=self._turn, args=(visitor, turning))
        hand.start()
        try:
            messages = visitor.stream()
        finally:
            turning.set()
            hand.join()
        done = [one for one in messages if one.get("msg") == "process_completed"]
        if not done or not done[-1]["success"]:
            raise RuntimeError("the page's run did not complete")
        value = done[-1]["output"]["data"][0]
        if not any(f'"reason":"{reason}"' in value for reason in WHOLE):
            raise RuntimeError(f"the page's run did not end: {value[-200:]}")
        self._tally.ended["steer"] += 1

    def _turn(self, visitor: Visitor, turning: threading.Event) -> None:
        while not turning.wait(self._rng.uniform(0.1, 0.6)):
            changes = {
                "tau": self._rng.choice([0.0, 0.5, 0.95]),
                "block_size": self._rng.choice([2, 4, 8]),
                "lossless": self._rng.random() < 0.8,
                "auto": self._rng.random() < 0.3,
            }
            visitor.knobs(**{**self._values(), **changes})

    def _values(self, **changes: Any) -> dict[str, Any]:
        return {
            "prompt": self._rng.choice(self._prompts),
            "max_new_tokens": self._rng.randint(*LENGTHS),
            "checkpoint": self._checkpoint,
            **changes,
        }

    def _ask(self, endpoint: str, **changes: Any) -> Any:
        values = self._values(lossless=True, tau=self._rng.choice([0.0, 0.3]), **changes)
        return self._client.submit(**values, api_name=endpoint)

    def _note(self, deed: str, items: Sequence[dict[str, Any]]) -> None:
        for item in items:
            if item["ended"] not in WHOLE or not item["num_tokens"]:
                raise RuntimeError(f"it ended with {item['ended']!r}: {item['message']}")
            self._tally.num_tokens += item["num_tokens"]
        self._tally.ended[deed] += 1


def memory(process: int) -> int:
    """Bytes of a process in memory (Linux)."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def growth(samples: Sequence[int]) -> float:
    """By what share memory grew: from the second quarter of the samples, when everything has been
    used once, to the last. Medians, so that a moment does not count. 0 for fewer than 4 samples."""
    quarter = len(samples) // 4
    if not quarter:
        return 0.0
    before = statistics.median(samples[quarter : 2 * quarter])
    return statistics.median(samples[-quarter:]) / before - 1


def soak(
    address: str, process: int, checkpoint: str, seconds: float, num_visitors: int
) -> tuple[Tally, list[int]]:
    """Let visitors come for so long; what they saw, and the memory of the server meanwhile."""
    tally, samples = Tally(), []
    guests = [Guest(address, checkpoint, seed, tally) for seed in range(num_visitors)]
    for deed in guests[0].deeds:  # each at least once, and the model loaded before the clock runs
        deed()
    until = time.monotonic() + seconds

    def stay(guest: Guest) -> None:
        while time.monotonic() < until:
            guest.visit()

    threads = [threading.Thread(target=stay, args=(guest,)) for guest in guests]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        samples.append(memory(process))
        time.sleep(min(SAMPLE_SECONDS, seconds / 20))
    guests[0].single()  # it still serves
    return tally, samples


def report(tally: Tally, samples: Sequence[int], args: argparse.Namespace) -> dict[str, Any]:
    """What is kept of a soak."""
    return {
        "kind": "soak",
        "version": 1,
        **provenance(),
        "checkpoint": args.checkpoint,
        "minutes": args.minutes,
        "visitors": args.visitors,
        "ended": dict(tally.ended),
        "stopped": dict(tally.stopped),
        "lost": tally.lost,
        "num_tokens": tally.num_tokens,
        "memory_mib": [round(one / MIB, 1) for one in samples],
        "memory_growth": round(growth(samples), 4),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, print, write ``--out``. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Visitors without end, and what became of them.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--visitors", type=int, default=3, help="at a time (%(default)s)")
    parser.add_argument("--checkpoint", default="mars-smollm2")
    parser.add_argument("--out", type=Path, default=Path("runs/soak.json"))
    args = parser.parse_args(arguments)
    with served(args.checkpoint) as (process, address):
        name = Path(args.checkpoint).name if "/" in args.checkpoint else args.checkpoint
        tally, samples = soak(address, process, name, 60 * args.minutes, args.visitors)
    found = report(tally, samples, args)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    ended, stopped = sum(tally.ended.values()), sum(tally.stopped.values())
    print(f"{ended} runs ended, {stopped} were stopped, {len(tally.lost)} were lost.")
    print(f"Memory: {samples[-1] / MIB:.0f} MiB, {growth(samples):+.1%} over the soak.")
    print(*tally.lost[:10], sep="\n")
    return 0 if not tally.lost and growth(samples) <= GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
