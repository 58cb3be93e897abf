"""The metrics count what clients requested."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families as families
from scripted_server import NAME, Oracle, Place, chat, eventually, serving

from mars_runtime.engine import Engine
from mars_runtime.serving.metrics import Metrics
from tests.engine.scripted import Script, request

Samples = Mapping[tuple[str, tuple[str, ...]], float]


def samples(text: str) -> Samples:
    """(name without the prefix, label values but the model's) -> value."""
    actual = {}
    for family in families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("model_name") == NAME
            assert labels.keys() <= {"le", "finished_reason", "position"}
            actual[sample.name.removeprefix("mars:"), tuple(labels.values())] = sample.value
    return actual


def scraped(place: Place) -> Samples:
    answer = place.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return samples(answer.text)


def test_what_was_asked_is_counted(tmp_path: Path) -> None:
    with serving(tmp_path, Oracle()) as place:
        settings = {"lossless": False, "tau": 0.0, "block_size": 4}
        used = chat(place, max_tokens=10, extra_body=settings).usage  # 4 + 4 + 2
        chat(place, max_tokens=1, extra_body={"method": "ar"})
        assert eventually(lambda: ("request_success_total", ("length",)) in scraped(place))
        metrics = scraped(place)
    assert metrics["prompt_tokens_total", ()] == 2 * used.prompt_tokens
    assert metrics["generation_tokens_total", ()] == 11
    assert metrics["request_success_total", ("length",)] == 2
    assert metrics["num_requests_running", ()] == metrics["num_requests_waiting", ()] == 0
    assert metrics["kv_cache_usage_perc", ()] == 0
    assert metrics["spec_decode_num_drafts_total", ()] == 3
    assert metrics["spec_decode_num_draft_tokens_total", ()] == 7
    assert metrics["spec_decode_num_accepted_tokens_total", ()] == 7
    by_place = [
        metrics["spec_decode_num_accepted_tokens_per_pos_total", (str(k),)] for k in range(3)
    ]
    assert by_place == [3, 2, 2]
    assert metrics["iteration_tokens_total_count", ()] == 4
    assert metrics["iteration_tokens_total_sum", ()] == 11
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time"):
        assert metrics[f"{name}_seconds_count", ()] == 2
    assert metrics["inter_token_latency_seconds_count", ()] == 2
    assert metrics["request_time_per_output_token_seconds_count", ()] == 1


def test_those_that_run_and_wait_are_seen(tmp_path: Path) -> None:
    backend = Oracle(forward_seconds=0.02)
    backend.capacity = 100
    with serving(tmp_path, backend, max_runs=2, max_waiting=2) as place:
        streams = [chat(place, stream=True) for _ in range(3)]
        assert eventually(lambda: place.num_open == 3)
        assert eventually(lambda: scraped(place)["kv_cache_usage_perc", ()] > 0.3)
        metrics = scraped(place)
        assert metrics["num_requests_running", ()] == 2
        assert metrics["num_requests_waiting", ()] == 1
        for stream in streams:
            stream.close()
        assert eventually(lambda: place.num_open == 0)
        assert eventually(lambda: scraped(place).get(("request_success_total", ("abort",))) == 3)
        assert scraped(place)["kv_cache_usage_perc", ()] == 0


def test_a_shared_forward_is_one_iteration() -> None:
    start = threading.Event()
    metrics = Metrics()
    with Engine(Script(start=start)) as engine:
        metrics.watch(NAME, engine)
        runs = [engine.submit(request(token, 5)) for token in (1, 2, 3)]
        start.set()
        assert all(run.wait(60) for run in runs)
    actual = samples(metrics.expose().decode())
    assert actual["iteration_tokens_total_sum", ()] == 15
    assert actual["iteration_tokens_total_count", ()] < 15
    assert actual["generation_tokens_total", ()] == 15


def test_lanes_of_a_race_and_failures_are_counted() -> None:
    metrics = Metrics()
    with Engine(Script(fails_at={2: 1})) as engine:
        metrics.watch(NAME, engine)
        runs = [*engine.race([request(1), request(3)]), engine.submit(request(2))]
        assert all(run.wait(60) for run in runs)
    actual = samples(metrics.expose().decode())
    assert actual["request_success_total", ("length",)] == 2
    assert actual["request_success_total", ("error",)] == 1


def test_no_text_is_in_the_metrics(place: Place) -> None:
    secret = "grandmother"
    chat(place, [{"role": "user", "content": secret}])
    assert secret not in place.http.get("/metrics").text
