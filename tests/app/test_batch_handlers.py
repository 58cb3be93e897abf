"""The Batch tab without a browser: its lines, its ends, its visitors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_page import CHEAP, DEAR, TEXT, BatchBackend, controls, make_page
from hypothesis import given
from hypothesis import strategies as st
from live_page import lane_trace, lines_of
from test_folds import BATCH_EVENTS as EVENTS

from app.throughput.batch import (
    CANNOT_PAY,
    LOOPED,
    LOOPED_SEVERAL,
    BatchHandlers,
    Side,
    forwards_figure,
    time_figure,
)
from app.throughput.batch_order import (
    prompts_as_text,
    read_batch_order,
)
from app.ui.controls import Limits, RefusalError
from mars_runtime.speedup import NEAR


@pytest.fixture
def page(tmp_path: Path) -> Iterator[tuple[BatchHandlers, BatchBackend]]:
    handlers, backend = make_page(tmp_path)
    backend.forward_seconds = 0.0
    yield handlers.batch, backend
    handlers.engines.close()


def of_tag(lines: list[tuple[str, dict]], tag: str) -> list[dict]:
    return [data for line, data in lines if line == tag]


def test_two_methods_run_in_turn_on_the_same_prompts(page) -> None:
    batch, _ = page
    first, second = (batch.examples.text(turn, "scripted").splitlines() for turn in (0, 1))
    assert len(first) == len(second) == len({*first, *second}) / 2 == 8  # new at each turn
    *_, last = batch.run("visitor", controls())
    head, lines = lines_of(last)
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
    rounds = {data["side"]: data for data in of_tag(lines, "rounds")}
    assert {data["rounds"] for data in rounds.values()} == {3}
    median, low, high = rounds["a"]["rate"]
    assert 0 < low <= median <= high
    assert [data["kind"] for data in of_tag(lines, "status")][-1] == "finished"


def test_methods_take_turns_in_every_round_and_the_order_is_reversed(page) -> None:
    """Five rounds where they are asked for; only the first is drawn."""
    batch, backend = page
    began: list[str] = []
    decode = backend.decode

    def noted(request, settings):
        began.append(settings().method)
        return decode(request, settings)

    backend.decode = noted
    *_, last = batch.run("visitor", controls(second="ar", rounds=5))
    assert began == ["mars", "ar", "ar", "mars", "mars", "ar", "ar", "mars", "mars", "ar"]
    _, lines = lines_of(last)
    assert len([tag for tag, data in lines if tag == "b" and data["type"] == "header"]) == 1
    assert of_tag(lines, "rounds")[-1]["rounds"] == 5
    assert "timed in 5 rounds." in of_tag(lines, "status")[-1]["text"]


def test_auto_drafts_where_that_is_cheap_and_says_where_it_cannot_pay(page) -> None:
    """B is chosen by the measured cost of forwards: if they are expensive the batch is decoded as
    by AR, so it can't lose, and one sentence explains why nothing is gained.
    """
    batch, backend = page
    request = controls(second="ar", auto=True, lossless=True, tau=0.0)
    passes = {}
    for costs in (CHEAP, DEAR):
        backend.costs = costs
        *_, last = batch.run("visitor", request)
        _, lines = lines_of(last)
        totals = {data["side"]: data for data in of_tag(lines, "totals")}
        passes[costs is DEAR] = [totals[side]["num_forwards"] for side in ("a", "b")]
        status = of_tag(lines, "status")[-1]
        high = [data for data in of_tag(lines, "rounds") if data["side"] == "a"][-1]["high"]
        assert (CANNOT_PAY in status["text"]) == (high is not None and high < NEAR)
    assert passes[False][0] < passes[False][1]
    assert passes[True][0] >= 0.95 * passes[True][1]


def test_a_batch_counts_up_to_the_loops_of_its_texts_and_says_so(page) -> None:
    batch, backend = page
    backend.text, backend.row_bytes = f"Now: {'ha ' * 60}", 120
    *_, last = batch.run("visitor", controls(second="ar", max_new_tokens=160))
    _, lines = lines_of(last)
    for totals in of_tag(lines, "totals")[-2:]:
        assert totals["num_looped"] > 0
        assert totals["counted_forwards"] < totals["num_forwards"]
        rate = (totals["num_tokens"] - totals["num_loop_tokens"]) / (
            totals["seconds"] - totals["loop_seconds"]
        )
        assert totals["tokens_per_second"] == pytest.approx(rate)
    said = of_tag(lines, "status")[-1]["text"]
    num = totals["num_looped"]
    assert (LOOPED if num == 1 else LOOPED_SEVERAL.format(num)) in said


def test_the_rounds_within_the_time_limit_are_reported(tmp_path: Path) -> None:
    handlers, backend = make_page(tmp_path, max_seconds=3.0)
    backend.forward_seconds = 0.036
    *_, last = handlers.batch.run("visitor", controls(second="ar", rounds=5))
    handlers.engines.close()
    status = of_tag(lines_of(last)[1], "status")[-1]
    assert status["kind"] == "finished"
    assert re.search(r"timed in [1-4] of 5 rounds before the time limit", status["text"])


def test_the_lines_of_a_side_are_a_trace(page) -> None:
    batch, _ = page
    *_, last = batch.run("visitor", controls(second="none", method="uncached", batch_size=2))
    assert of_tag(lines_of(last)[1], "a")[-1]["reason"] == "eos"
    *_, last = batch.run("visitor", controls(second="none", method="block"))
    trace = lane_trace(last, "a")
    assert trace.header.name == "MARS, block cache 8"
    text = b"".join(
        trace.vocabulary[token]
        for step in trace.events[1:-1]
        for row in step.rows
        if row.row == 0
        for token in row.accepted
    )
    assert text.startswith(TEXT.encode()[:30])


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
    _, lines = lines_of(last)
    assert of_tag(lines, "a")[-1]["reason"] == "cancelled"
    assert of_tag(lines, "b") == []
    assert of_tag(lines, "status")[-1]["kind"] == "stopped"
    assert len(batch.runs) == 0


def test_a_fault_ends_the_batch_with_a_sentence_and_the_next_works(page) -> None:
    batch, backend = page
    backend.fails_at = 5
    *_, last = batch.run("visitor", controls())
    status = of_tag(lines_of(last)[1], "status")[-1]
    assert status["kind"] == "error"
    assert status["text"].startswith("Decoding failed (RuntimeError)")
    backend.fails_at = 0
    *_, last = batch.run("visitor", controls())
    assert of_tag(lines_of(last)[1], "status")[-1]["kind"] == "finished"


LIMITS = Limits(max_prompt_chars=40, max_new_tokens=512, block_size=8)
VALUES = {
    "prompts": "One.\nTwo ⏎ lines.",
    "method": "cursor",
    "second": "block",
    "batch_size": 4.0,
    "tau": 0.9,
    "lossless": False,
    "block_size": 4.0,
    "cache_block": 16,
    "max_new_tokens": 64,
    "checkpoint": "mars-tiny",
}


def test_an_order() -> None:
    order = read_batch_order(VALUES, LIMITS)
    assert order.prompts == ("One.", "Two\nlines.")
    assert order.methods == ("cursor", "block")
    assert (order.batch_size, order.cache_block) == (4, 16)
    assert (order.settings.tau, order.settings.block_size) == (0.9, 4)
    assert order.title("block") == "MARS, block cache 16"
    assert read_batch_order({**VALUES, "second": "none"}, LIMITS).methods == ("cursor",)
    assert order.rounds == 3
    assert read_batch_order({**VALUES, "rounds": 5.0}, LIMITS).rounds == 5


@pytest.mark.parametrize(
    ("chosen", "fixed"), [({"auto": True, "block_size": 3}, 3), ({"block_size": "auto"}, 4)]
)
def test_auto_is_for_the_cursor_cache_and_the_others_get_a_number(chosen, fixed) -> None:
    order = read_batch_order({**VALUES, **chosen}, LIMITS)
    assert order.of("cursor").block_size == "auto"
    assert order.of("block").block_size == order.of("uncached").block_size == fixed


@given(st.lists(st.lists(st.sampled_from(["a b", "", "$x"]), min_size=1).map("\n".join)))
def test_prompts_survive_the_text_box(prompts) -> None:
    remaining = [prompt for prompt in prompts if prompt.strip()][:16]
    if remaining:
        limits = Limits(10_000, 512, 8)
        values = {**VALUES, "prompts": prompts_as_text(remaining)}
        assert list(read_batch_order(values, limits).prompts) == remaining


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"prompts": " \n "}, "prompts", "Type at least one prompt"),
        ({"prompts": "x\n" * 17}, "prompts", "at most 16 prompts"),
        ({"prompts": "ok\n" + "y" * 41}, "prompts", "Prompt 2: Shorten the prompt"),
        ({"method": "magic"}, "method", "Choose a method"),
        ({"second": "cursor"}, "second", "differs from the first"),
        ({"batch_size": 0}, "batch_size", "batch size must be a whole number from 1 to 16"),
        ({"batch_size": float("nan")}, "batch_size", "batch size must be a whole number"),
        ({"cache_block": 2}, "cache_block", "cache block must be a whole number from 4 to 256"),
        ({"block_size": 9}, "block_size", "was trained for a B of at most"),
        ({"max_new_tokens": 300}, "max_new_tokens", "at most 256 tokens"),
        ({"rounds": 1}, "rounds", "Choose 3 or 5 rounds."),
        ({"auto": 1}, "auto", "must be on or off"),
    ],
)
def test_refusals_name_the_control(changes, field, sentence) -> None:
    with pytest.raises(RefusalError, match=sentence) as caught:
        read_batch_order({**VALUES, **changes}, LIMITS)
    assert caught.value.field == field


SIDES = [Side("MARS, block cache 4", False, EVENTS), Side("plain AR", True, EVENTS[:2])]


def test_tokens_against_time_for_both() -> None:
    first, second = time_figure(SIDES)["data"]
    assert (first["x"], first["y"]) == ([0, 0.5, 1.5, 2.5, 3, 4], [0, 2, 6, 8, 9, 10])
    assert (second["x"], second["y"]) == ([0, 0.5], [0, 2])
    assert (first["line"]["color"], second["line"]["color"]) == ("@mars", "@ar")
    labels = [label["text"] for label in time_figure(SIDES)["layout"]["annotations"]]
    assert labels[0].endswith("MARS, block cache 4")


def test_accepted_up_and_idle_down_with_commits_marked() -> None:
    figure = forwards_figure(SIDES[:1])
    taken, waiting, finished = figure["data"]
    assert taken["y"] == [2, 4, 2, 1, 1]
    assert waiting["y"] == [0, 0, -1, 0, 0]
    assert finished["y"] == [0, 0, 0, -1, 0]
    colours = taken["marker"]["color"]
    assert [colour == "@mars" for colour in colours] == [True, False, False, True, False]
    assert not any("-" in tick for tick in figure["layout"]["yaxis"]["ticktext"])


def test_only_the_cursor_cache_verifies_and_the_others_keep_what_they_are_sure_of() -> None:
    order = read_batch_order({**VALUES, "tau": 0.0, "lossless": True}, LIMITS)
    cursor, block, plain = (order.of(method) for method in ("cursor", "block", "ar"))
    assert (cursor.lossless, cursor.tau) == (True, 0.0)
    assert (block.lossless, block.tau) == (False, 0.95)
    assert (plain.method, plain.lossless) == ("ar", False)
    assert order.title("cursor") == "MARS, cursor cache, lossless"
    bold = read_batch_order({**VALUES, "tau": 0.5}, LIMITS)
    assert bold.of("block").tau == 0.5
