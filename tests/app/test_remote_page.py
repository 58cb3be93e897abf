"""The page as a client of another machine: its handlers over a plain server, the wire between."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from scripted_page import controls

pytest.importorskip("openai")

from batch_page import controls as batch_controls
from test_handlers import begun, lane_trace, last
from test_launch import free_port

from app.engines.remote import RemoteEngines
from app.handlers import Handlers, make_handlers
from app.serving.endpoint import PageModels
from app.settings import AppSettings, AppSettingsError
from mars_runtime.events import End, Step
from mars_runtime.serving.remote import AWAY, LOST, NO_BATCH
from tests.serving.scripted_server import NAME, Oracle, Place, eventually, serving

ROOT = Path(__file__).parents[2]


def handlers_at(address: str, **more: str) -> Handlers:
    settings = AppSettings(checkpoint=NAME, remote=address, **more)
    return make_handlers(RemoteEngines(settings))


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    """A forward takes 20 ms, or the seconds that a test names."""
    with serving(tmp_path, Oracle(forward_seconds=getattr(request, "param", 0.02))) as server:
        yield server


@pytest.fixture
def handlers(place: Place) -> Iterator[Handlers]:
    made = handlers_at(place.address)
    yield made
    made.engines.close()


def test_a_race_is_drawn_as_one_that_is_decoded_here(place: Place, handlers: Handlers) -> None:
    values = list(handlers.live.run("a", controls(tau=0.5, max_new_tokens=200)))
    assert all(later.startswith(earlier) for earlier, later in pairwise(values))
    mars, ar = (lane_trace(values[-1], lane) for lane in ("mars", "ar"))
    text = place.text_for("Say hello.").encode()
    for trace in (mars, ar):
        assert trace.header.checkpoint == NAME
        assert trace.header.room == place.model.capacity
        written = [t for step in trace.events[1:-1] for t in step.rows[0].accepted]
        assert bytes(written[:-1]) == text
        assert trace.events[-1] == End("eos")
    assert len(mars.events) < len(ar.events)
    *_, choice = handlers.checkpoints.choose(NAME)
    assert choice.footer is not None
    assert "timed on another machine" in choice.footer
    value = last(handlers.batch.run("a", batch_controls()))
    assert NO_BATCH in value


@pytest.mark.parametrize("place", [0.1], indirect=True)  # a run that a busy machine sees the end of
def test_a_slider_and_stop_reach_the_machine(place: Place, handlers: Handlers) -> None:
    stream = begun(handlers.live.run("a", controls(tau=1.0)))
    handlers.live.steer("a", controls(tau=0.5))
    run = handlers.live.runs.of("a")
    assert run is not None
    mars = run.transcripts[0]
    for _ in stream:
        rows = [row for event in mars.events if isinstance(event, Step) for row in event.rows]
        if rows and rows[-1].settings.tau == 0.5:
            break
    handlers.live.stop("a")
    value = last(stream)
    assert lane_trace(value, "mars").events[-1].reason == "cancelled"
    assert eventually(lambda: place.num_open == 0, 5)


def test_a_machine_that_comes_late_or_dies_is_a_sentence_and_the_next_run_works(
    tmp_path: Path,
) -> None:
    port = free_port()
    handlers = handlers_at(f"http://127.0.0.1:{port}")
    assert "does not answer" in last(handlers.live.run("a", controls()))
    assert handlers.checkpoints.arrival("a").sentence == AWAY  # and no other model replaces it
    with serving(tmp_path, Oracle(forward_seconds=0.02), port=port):
        stream = begun(handlers.live.run("a", controls(tau=1.0)))
    assert LOST in last(stream)
    assert "does not answer" in last(handlers.live.run("a", controls()))
    with serving(tmp_path, Oracle(), port=port):
        assert '"reason":"eos"' in last(handlers.live.run("a", controls(max_new_tokens=200)))
    handlers.engines.close()


@pytest.mark.parametrize("end", ["/", "/v1", "/v1/"])
def test_the_key_is_sent_and_the_address_written_as_by_clients_of_the_endpoint(
    tmp_path: Path, end: str
) -> None:
    with serving(tmp_path, Oracle(), key="secret") as place:
        for key, message in (("", "The API key is missing or wrong"), ("secret", '"limit"')):
            handlers = handlers_at(place.address + end, remote_key=key)
            assert message in last(handlers.live.run("a", controls()))
            handlers.engines.close()


@pytest.mark.parametrize(
    "address",
    ["localhost", "http://", "http://:8000", "http://::1:8000", "ftp://host", "http://h:x"],
)
def test_an_address_that_is_none_is_refused_at_the_start(address: str) -> None:
    with pytest.raises(AppSettingsError, match="MARS_REMOTE"):
        handlers_at(address)


MACHINE = """
import sys, threading
from pathlib import Path
sys.path[:0] = [{root!r}]
from tests.serving.scripted_server import Oracle, serving
with serving(Path({folder!r}), Oracle(), port={port}):
    print("up", flush=True)
    threading.Event().wait()
"""


def test_health_follows_the_machine_without_anybody_asking_for_a_run(tmp_path: Path) -> None:
    """A process of its own that comes late, is killed and comes back."""
    port = free_port()
    handlers = handlers_at(f"http://127.0.0.1:{port}")
    models = PageModels(handlers.engines)
    handlers.engines.open()
    assert eventually(lambda: AWAY in models.trouble, 3)
    for number in range(2):
        folder = tmp_path / str(number)
        script = MACHINE.format(root=str(ROOT), folder=str(folder), port=port)
        machine = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        try:
            assert machine.stdout is not None
            assert machine.stdout.readline() == b"up\n"
            assert eventually(lambda: models.trouble == "", 3)
        finally:
            machine.kill()
            machine.communicate()
        assert eventually(lambda: models.trouble == AWAY, 3)
    handlers.engines.close()
