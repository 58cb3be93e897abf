"""An engine on another machine: a plain server at the other end, the wire between. Runs by their
names: steered and stopped in mid-run; what is posted past the page is checked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from scripted_server import NAME, Oracle, Place, eventually, serving

from mars_runtime.engine import EngineBusy, EngineError, Request, RequestError, Run
from mars_runtime.engine.base import BaseEngine
from mars_runtime.events import End, Step
from mars_runtime.serving.remote import AWAY, LOST, NO_BATCH, Machine, RemoteEngine
from mars_runtime.settings import RECOMMENDED, DecodeSettings, SettingsError

CAREFUL = DecodeSettings(tau=1.0, block_size=4)
AR = DecodeSettings(method="ar", tau=1.0, block_size=1)


def remote(place: Place, key: str = "") -> RemoteEngine:
    machine = Machine(place.address, key)
    return RemoteEngine(machine, NAME, machine.about(NAME, 60).capacity)


@pytest.fixture
def engine(place: Place) -> Iterator[RemoteEngine]:
    found = remote(place)
    yield found
    found.close()


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Place]:
    """One at once, one in line; a forward takes 50 ms."""
    with serving(tmp_path, Oracle(forward_seconds=0.05), max_runs=1, max_waiting=1) as found:
        yield found


def ids(place: Place, text: str = "What is it?") -> list[int]:
    return place.model.tokenizer.encode_prompt(text)


def steps(run: Run) -> list[Step]:
    return [event for event in run.events_since(0) if isinstance(event, Step)]


def last(run: Run) -> End:
    end = run.events_since(0)[-1]
    assert isinstance(end, End)
    return end


@pytest.mark.parametrize("settings", [RECOMMENDED, CAREFUL, AR])
def test_what_comes_over_the_wire_is_what_the_engine_says(
    place: Place, engine: RemoteEngine, settings: DecodeSettings
) -> None:
    request = Request(ids(place), replace(settings, max_new_tokens=40), is_checked=True)
    here: BaseEngine = place.model.engine
    ours, theirs = engine.submit(request), here.submit(request)
    assert ours.wait(60)
    assert theirs.wait(60)
    timeless = [
        [replace(event, seconds=0.0) if isinstance(event, Step) else event for event in events]
        for events in (ours.events_since(0), theirs.events_since(0))
    ]
    assert timeless[0][1:] == timeless[1][1:]
    assert ours.clock == pytest.approx(sum(step.seconds for step in steps(ours)), abs=1e-2)


def test_its_tokenizer_travels(place: Place) -> None:
    about = Machine(place.address).about(NAME, 60)
    for text in ("ünï ☃ 👩‍👧", "<|im_end|>"):
        assert about.tokenizer.encode_prompt(text) == ids(place, text)
    assert about.tokenizer.forbidden_ids == place.model.tokenizer.forbidden_ids
    assert about.tokenizer.eos_ids == place.model.tokenizer.eos_ids
    assert (about.name, about.block_size) == (NAME, place.model.block_size)


def test_a_race_is_one_job_there(place: Place, engine: RemoteEngine) -> None:
    runs = engine.race([Request(ids(place), CAREFUL), Request(ids(place), AR)])
    assert all(run.wait(60) for run in runs)
    assert [last(run).reason for run in runs] == ["eos", "eos"]
    tokens = [[t for step in steps(run) for t in step.rows[0].accepted] for run in runs]
    assert tokens[0] == tokens[1]


def test_a_moved_slider_acts_in_mid_run(slow: Place) -> None:
    engine = remote(slow)
    run = engine.submit(Request(ids(slow), CAREFUL))
    assert eventually(lambda: len(steps(run)) > 2)
    run.settings = replace(run.settings, tau=0.25)
    run.settings = replace(run.settings, tau=0.5)
    assert eventually(lambda: steps(run)[-1].rows[0].settings.tau == 0.5, 5)
    assert not run.is_finished
    assert steps(run)[0].rows[0].settings.tau == 1.0
    with pytest.raises(SettingsError):
        run.settings = replace(run.settings, max_new_tokens=4000)
    engine.close()


def test_slow_motion_ends_in_mid_run(slow: Place) -> None:
    engine = remote(slow)
    run = engine.submit(Request(ids(slow), AR), pace=2000.0)
    assert eventually(lambda: len(steps(run)) == 1)
    run.pace = 0.0
    assert eventually(lambda: len(steps(run)) > 3, 10)
    engine.close()


def test_stop_ends_one_lane_and_then_the_other(slow: Place) -> None:
    engine = remote(slow)
    one, other = engine.race([Request(ids(slow), CAREFUL), Request(ids(slow), AR)])
    assert eventually(lambda: bool(steps(one) and steps(other)))
    one.cancel()
    assert one.wait(5)
    assert last(one) == End("cancelled")
    assert not other.is_finished
    other.cancel()
    assert other.wait(5)
    assert eventually(lambda: slow.num_open == 0, 5)


def test_a_page_that_closes_frees_the_rows(slow: Place) -> None:
    engine = remote(slow)
    run = engine.submit(Request(ids(slow), AR))
    assert eventually(lambda: slow.num_open == 1)
    engine.close()
    assert run.wait(5)
    assert eventually(lambda: slow.num_open == 0, 5)
    with pytest.raises(EngineError):
        engine.submit(Request(ids(slow), AR))


def test_who_waits_there_is_told_so_here_and_a_full_line_is_busy(slow: Place) -> None:
    engine = remote(slow)
    first, second = (engine.submit(Request(ids(slow), AR)) for _ in range(2))
    assert eventually(lambda: second.place == 1)
    assert first.place == 0
    with pytest.raises(EngineBusy, match="ahead"):
        engine.submit(Request(ids(slow), AR))
    second.cancel()
    assert second.wait(5)
    engine.close()


def test_what_cannot_be_served_is_refused_in_the_words_of_the_engine(
    place: Place, engine: RemoteEngine
) -> None:
    with pytest.raises(RequestError, match="depth"):
        engine.submit(Request(ids(place), replace(CAREFUL, block_size=9)))
    with pytest.raises(RequestError, match="no text of this model"):
        engine.submit(Request([100_000], CAREFUL))
    with pytest.raises(RequestError, match="Batches"):
        engine.solo(lambda *_: iter(()), CAREFUL)
    assert NO_BATCH.endswith(".")


def test_the_death_of_the_machine_is_a_sentence_and_its_return_is_noticed(tmp_path: Path) -> None:
    with serving(tmp_path, Oracle(forward_seconds=0.05)) as place:
        engine = remote(place)
        run = engine.submit(Request(ids(place), AR))
        assert eventually(lambda: bool(steps(run)))
        prompt, port = ids(place), int(place.address.rsplit(":", 1)[1])
    assert run.wait(20)
    assert last(run) == End("error", LOST)
    with pytest.raises(EngineError, match="does not answer"):
        engine.submit(Request(prompt, AR))
    with serving(tmp_path, Oracle(), port=port) as place:
        again = engine.submit(Request(prompt, AR))
        assert again.wait(60)
        assert last(again).reason == "eos"
    engine.close()


def test_a_stream_that_is_torn_is_a_sentence(slow: Place, monkeypatch: Any) -> None:
    engine = remote(slow)

    def torn(self: httpx.Response) -> Iterator[str]:
        yield from ("event: state", 'data: {"place":0,"is_held_up":false,"is_hurried":false,')
        raise httpx.RemoteProtocolError("peer closed connection")

    monkeypatch.setattr(httpx.Response, "iter_lines", torn)
    run = engine.submit(Request(ids(slow), AR))
    assert run.wait(10)
    assert last(run) == End("error", LOST)
    engine.close()


def test_nobody_there_and_no_key_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=AWAY[:20]):
        Machine("http://127.0.0.1:1").about(NAME, 5)
    with serving(tmp_path, Oracle(), key="secret") as place:
        with pytest.raises(EngineError, match="key"):
            Machine(place.address).about(NAME, 60)
        engine = remote(place, "secret")
        assert engine.submit(Request(ids(place), AR)).wait(60)
        engine.close()


def test_reading_costs_no_thread_once_it_is_over(place: Place, engine: RemoteEngine) -> None:
    before = threading.active_count()
    for _ in range(5):
        assert engine.submit(Request(ids(place), RECOMMENDED)).wait(60)
    until = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() <= before


LANE = {"prompt_ids": [1, 2], "max_new_tokens": 4, "method": "ar"}


@pytest.fixture(scope="module")
def unhurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A forward takes 30 ms."""
    backend = Oracle(forward_seconds=0.03)
    with serving(tmp_path_factory.mktemp("unhurried"), backend, max_runs=4) as found:
        yield found


def begun(place: Place, **more: Any) -> tuple[str, Iterator[Any]]:
    """The name of an answer that has begun, and its further chunks."""
    own = {"method": "mars", "tau": 1.0, "block_size": 4, "lossless": False}
    messages = [{"role": "user", "content": "What is it?"}]
    chunks = iter(
        place.client.chat.completions.create(
            model=NAME, messages=messages, stream=True, extra_body={**own, **more}
        )
    )
    return next(chunks).id, chunks


def test_an_answer_is_steered_by_its_id(unhurried: Place) -> None:
    name, chunks = begun(unhurried)
    url = f"/v1/runs/{name}/settings"
    assert unhurried.http.post(url, json={"tau": 0.0, "block_size": 8}).status_code == 204
    assert list(chunks)[-1].mars["tokens_per_forward"] > 2
    _, chunks = begun(unhurried)
    assert list(chunks)[-1].mars["tokens_per_forward"] == 1


def test_an_answer_is_stopped_by_its_id(unhurried: Place) -> None:
    name, chunks = begun(unhurried)
    assert unhurried.http.delete(f"/v1/runs/{name}").status_code == 204
    with pytest.raises(openai.APIError):
        list(chunks)
    assert eventually(lambda: unhurried.num_open == 0, 5)
    gone = unhurried.http.delete(f"/v1/runs/{name}")
    assert gone.status_code == 404
    assert "No such run" in gone.json()["error"]["message"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tau": 2}, "threshold"),
        ({"tau": [1]}, "threshold"),
        ({"block_size": "wide"}, "block size"),
        ({"block_size": 9}, "depth"),
        ({"metric": ["probability"]}, "metric"),
        ({"pace": "unhurried"}, "pace"),
        ({"lane": 1}, "lane"),
        ({"max_new_tokens": 100_000}, "max_new_tokens"),
    ],
)
def test_what_makes_no_sense_changes_nothing(unhurried: Place, changes: Any, words: str) -> None:
    name, chunks = begun(unhurried)
    refused = unhurried.http.post(f"/v1/runs/{name}/settings", json={"block_size": 8, **changes})
    assert refused.status_code == 400
    assert words in refused.json()["error"]["message"]
    (run,) = [run for job in unhurried.model.engine._scheduler._active for run in job.lanes]
    assert run.settings.block_size == 4
    unhurried.http.delete(f"/v1/runs/{name}")
    with pytest.raises(openai.APIError):
        list(chunks)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lanes": []}, "lanes"),
        ({"lanes": [LANE] * 9}, "lanes"),
        ({"lanes": [7]}, "prompt_ids"),
        ({"lanes": [{**LANE, "prompt_ids": ["a"]}]}, "no text"),
        ({"lanes": [{**LANE, "prompt_ids": [258]}]}, "no text"),  # the mask
        ({"lanes": [{**LANE, "prompt_ids": [-1]}]}, "no text"),
        ({"lanes": [{**LANE, "max_new_tokens": 5000}]}, "tokens to generate"),
        ({"lanes": [{**LANE, "block_size": 9}]}, "depth"),
        ({"lanes": [{**LANE, "is_checked": 1}]}, "is_checked"),
        ({"lanes": [{**LANE, "reuses": "no"}]}, "reuses"),
        ({"lanes": [{**LANE, "seconds": 0}]}, "seconds"),
        ({"pace": -1}, "pace"),
        ({"is_alone": "yes"}, "is_alone"),
    ],
)
def test_a_run_that_makes_no_sense_is_refused(place: Place, changes: Any, words: str) -> None:
    asked = {"model": NAME, "lanes": [LANE], **changes}
    refused = place.http.post("/v1/runs", json=asked)
    assert refused.status_code == 400, refused.text
    assert words in refused.json()["error"]["message"]
    assert eventually(lambda: place.num_open == 0, 5)


def test_a_run_streams_its_trace_lines(place: Place) -> None:
    asked = {"model": NAME, "lanes": [LANE, {**LANE, "method": "mars"}]}
    answer = place.http.post("/v1/runs", json=asked)
    assert answer.headers["x-run-id"].startswith("run-")
    names = [line[7:] for line in answer.text.splitlines() if line.startswith("event: ")]
    assert set(names) == {"0", "1", "state"}
    assert answer.text.count('"type":"end"') == 2


def test_the_key_guards_runs_too(tmp_path: Path) -> None:
    with serving(tmp_path, Oracle(), key="secret") as place:
        assert place.http.post("/v1/runs", json={}).status_code == 401
        assert place.http.post("/v1/runs/x/settings", json={}).status_code == 401
        assert place.http.delete("/v1/runs/x").status_code == 401
        assert place.http.get(f"/v1/models/{NAME}/about").status_code == 401


def test_whatever_way_is_asked_the_address_owns_the_job(unhurried: Place) -> None:
    """Places are dealt out among addresses, so a run must not count as nobody's."""
    _, chunks = begun(unhurried)  # an answer whose chunks nobody holds is left, and ends

    def jobs() -> list[Any]:
        scheduler = unhurried.model.engine._scheduler
        return [*scheduler._active, *scheduler._waiting]

    lanes = [LANE | {"max_new_tokens": 64}]
    with unhurried.http.stream("POST", "/v1/runs", json={"model": NAME, "lanes": lanes}) as answer:
        assert answer.status_code == 200
        assert eventually(lambda: len(jobs()) == 2, 5)
        assert {job.owner for job in jobs()} == {"127.0.0.1"}
    del chunks
