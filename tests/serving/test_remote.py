"""An engine on another machine: a plain server at the other end, the wire between. Runs by their
names: steered and stopped in mid-run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import openai
import pytest
from scripted_server import NAME, Oracle, Place, chat, eventually, serving

from mars_runtime import folds
from mars_runtime.engine import EngineBusy, EngineError, Request, RequestError, Run
from mars_runtime.events import End, Event, Step
from mars_runtime.serving.app import RATE_LIMITED
from mars_runtime.serving.remote import AWAY, LOST, NO_BATCH, Machine, RemoteEngine
from mars_runtime.serving.requests import FOREIGN_IDS
from mars_runtime.settings import RECOMMENDED, DecodeSettings, SettingsError

CAREFUL = DecodeSettings(tau=1.0, block_size=4)
AR = DecodeSettings(method="ar", tau=1.0, block_size=1)


def remote(place: Place, key: str = "") -> RemoteEngine:
    machine = Machine(place.address, key)
    return RemoteEngine(machine, NAME, machine.about(NAME, 60).capacity)


@pytest.fixture
def engine(place: Place) -> Iterator[RemoteEngine]:
    actual = remote(place)
    yield actual
    actual.close()


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[tuple[Place, RemoteEngine]]:
    """One runs at once, one waits; a forward takes 50 ms."""
    backend = Oracle(forward_seconds=0.05)
    with serving(tmp_path, backend, max_runs=1, max_waiting=1) as place:
        actual = remote(place)
        yield place, actual
        actual.close()


def steps(run: Run) -> list[Step]:
    return [event for event in run.events_since(0) if isinstance(event, Step)]


def timeless(events: list[Event]) -> list[Event]:
    return [replace(e, seconds=0.0) if isinstance(e, Step) else e for e in events[1:]]


@pytest.mark.parametrize("settings", [RECOMMENDED, CAREFUL, AR])
def test_events_over_the_wire_are_those_of_the_engine(
    place: Place, engine: RemoteEngine, settings: DecodeSettings
) -> None:
    request = Request(place.ids(), replace(settings, max_new_tokens=40), is_checked=True)
    runs = [item.submit(request) for item in (engine, place.model.engine)]
    assert all(run.wait(60) for run in runs)
    ours, theirs = (timeless(run.events_since(0)) for run in runs)
    assert ours == theirs
    assert runs[0].clock == pytest.approx(sum(step.seconds for step in steps(runs[0])), abs=1e-2)


def test_its_tokenizer_is_sent(place: Place) -> None:
    about = Machine(place.address).about(NAME, 60)
    for text in ("ünï ☃ 👩‍👧", "<|im_end|>"):
        assert about.tokenizer.encode_prompt(text) == place.ids(text)
    assert about.tokenizer.forbidden_ids == place.model.tokenizer.forbidden_ids
    assert about.tokenizer.eos_ids == place.model.tokenizer.eos_ids
    assert (about.name, about.block_size) == (NAME, place.model.block_size)


def test_a_race_is_one_job_there(place: Place, engine: RemoteEngine) -> None:
    runs = engine.race([Request(place.ids(), CAREFUL), Request(place.ids(), AR)])
    assert all(run.wait(60) for run in runs)
    assert [run.events_since(0)[-1] for run in runs] == [End("eos"), End("eos")]
    first, other = (folds.accepted_tokens(run.events_since(0)) for run in runs)
    assert first == other


def test_settings_and_pace_act_in_mid_run(narrow: tuple[Place, RemoteEngine]) -> None:
    place, engine = narrow
    run = engine.submit(Request(place.ids(), CAREFUL), pace=2000.0)
    assert eventually(lambda: len(steps(run)) == 1)
    run.pace = 0.0
    assert eventually(lambda: len(steps(run)) > 2, 10)
    for tau in (0.25, 0.5):
        run.settings = replace(run.settings, tau=tau)
    assert eventually(lambda: steps(run)[-1].rows[0].settings.tau == 0.5, 5)
    assert not run.is_finished
    assert steps(run)[0].rows[0].settings.tau == 1.0
    with pytest.raises(SettingsError):
        run.settings = replace(run.settings, max_new_tokens=4000)


def test_stop_ends_one_lane_and_then_the_other(narrow: tuple[Place, RemoteEngine]) -> None:
    place, engine = narrow
    first, other = engine.race([Request(place.ids(), CAREFUL), Request(place.ids(), AR)])
    assert eventually(lambda: bool(steps(first) and steps(other)))
    first.cancel()
    assert first.wait(5)
    assert first.events_since(0)[-1] == End("cancelled")
    assert not other.is_finished
    other.cancel()
    assert other.wait(5)
    assert place.is_idle(5)


def test_who_waits_there_knows_it_here_and_a_full_line_is_busy(
    narrow: tuple[Place, RemoteEngine],
) -> None:
    place, engine = narrow
    first, second = (engine.submit(Request(place.ids(), AR)) for _ in range(2))
    assert eventually(lambda: second.place == 1)
    assert first.place == 0
    with pytest.raises(EngineBusy, match="2 runs are active or queued"):
        engine.submit(Request(place.ids(), AR))
    second.cancel()
    assert second.wait(5)
    engine.close()  # as a page does that closes
    assert first.wait(5)
    assert place.is_idle(5)
    with pytest.raises(EngineError):
        engine.submit(Request(place.ids(), AR))


def test_what_cannot_be_served_is_refused_in_the_words_of_the_engine(
    place: Place, engine: RemoteEngine
) -> None:
    with pytest.raises(RequestError, match="depth"):
        engine.submit(Request(place.ids(), replace(CAREFUL, block_size=9)))
    with pytest.raises(RequestError, match=FOREIGN_IDS):
        engine.submit(Request([100_000], CAREFUL))
    with pytest.raises(RequestError, match=NO_BATCH):
        engine.solo(lambda *_: iter(()), CAREFUL)


def test_the_death_of_the_machine_is_a_sentence_and_its_return_is_noticed(tmp_path: Path) -> None:
    with serving(tmp_path, Oracle(forward_seconds=0.05)) as place:
        engine = remote(place)
        run = engine.submit(Request(place.ids(), AR))
        assert eventually(lambda: bool(steps(run)))
        prompt, port = place.ids(), int(place.address.rsplit(":", 1)[1])
    assert run.wait(20)
    assert run.events_since(0)[-1] == End("error", LOST)
    with pytest.raises(EngineError, match="does not answer"):
        engine.submit(Request(prompt, AR))
    with serving(tmp_path, Oracle(), port=port):
        again = engine.submit(Request(prompt, AR))
        assert again.wait(60)
        assert again.events_since(0)[-1].reason == "eos"
    engine.close()


class Torn(BaseHTTPRequestHandler):
    """A server with a connection that breaks in the middle of a line."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", "1000")
        self.send_header("x-run-id", "run-1")
        self.end_headers()
        self.wfile.write(b'event: state\ndata: {"place":0,"is_held_up":false,"is_hurried":false,')

    def log_message(self, *words: object) -> None:
        """Print nothing."""


def test_a_stream_that_is_torn_is_a_sentence() -> None:
    with HTTPServer(("127.0.0.1", 0), Torn) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        engine = RemoteEngine(Machine(f"http://127.0.0.1:{server.server_port}", ""), NAME, 1000)
        run = engine.submit(Request([104], AR))
        assert run.wait(10)
        assert run.events_since(0)[-1] == End("error", LOST)
        engine.close()
        server.shutdown()


def test_an_absent_machine_and_a_missing_key_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=AWAY[:20]):
        Machine("http://127.0.0.1:1").about(NAME, 5)
    with serving(tmp_path, Oracle(), key="secret") as place:
        with pytest.raises(EngineError, match="key"):
            Machine(place.address).about(NAME, 60)
        engine = remote(place, "secret")
        assert engine.submit(Request(place.ids(), AR)).wait(60)
        engine.close()


def test_reading_costs_no_thread_once_it_is_over(place: Place, engine: RemoteEngine) -> None:
    before = threading.active_count()
    for _ in range(5):
        assert engine.submit(Request(place.ids(), RECOMMENDED)).wait(60)
    assert eventually(lambda: threading.active_count() <= before, 10)


# Runs by their names.

LANE = {"prompt_ids": [1, 2], "max_new_tokens": 4, "method": "ar"}


def begun(place: Place) -> tuple[str, Iterator[Any]]:
    """Return the name of an answer that has begun, and its further chunks."""
    settings = {"method": "mars", "tau": 1.0, "block_size": 4, "lossless": False}
    chunks = iter(chat(place, stream=True, extra_body=settings))
    return next(chunks).id, chunks


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tau": 2}, "threshold"),
        ({"tau": [1]}, "threshold"),
        ({"block_size": "wide"}, "block size"),
        ({"block_size": 9}, "depth"),
        ({"metric": ["probability"]}, "confidence measure"),
        ({"pace": "unhurried"}, "pace"),
        ({"lane": 1}, "lane"),
        ({"max_new_tokens": 100_000}, "max_new_tokens"),
    ],
)
def test_an_answer_is_steered_and_stopped_by_its_id(few: Place, changes: Any, words: str) -> None:
    """A change that makes no sense is refused and changes nothing."""
    name, chunks = begun(few)
    url = f"/v1/runs/{name}/settings"
    refused = few.http.post(url, json={"tau": 0.0, **changes})
    assert refused.status_code == 400
    assert words in refused.json()["error"]["message"]
    if words == "lane":
        assert few.http.post(url, json={"tau": 0.0, "block_size": 8}).status_code == 204
        assert list(chunks)[-1].mars["tokens_per_forward"] > 2
        name, chunks = begun(few)
    for _ in range(3):
        assert len(next(chunks).choices[0].delta.content.encode()) <= 4
    assert few.http.delete(f"/v1/runs/{name}").status_code == 204
    with pytest.raises(openai.APIError):
        list(chunks)
    assert few.is_idle(5)
    gone = few.http.delete(f"/v1/runs/{name}")
    assert gone.status_code == 404
    assert "This run does not exist" in gone.json()["error"]["message"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lanes": [7]}, "prompt_ids"),
        ({"lanes": [{**LANE, "prompt_ids": ["a"]}]}, FOREIGN_IDS),
        ({"lanes": [{**LANE, "prompt_ids": [258]}]}, FOREIGN_IDS),  # the mask
        ({"lanes": [{**LANE, "prompt_ids": [-1]}]}, FOREIGN_IDS),
        ({"lanes": [{**LANE, "max_new_tokens": 5000}]}, "tokens to generate"),
        ({"lanes": [{**LANE, "block_size": 9}]}, "depth"),
        ({"lanes": [{**LANE, "is_checked": 1}]}, "is_checked"),
        ({"lanes": [{**LANE, "reuses": "no"}]}, "reuses"),
        ({"pace": -1}, "pace"),
    ],
)
def test_a_run_that_makes_no_sense_is_refused(place: Place, changes: Any, words: str) -> None:
    body = {"model": NAME, "lanes": [LANE], **changes}
    refused = place.http.post("/v1/runs", json=body)
    assert refused.status_code == 400, refused.text
    assert words in refused.json()["error"]["message"]
    assert place.is_idle(5)


def test_a_run_streams_its_trace_lines(place: Place) -> None:
    body = {"model": NAME, "lanes": [LANE, {**LANE, "method": "mars"}]}
    answer = place.http.post("/v1/runs", json=body)
    assert answer.headers["x-run-id"].startswith("run-")
    names = [line[7:] for line in answer.text.splitlines() if line.startswith("event: ")]
    assert set(names) == {"0", "1", "state"}
    assert answer.text.count('"type":"end"') == 2


def test_the_lanes_of_a_race_count_as_runs_of_their_address(few: Place) -> None:
    def race(number: int) -> dict[str, Any]:
        return {"model": NAME, "lanes": [{"prompt_ids": few.ids()}] * number}

    assert few.http.post("/v1/runs", json=race(3)).status_code == 429
    with few.http.stream("POST", "/v1/runs", json=race(2)) as both:
        assert both.status_code == 200
        refused = few.http.post("/v1/runs", json=race(1))
        assert (refused.status_code, refused.json()["error"]["message"]) == (429, RATE_LIMITED)
    assert eventually(few.is_idle)
    assert few.http.post("/v1/runs", json=race(1)).status_code == 200
