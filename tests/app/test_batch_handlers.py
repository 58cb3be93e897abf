"""The Batch tab without a browser: its lines, its ends, its visitors."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_page import TEXT, BatchBackend, controls, make_page

from app.batch.run import BatchHandlers
from mars_runtime.trace_reader import read_trace


@pytest.fixture
def page(tmp_path: Path) -> Iterator[tuple[BatchHandlers, BatchBackend]]:
    handlers, backend = make_page(tmp_path)
    backend.forward_seconds = 0.0
    yield handlers.batch, backend
    handlers.engines.close()


def parsed(value: str) -> tuple[dict, list[tuple[str, dict]]]:
    first, *lines = value.splitlines()
    pairs = [line.split("\t", 1) for line in lines]
    return json.loads(first), [(tag, json.loads(data)) for tag, data in pairs]


def of_tag(lines: list[tuple[str, dict]], tag: str) -> list[dict]:
    return [data for found, data in lines if found == tag]


def test_two_methods_run_in_turn_on_the_same_prompts(page) -> None:
    batch, _ = page
    *_, last = batch.run("visitor", controls())
    head, lines = parsed(last)
    assert [side["title"] for side in head["sides"]] == [
        "MARS, cursor cache",
        "MARS, block cache 8",
    ]
    assert head["prompts"][2] == "The third\nrow."
    tags = [tag for tag, _ in lines if tag in ("a", "b")]
    assert tags == sorted(tags), "one after the other"
    totals = {data["side"]: data for data in of_tag(lines, "totals")}
    assert totals["a"]["num_tokens"] == totals["b"]["num_tokens"] > 100
    assert totals["a"]["num_idle"] == 0 < totals["b"]["num_idle"]
    assert totals["a"]["effective_tpf"] > totals["b"]["effective_tpf"] > 0
    assert totals["b"]["num_commits"] >= 4
    assert totals["a"]["peak_cache_bytes"] > 0
    assert len(of_tag(lines, "figures")) == 2
    assert [data["kind"] for data in of_tag(lines, "status")][-1] == "finished"


def test_the_lines_of_a_side_are_a_trace(page) -> None:
    batch, _ = page
    *_, last = batch.run("visitor", controls(second="none", method="block"))
    _, *lines = last.splitlines()
    trace = read_trace(line.split("\t", 1)[1] for line in lines if line.startswith("a\t"))
    assert trace.header.name == "MARS, block cache 8"
    text = b"".join(
        trace.vocabulary[token]
        for step in trace.events[1:-1]
        for row in step.rows
        if row.row == 0
        for token in row.accepted
    )
    assert text.startswith(TEXT.encode()[:30])


@pytest.mark.parametrize("method", ["ar", "uncached"])
def test_the_other_methods_run_too(page, method: str) -> None:
    batch, _ = page
    *_, last = batch.run("visitor", controls(method=method, second="none", batch_size=2))
    _, lines = parsed(last)
    assert of_tag(lines, "a")[-1]["reason"] == "eos"


def test_stop_ends_the_run_and_begins_no_other(page) -> None:
    batch, backend = page
    backend.forward_seconds = 0.03
    values = batch.run("visitor", controls())
    for value in values:
        if '"type":"step"' in value:
            break
    batch.stop("somebody else")
    batch.stop("visitor")
    *_, last = values
    _, lines = parsed(last)
    assert of_tag(lines, "a")[-1]["reason"] == "cancelled"
    assert of_tag(lines, "b") == []
    assert of_tag(lines, "status")[-1]["kind"] == "stopped"
    assert len(batch.runs) == 0


def test_a_closed_tab_ends_the_run(page) -> None:
    batch, backend = page
    backend.forward_seconds = 0.03
    values = batch.run("visitor", controls())
    while '"type":"step"' not in next(values):
        pass
    run = batch.runs.of("visitor").transcripts[0].run
    values.close()
    assert run.wait(5)
    assert run.events_since(0)[-1].reason == "cancelled"


def test_a_second_run_of_a_visitor_replaces_the_first(page) -> None:
    batch, backend = page
    backend.forward_seconds = 0.02
    seen: list[str] = []
    first = threading.Thread(target=lambda: seen.extend(batch.run("visitor", controls())))
    first.start()
    while not (seen and '"type":"step"' in seen[-1]):
        first.join(0.01)
    backend.forward_seconds = 0.0
    *_, last = batch.run("visitor", controls(second="none", prompts="Another."))
    first.join(10)
    assert not first.is_alive()
    assert of_tag(parsed(seen[-1])[1], "status")[-1]["kind"] == "stopped"
    assert of_tag(parsed(last)[1], "status")[-1]["kind"] == "finished"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"prompts": ""}, "Type at least one prompt, one per line, or take the examples."),
        ({"cache_block": 3}, "The cache block must be a whole number from 4 to 256."),
        ({"checkpoint": "absent"}, "absent"),
    ],
)
def test_what_cannot_run_is_one_sentence(page, changes, sentence) -> None:
    batch, _ = page
    values = controls(**changes)
    assert (str(batch.check(values) or "") == sentence) == ("absent" not in changes.values())
    *_, last = batch.run("visitor", values)
    (status,) = [d for d in of_tag(parsed(last)[1], "status") if d["kind"] == "error"]
    assert sentence in status["text"]


def test_a_fault_ends_the_batch_with_a_sentence_and_the_next_works(page) -> None:
    batch, backend = page
    backend.fails_at = 5
    *_, last = batch.run("visitor", controls())
    status = of_tag(parsed(last)[1], "status")[-1]
    assert status["kind"] == "error"
    assert status["text"].startswith("Decoding failed (RuntimeError)")
    backend.fails_at = 0
    *_, last = batch.run("visitor", controls())
    assert of_tag(parsed(last)[1], "status")[-1]["kind"] == "finished"


def test_examples_are_one_a_line_and_new_at_each_turn(page) -> None:
    batch, _ = page
    first, second = batch.examples.text(0, "scripted"), batch.examples.text(1, "scripted")
    assert len(first.splitlines()) == len(second.splitlines()) == 8
    assert not set(first.splitlines()) & set(second.splitlines())
    assert batch.check(controls(prompts=first)) is None
