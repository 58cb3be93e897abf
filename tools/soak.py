"""Soak test of the app: runs, and review sets that are made and judged, through the API and in a
browser.

``python tools/soak.py --minutes 30`` serves the page (``python app.py``) on two cores. Three
visitors at a time use its endpoints, its controls, the OpenAI-compatible endpoint and Review; one
more uses the page in a browser. Meanwhile the server is stopped once for a while (SIGSTOP, like a
paused container) and the browser's connection is cut once. Every run must end as intended,
everything typed or judged must still be there, and the server's memory must stay flat.

Several checkpoints are used in turn; with ``--fit 2`` the server has memory for two of them, and no
visitor may get an error about memory. Writes JSON. The exit code is 1 if something was lost, there
was such an error, or memory grew. ``--minutes 0.2 --checkpoint mars-tiny`` is the short form.
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
import tempfile
import threading
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests/app")]

import httpx  # noqa: E402
from browser import CHROMIUM, chromium  # noqa: E402
from gradio_client import Client  # noqa: E402
from live_page import LOADED  # noqa: E402
from live_page import ROOT as RACE  # noqa: E402
from visitor import Visitor  # noqa: E402
from wire import Wire  # noqa: E402

from mars_runtime.model.registry import registry, unlisted_entry  # noqa: E402
from mars_runtime.provenance import provenance  # noqa: E402
from mars_runtime.tasks import KINDS, generate  # noqa: E402

NUM_CORES = 2
NUM_PROMPTS = 40  # of each kind
LENGTHS = (24, 160)  # minimum and maximum of requested tokens
SAMPLE_SECONDS = 5.0
START_SECONDS, RUN_SECONDS = 600, 300  # to load a slow model; for any run
GROWTH = 0.05  # maximum growth of memory, as a share of that at a quarter of the time
MIB = 2**20
WHOLE = ("eos", "limit", "repeats")
KEY = "the review key of a soak"
PAUSE_SECONDS, CUT_SECONDS = 200.0, 20.0
"""Seconds for which the server is stopped and the browser's connection is cut; each is at most an
eighth of the test.
"""
PAUSE_AT, CUT_AT = 0.4, 0.6  # shares of the test's duration
REVIEW = ".mars-review"
NUM_IN_SET = 100  # prompts of the bundled set
STAY = 3  # actions of a visitor per checkpoint
NUM_LONG, LONG = 12, 7000
"""Prompts that fill the prefix cache before memory is measured, and the characters of each."""
NO_ROOM = ("no more fit", "choose a smaller one", "found no memory")
"""Parts of messages about checkpoints that do not fit into memory."""
BOUNDED = """
import sys, threading
from runpy import run_path
sys.path.insert(0, "")
from app.engines import engines

def free_memory():
    loaded = sum(thread.name == "mars-engine" for thread in threading.enumerate())
    return 0 if loaded >= {fit} else 10**12

engines.free_memory = free_memory
run_path("app.py", run_name="__main__")
"""
"""Program that runs the app with memory for a limited number of engines."""


@dataclass
class Tally:
    """Results of the visitors.

    ended, stopped: number of runs by action. lost: a sentence for each run that did not end as
    intended. refused: number of rejected API requests that had to be retried, by message. judged:
    ids of judgements that the server acknowledged.
    """

    ended: Counter[str] = field(default_factory=Counter)
    stopped: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    num_tokens: int = 0
    judged: set[str] = field(default_factory=set)

    @property
    def num_without_room(self) -> int:
        """Number of messages that say that a checkpoint does not fit into memory."""
        messages = [*self.lost, *self.refused.elements()]
        return sum(any(words in message for words in NO_ROOM) for message in messages)


@contextmanager
def served(*checkpoints: str, fit: int = 0) -> Iterator[tuple[int, str]]:
    """Start the app on two cores; yield its process id and address. fit: number of engines with
    memory; 0 for no limit.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = ["-c", BOUNDED.format(fit=fit)] if fit else ["app.py"]
    command = [sys.executable, *program, "--port", str(port), "--checkpoint", checkpoints[0]]
    if len(checkpoints) > 1:
        command += ["--offered", ",".join(checkpoints)]
    data = tempfile.TemporaryDirectory()
    environment = {**os.environ, "MARS_DATA": data.name, "MARS_REVIEW_KEY": KEY}
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, env=environment)
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
        data.cleanup()


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
    """A visitor that does a different action each time, with one checkpoint after the other.
    checkpoints: their names on the page.
    """

    def __init__(self, address: str, checkpoints: Sequence[str], seed: int, tally: Tally) -> None:
        self._rng = random.Random(seed)
        self._prompts = [
            task.prompt for kind in KINDS for task in generate(kind, "eval", seed, NUM_PROMPTS)
        ]
        self._address, self._checkpoints = address, checkpoints
        self._num_visits = STAY * seed
        self._client = Client(address, verbose=False, httpx_kwargs={"timeout": RUN_SECONDS})
        self._review = httpx.Client(
            base_url=f"{address}review/",
            headers={"x-review-key": KEY},
            transport=httpx.HTTPTransport(local_address=f"127.0.0.{seed + 2}"),
            timeout=RUN_SECONDS,
            event_hooks={"response": [httpx.Response.raise_for_status]},
        )
        self._name = f"guest {seed}"
        self._tally = tally
        self.deeds: list[Callable[[], None]] = [
            self.single, self.race, self.stop, self.steer, self.program, self.judge, self.make,
        ]  # fmt: skip

    @property
    def _checkpoint(self) -> str:
        return self._checkpoints[self._num_visits // STAY % len(self._checkpoints)]

    @property
    def _depth(self) -> int:
        """The largest allowed B."""
        entry = registry().get(self._checkpoint) or unlisted_entry(self._checkpoint)
        return entry.block_size

    def visit(self) -> None:
        """Do one action and record its result."""
        self._num_visits += 1
        deed = self._rng.choice(self.deeds)
        try:
            deed()
        except Exception as error:  # any exception means a lost run
            message = f"{deed.__name__} {self._checkpoint}: {type(error).__name__}: {error}"
            self._tally.lost.append(message[:300])

    def single(self) -> None:
        """Run one prompt to its end."""
        method = self._rng.choice(["mars", "ar"])
        item = self._ask("/generate", method=method).result(timeout=RUN_SECONDS)
        self._note("single", [item])

    def race(self) -> None:
        """Race lossless MARS against AR to the end. Both texts must be identical."""
        result = self._ask("/compare").result(timeout=RUN_SECONDS)
        self._note("race", [result["mars"], result["ar"]])
        if not result["is_same_text"]:
            self._tally.lost.append(f"race: first difference at {result['first_divergence']}")

    def stop(self) -> None:
        """Start a run and leave in the middle of it."""
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
        """Race on the page itself and change settings during the run."""
        visitor = Visitor(self._address)
        values = self._values(lossless=True, tau=0.0, block_size=self._depth)
        status, said = visitor.run(**values)
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
        done = [event for event in messages if event.get("msg") == "process_completed"]
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
                "block_size": self._rng.randint(1, self._depth),
                "lossless": self._rng.random() < 0.8,
                "auto": self._rng.random() < 0.3,
            }
            visitor.knobs(**{**self._values(), **changes})

    def program(self) -> None:
        """Send an API request; retry if the server says so, and sometimes disconnect early."""
        num_wanted = self._rng.randint(1, 20) if self._rng.random() < 0.3 else LENGTHS[1] + 10
        messages = [{"role": "user", "content": self._rng.choice(self._prompts)}]
        body = {"model": self._checkpoint, "messages": messages, "stream": True}
        body["max_tokens"] = self._rng.randint(*LENGTHS)
        address, until = f"{self._address}v1/chat/completions", time.monotonic() + RUN_SECONDS
        while True:
            with httpx.stream("POST", address, json=body, timeout=RUN_SECONDS) as answer:
                if answer.status_code == 200:
                    self._read(answer.iter_lines(), num_wanted)
                    return
                error_message = json.loads(answer.read())["error"]["message"]
            if answer.status_code not in (429, 503) or time.monotonic() > until:
                raise RuntimeError(f"refused with {answer.status_code}: {error_message}")
            self._tally.refused[error_message] += 1
            time.sleep(float(answer.headers.get("retry-after", 1)))

    def _read(self, lines: Iterator[str], num_wanted: int) -> None:
        """Read a stream to its end, or the given number of chunks."""
        chunks = list(islice(filter(None, lines), num_wanted))
        if len(chunks) == num_wanted:
            self._tally.stopped["program"] += 1
        elif chunks[-1] != "data: [DONE]" or any('"error"' in chunk for chunk in chunks):
            raise RuntimeError(f"the stream did not end well: {chunks[-2:]}")
        else:
            self._tally.ended["program"] += 1

    def judge(self) -> None:
        """Judge a prompt of the bundled set and request its figures."""
        about = self._review.get("sets/study").json()
        left, right = self._rng.sample([way["name"] for way in about["ways"]], 2)
        row = {
            "id": uuid.uuid4().hex,
            "reviewer": self._name,
            "item": self._rng.choice(about["items"])["id"],
            **{"left": left, "right": right, "preference": "left"},
            "note": self._rng.choice(self._prompts)[:200],
        }
        stored = self._review.post("sets/study/judgements", json={"row": row}).json()["row"]
        self._tally.judged.add(row["id"])
        if stored["note"] != row["note"]:
            raise RuntimeError(f"the note is now {stored['note']!r}")
        self._review.post("sets/study/figures", json={"rows": [stored]})
        self._tally.ended["judge"] += 1

    def make(self) -> None:
        """Make a set of two prompts with two methods, read it and store it."""
        prompts = self._rng.sample(self._prompts, 2)
        body = {
            "prompts": json.dumps([{"prompt": prompt} for prompt in prompts]),
            "ways": ["ar", "tau=0.5"],
            "checkpoint": self._checkpoint,
            "max_new_tokens": LENGTHS[0],
        }
        name, state = self._review.post("make", json=body).json()["name"], "making"
        until = time.monotonic() + RUN_SECONDS
        while state == "making" and time.monotonic() < until:
            time.sleep(0.5)
            state_json = self._review.get(f"make/{name}").json()
            state = state_json["state"]
        if state != "done":
            raise RuntimeError(f"the set is {state}: {state_json['error']}")
        for item in range(2):
            self._review.get(f"sets/{name}/items/{item}")
        self._review.get(f"sets/{name}/sealed")
        self._tally.ended["make"] += 1

    def check_judgements(self) -> None:
        """Record the acknowledged judgements that the server has not stored."""
        rows = self._review.get("sets/study/judgements").json()["rows"]
        for missing in self._tally.judged - {row["id"] for row in rows}:
            self._tally.lost.append(f"judgement {missing} is not stored")

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


class Browser(threading.Thread):
    """One more visitor, in a browser, who types, runs and judges on the page. cut_at: when the
    connection is cut, by ``time.monotonic``.
    """

    def __init__(self, address: str, tally: Tally, cut_at: float, cut: float, until: float) -> None:
        super().__init__()
        self._port = int(address.rstrip("/").rsplit(":", 1)[1])
        self._tally = tally
        self._cut_at, self._cut_seconds, self._until = cut_at, cut, until
        self._num_typed = self._num_judged = 0

    def run(self) -> None:
        """Visit until the time is over."""
        with chromium() as browser, closing(Wire(self._port)) as wire:
            context = browser.new_context(reduced_motion="reduce")
            context.set_default_timeout(1000 * RUN_SECONDS)
            address = f"http://127.0.0.1:{wire.port}/"
            page, review = context.new_page(), context.new_page()
            page.goto(f"{address}?max_new_tokens={LENGTHS[1]}")
            page.wait_for_function(LOADED)
            review.goto(f"{address}#review=study&beside=1")
            review.fill(f"{REVIEW} .rw-key", KEY)
            review.press(f"{REVIEW} .rw-key", "Tab")
            while time.monotonic() < self._until:
                try:
                    self._visit(page, review, wire)
                except Exception as error:
                    status = page.inner_text(f"{RACE} .rv-status")
                    message = f"page ({status}): {type(error).__name__}: {error}"
                    self._tally.lost.append(message[:400])
            self._check(review)

    def _visit(self, page: Any, review: Any, wire: Wire) -> None:
        self._num_typed += 1
        prompt = f"Count from {self._num_typed} to {self._num_typed + 30}."
        before = page.get_attribute(RACE, "data-run") or ""
        page.fill("#prompt textarea", prompt)
        page.click("#run")
        new = f"{RACE}:not([data-run='{before}'])"
        page.wait_for_selector(new)
        self._judge(review)
        is_cut = time.monotonic() > self._cut_at
        if is_cut:
            self._cut_at = self._until + RUN_SECONDS
            wire.cut()
            self._judge(review)
            time.sleep(self._cut_seconds)
            wire.mend()
            page.wait_for_selector("text=Connection to the server was lost", state="detached")
            review.reload()
            review.wait_for_selector(f"{REVIEW}[data-judged='{self._num_judged}']")
        over = ", ".join(f"{new}[data-state={state}]" for state in ("finished", "stopped", "error"))
        page.wait_for_selector(over)
        shown = page.input_value("#prompt textarea"), page.inner_text(f"{RACE} .rv-prompt")
        if shown != (prompt, prompt):
            raise RuntimeError(f"{prompt!r} was typed, {shown} are there")
        if not is_cut and page.get_attribute(RACE, "data-state") != "finished":
            raise RuntimeError(page.inner_text(f"{RACE} .rv-status"))
        self._tally.ended["cut" if is_cut else "page"] += 1

    def _judge(self, review: Any) -> None:
        """Judge the next prompt without a judgement, if there is one."""
        if self._num_judged == NUM_IN_SET:
            return
        self._num_judged += 1
        review.keyboard.press("a")
        review.wait_for_selector(f"{REVIEW}[data-judged='{self._num_judged}']")
        review.keyboard.press("x")

    def _check(self, review: Any) -> None:
        """Record judgements of the browser that the server has not stored."""
        review.wait_for_selector(f"{REVIEW}[data-unsent='0']")
        name = review.input_value(f"{REVIEW} .rw-name")
        with httpx.Client(headers={"x-review-key": KEY}, timeout=RUN_SECONDS) as client:
            address = f"http://127.0.0.1:{self._port}/review/sets/study/judgements"
            rows = client.get(address).raise_for_status().json()["rows"]
        num_stored = sum(row["reviewer"] == name for row in rows)
        if num_stored != self._num_judged:
            self._tally.lost.append(f"{self._num_judged - num_stored} judgements of the page")


def memory(process: int) -> int:
    """Return the resident memory of a process in bytes (Linux)."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def growth(samples: Sequence[int], num_checkpoints: int = 1) -> float:
    """Return the share by which memory grew, from the second quarter of the samples to the last; 0
    for fewer than 4 samples.

    By the second quarter everything has been used once. Medians, so that a single sample does not
    count. With several checkpoints of different sizes, compares the samples while the smallest ones
    are loaded.
    """
    quarter = len(samples) // 4
    if not quarter:
        return 0.0
    level = statistics.median if num_checkpoints == 1 else min
    return level(samples[-quarter:]) / level(samples[quarter : 2 * quarter]) - 1


def fill_prefix_cache(address: str, checkpoint: str) -> None:
    """Complete long prompts with different beginnings, so that the prefix cache reaches its limit.

    Otherwise the filling of that cache, which is bounded, would be measured as growth.
    """
    for number in range(NUM_LONG):
        words = random.Random(number)
        prompt = " ".join(str(words.randrange(10**6)) for _ in range(LONG // 7))
        body = {"model": checkpoint, "prompt": prompt[:LONG], "max_tokens": 1}
        answer = httpx.post(f"{address}v1/completions", json=body, timeout=RUN_SECONDS)
        answer.raise_for_status()


def soak(
    address: str, process: int, checkpoints: Sequence[str], seconds: float, num_visitors: int
) -> tuple[Tally, list[int]]:
    """Run visitors for ``seconds``; return their results and the server's memory samples."""
    tally, samples = Tally(), []
    guests = [Guest(address, checkpoints, seed, tally) for seed in range(num_visitors)]
    for deed in guests[0].deeds:  # each at least once, and the model loaded, before the time starts
        deed()
    fill_prefix_cache(address, checkpoints[0])
    began = time.monotonic()
    until = began + seconds

    def stay(guest: Guest) -> None:
        while time.monotonic() < until:
            guest.visit()

    def pause() -> None:
        time.sleep(PAUSE_AT * seconds)
        os.kill(process, signal.SIGSTOP)
        time.sleep(min(PAUSE_SECONDS, seconds / 8))
        os.kill(process, signal.SIGCONT)

    threads = [threading.Thread(target=stay, args=(guest,)) for guest in guests]
    threads.append(threading.Thread(target=pause))
    if CHROMIUM:
        cut_at, cut = began + CUT_AT * seconds, min(CUT_SECONDS, seconds / 8)
        threads.append(Browser(address, tally, cut_at, cut, until))
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        samples.append(memory(process))
        time.sleep(min(SAMPLE_SECONDS, seconds / 20))
    guests[0].single()  # the server must still work
    guests[0].check_judgements()
    return tally, samples


def report(tally: Tally, samples: Sequence[int], args: argparse.Namespace) -> dict[str, Any]:
    """Return the report of a soak test."""
    return {
        "kind": "soak",
        "version": 2,
        **provenance(*args.checkpoint),
        "checkpoint": args.checkpoint,
        "minutes": args.minutes,
        "fit": args.fit,
        "visitors": args.visitors,
        "ended": dict(tally.ended),
        "stopped": dict(tally.stopped),
        "lost": tally.lost,
        "refused": dict(tally.refused),
        "num_without_room": tally.num_without_room,
        "num_judged": len(tally.judged),
        "num_tokens": tally.num_tokens,
        "memory_mib": [round(sample / MIB, 1) for sample in samples],
        "memory_growth": round(growth(samples, len(args.checkpoint)), 4),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the test, print and write ``--out``; return the exit code."""
    parser = argparse.ArgumentParser(
        description="Run visitors against the app and report lost runs and memory."
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--visitors", type=int, default=3, help="visitors at a time (%(default)s)")
    parser.add_argument("--checkpoint", nargs="+", default=["mars-smollm2"], help="one or several")
    parser.add_argument(
        "--fit", type=int, default=0, help="checkpoints that fit into memory at the same time"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/soak.json"))
    args = parser.parse_args(arguments)
    with served(*args.checkpoint, fit=args.fit) as (process, address):
        names = [Path(name).name if "/" in name else name for name in args.checkpoint]
        tally, samples = soak(address, process, names, 60 * args.minutes, args.visitors)
    results = report(tally, samples, args)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(results, indent=1), encoding="utf-8")
    ended, stopped = sum(tally.ended.values()), sum(tally.stopped.values())
    print(f"{ended} runs ended, {stopped} were stopped, {len(tally.lost)} were lost.")
    print(f"{tally.num_without_room} got an error about memory.")
    grown = results["memory_growth"]
    print(f"Memory: {samples[-1] / MIB:.0f} MiB, {grown:+.1%} over the soak.")
    print(*tally.lost[:10], sep="\n")
    is_well = not tally.lost and not tally.num_without_room
    return 0 if is_well and grown <= GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
