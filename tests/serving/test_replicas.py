"""Two replicas by Ray Serve on this machine: killed, slow, too few, updated. Needs ray[serve]."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("ray.serve", reason="pip install -r requirements-serve.txt")
pytest.importorskip("openai")

import openai
import scripted_replicas
from scripted_replicas import answer_to, pid_of
from scripted_server import NAME, eventually

from mars_runtime.serving import replicas
from mars_runtime.serving.server import ServePlan

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
# The last place in line is for another address than the one that holds the others.
PLAN = ServePlan(NAME, max_runs=2, max_waiting=3, min_replicas=2, max_replicas=2)
CAPACITY = 8  # of one address
SECONDS = 300.0
AR = {"method": "ar"}
ROOT = Path(__file__).parents[2]


class Cluster:
    """An address, and OpenAI's client of it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = openai.OpenAI(
            base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=SECONDS
        )

    def ask(self, text: str, **more: Any) -> Any:
        messages = [{"role": "user", "content": text}]
        more = {"extra_body": AR, "max_tokens": 300, **more}
        return self.client.chat.completions.create(model=NAME, messages=messages, **more)

    def whole(self, text: str, **more: Any) -> str:
        return str(self.ask(text, **more).choices[0].message.content)

    def pids(self, number: int = 16) -> Counter[int]:
        """Return the processes that answer short questions."""
        return Counter(pid_of(self.whole(f"{n}", max_tokens=12)) for n in range(number))

    def is_whole_again(self) -> bool:
        """Whether both replicas answer."""
        try:
            return len(self.pids()) == 2
        except openai.APIStatusError:
            return False


class Reader(threading.Thread):
    """Reads a stream to its end."""

    def __init__(self, cluster: Cluster, text: str, **more: Any) -> None:
        super().__init__(daemon=True)
        self.asked, self.pieces = text, list[str]()
        self.error: Exception | None = None
        self.has_ended = False
        self.begin = partial(cluster.ask, text, stream=True, **more)
        self.start()

    def run(self) -> None:
        try:
            for chunk in self.begin():
                if chunk.choices:
                    self.pieces.append(chunk.choices[0].delta.content or "")
                    self.has_ended = bool(chunk.choices[0].finish_reason)
        except Exception as error:
            self.error = error

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def pid(self) -> int:
        """The process that answers; 0 as long as that is not known."""
        return pid_of(self.text) if " " in self.text else 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def started() -> Iterator[Cluster]:
    here = Path(__file__).parent
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (here, here.parent)))
    os.environ.pop("RAY_ADDRESS", None)
    port = free_port()
    assert replicas.begin("127.0.0.1", port)
    try:
        yield Cluster(f"http://127.0.0.1:{port}")
    finally:
        replicas.end()


@contextmanager
def deployed(cluster: Cluster, plan: ServePlan = PLAN, **kinds: Any) -> Iterator[Cluster]:
    replicas.deploy(plan, partial(scripted_replicas.bring, **kinds))
    assert eventually(cluster.is_whole_again, SECONDS)
    yield cluster


@pytest.fixture
def two(started: Cluster) -> Iterator[Cluster]:
    """Two replicas, two requests at once and two in line each; a forward takes 20 ms."""
    with deployed(started) as server:
        yield server


def test_the_same_endpoint_answers_as_without_ray(two: Cluster) -> None:
    get = partial(httpx.get, timeout=SECONDS)
    assert get(f"{two.address}/v1/models").json()["data"][0]["id"] == NAME
    assert get(f"{two.address}/health").json() == {"status": "ok"}
    refused = get(f"{two.address}/v1/nothing")
    assert refused.status_code == 404
    assert refused.json()["error"]["message"].endswith(".")
    with pytest.raises(openai.NotFoundError, match="Choose among"):
        two.client.chat.completions.create(model="x", messages=[{"role": "user", "content": "a"}])


def test_text_streams_and_clients_that_leave_free_their_rows(two: Cluster) -> None:
    streams = [two.ask(f"{n}", stream=True, max_tokens=3000) for n in range(3)]
    for stream in streams:
        next(iter(stream))
        stream.close()
    began = time.monotonic()
    readers = [Reader(two, f"Next {n}", max_tokens=20) for n in range(CAPACITY // 2)]
    for reader in readers:
        reader.join(SECONDS)
    assert all(reader.has_ended for reader in readers)
    assert time.monotonic() - began < 30  # rows that continued would have taken a minute
    reader = Reader(two, "Stream")
    assert eventually(lambda: len(reader.pieces) > 5, SECONDS)
    assert reader.is_alive()
    assert not reader.has_ended
    reader.join(SECONDS)
    assert reader.has_ended
    assert len(reader.text) == 300


def test_a_killed_replica_costs_its_own_streams_a_sentence(two: Cluster, tmp_path: Path) -> None:
    readers: list[Reader] = []
    while len({reader.pid for reader in readers} - {0}) < 2 and len(readers) < CAPACITY:
        readers.append(Reader(two, f"Question {len(readers)}"))
        assert eventually(lambda: bool(readers[-1].pid or readers[-1].error), SECONDS)
    victim = readers[0].pid
    os.kill(victim, signal.SIGKILL)
    after = two.whole("Right after", max_tokens=12)
    assert pid_of(after) != victim
    for reader in readers:
        reader.join(SECONDS)
        if reader.pid == victim:
            assert isinstance(reader.error, openai.APIError)
            assert "was lost" in str(reader.error)
        else:
            assert reader.error is None
            assert reader.has_ended
            text = answer_to(reader.asked, tmp_path)
            assert reader.text == f"{reader.pid} {text}"[:300]
    assert eventually(two.is_whole_again, SECONDS)


def test_a_rolling_update_loses_nothing(two: Cluster, tmp_path: Path) -> None:
    before = set(two.pids())
    reader = Reader(two, "Long", max_tokens=400)
    assert eventually(lambda: bool(reader.pid), SECONDS)
    is_over = threading.Event()
    answered: list[str] = []
    failures: list[Exception] = []

    def go_on() -> None:
        while not is_over.is_set():
            try:
                answered.append(two.whole("During", max_tokens=12))
            except Exception as error:
                failures.append(error)

    worker = threading.Thread(target=go_on)
    worker.start()
    try:
        replicas.deploy(PLAN, partial(scripted_replicas.bring, seconds=0.015))
        assert eventually(lambda: not before & set(two.pids()), SECONDS)
    finally:
        is_over.set()
        worker.join(SECONDS)
    assert not failures
    assert answered
    reader.join(SECONDS)
    assert reader.error is None
    assert reader.text == f"{reader.pid} {answer_to('Long', tmp_path)}"[:400]


LISTENING = """
import sys
import psutil
from mars_runtime.serving import replicas

replicas.begin("127.0.0.1", int(sys.argv[1]), 1)
own = psutil.Process()
for process in (own, *own.children(recursive=True)):
    for each in process.net_connections("inet"):
        if each.status == psutil.CONN_LISTEN:
            print("LISTENS", each.laddr.ip, flush=True)
import ray
from ray import serve
serve.shutdown()
ray.shutdown()
"""


def test_a_cluster_at_loopback_listens_nowhere_else() -> None:
    pytest.importorskip("psutil")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [sys.executable, "-c", LISTENING, str(port)]
    done = subprocess.run(
        command, env=variables, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    addresses = {words[1] for words in lines if words[:1] == ["LISTENS"]}
    assert addresses, done.stderr
    assert addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
