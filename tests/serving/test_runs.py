"""Runs by their names: steered and stopped in mid-run; what is posted past the page is checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from scripted_server import NAME, Oracle, Place, eventually, serving

LANE = {"prompt_ids": [1, 2], "max_new_tokens": 4, "method": "ar"}


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A forward takes 30 ms."""
    backend = Oracle(forward_seconds=0.03)
    with serving(tmp_path_factory.mktemp("slow"), backend, max_runs=4) as found:
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


def test_an_answer_is_steered_by_its_id(slow: Place) -> None:
    name, chunks = begun(slow)
    url = f"/v1/runs/{name}/settings"
    assert slow.http.post(url, json={"tau": 0.0, "block_size": 8}).status_code == 204
    assert list(chunks)[-1].mars["tokens_per_forward"] > 2
    _, chunks = begun(slow)
    assert list(chunks)[-1].mars["tokens_per_forward"] == 1


def test_an_answer_is_stopped_by_its_id(slow: Place) -> None:
    name, chunks = begun(slow)
    assert slow.http.delete(f"/v1/runs/{name}").status_code == 204
    with pytest.raises(openai.APIError):
        list(chunks)
    assert eventually(lambda: slow.num_open == 0, 5)
    gone = slow.http.delete(f"/v1/runs/{name}")
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
        ({"pace": "slow"}, "pace"),
        ({"lane": 1}, "lane"),
        ({"max_new_tokens": 100_000}, "max_new_tokens"),
    ],
)
def test_what_makes_no_sense_changes_nothing(slow: Place, changes: Any, words: str) -> None:
    name, chunks = begun(slow)
    refused = slow.http.post(f"/v1/runs/{name}/settings", json={"block_size": 8, **changes})
    assert refused.status_code == 400
    assert words in refused.json()["error"]["message"]
    (run,) = [run for job in slow.model.engine._scheduler._active for run in job.lanes]
    assert run.settings.block_size == 4
    slow.http.delete(f"/v1/runs/{name}")
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


def test_whatever_way_is_asked_the_address_owns_the_job(slow: Place) -> None:
    """Places are dealt out among addresses, so a run must not count as nobody's."""
    _, chunks = begun(slow)  # an answer whose chunks nobody holds is left, and ends

    def jobs() -> list[Any]:
        scheduler = slow.model.engine._scheduler
        return [*scheduler._active, *scheduler._waiting]

    lanes = [LANE | {"max_new_tokens": 64}]
    with slow.http.stream("POST", "/v1/runs", json={"model": NAME, "lanes": lanes}) as answer:
        assert answer.status_code == 200
        assert eventually(lambda: len(jobs()) == 2, 5)
        assert {job.owner for job in jobs()} == {"127.0.0.1"}
    del chunks
