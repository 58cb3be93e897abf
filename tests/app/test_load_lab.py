"""The Load lab tab without a browser: its order, its lines, its ends, its visitors."""

from __future__ import annotations

import json
import re
import statistics
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import needs_browser, opened, playwright, see
from live_page import open_tab, over
from load_page import controls, make_page
from scripted_page import ScriptedBackend, eventually, page_served

from app.engines.engines import UNLISTED
from app.throughput.traffic import CANNOT_PAY, THREAD, TrafficHandlers
from app.throughput.traffic_order import (
    ARRIVAL_TIMES,
    AT_A_TIME,
    DEADLINE,
    DURATION,
    IN_ALL,
    LATE,
    LOWEST_TAU,
    MAX_REQUESTS,
    NO_METHODS,
    read_traffic_order,
)
from app.throughput.traffic_tab import METHODS, NUM_TOKENS, RECORDED, SECONDS
from app.ui.controls import Limits
from app.ui.stream import TIME_LIMIT
from mars_runtime.engine.request import Request
from mars_runtime.settings import DecodeSettings
from mars_runtime.traffic.controller import Bounds, methods_for
from mars_runtime.traffic.workload import read_recorded

LIMITS = Limits(8000, 512, 8)
Made = tuple[TrafficHandlers, ScriptedBackend]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    handlers, backend = make_page(tmp_path_factory.mktemp("made"))
    yield handlers.traffic, backend
    handlers.engines.close()


@pytest.fixture
def page(made: Made) -> Made:
    """The same page for all tests, at full speed, without a request yet."""
    made[1].forward_seconds = 0.001
    made[1].prompts.clear()
    return made


def of_tag(value: str, tag: str) -> list[dict]:
    pairs = [line.split("\t", 1) for line in value.splitlines()[1:]]
    return [json.loads(data) for pair, data in pairs if pair == tag]


def whole(load: TrafficHandlers, value: str) -> str:
    """Return all lines of a run, from values that hold only the latest ones."""
    return load.logs.missed(json.loads(value.splitlines()[0])["run"])


def test_methods_run_on_the_same_arrivals_and_everything_is_logged(page) -> None:
    load, _ = page
    *_, last = load.run("visitor", controls())
    actual = whole(load, last)
    head = json.loads(actual.splitlines()[0])
    assert [way["name"] for way in head["ways"]] == ["ar", "follow"]
    assert of_tag(actual, "status")[-1]["kind"] == "finished"
    (about,) = of_tag(actual, "about")
    assert (about["checkpoint"], about["places"]) == ("scripted", 3)
    ends = {tick["way"]: tick for tick in of_tag(actual, "tick")}
    count = len(read_traffic_order(controls(), LIMITS).parts[0].arrivals)
    for tick in ends.values():
        assert (tick["num_arrived"], tick["num_done"], tick["queue"]) == (count, count, 0)
        assert tick["ttft"]["p50"] <= tick["ttft"]["p99"]
    assert ends["ar"]["tpf"] == 1
    assert head["rounds"] == 3
    turns = [tick["way"] for tick in of_tag(actual, "tick") if tick.get("over")]
    assert turns == ["ar", "follow", "follow", "ar", "ar", "follow"]
    assert next(line["way"] for line in of_tag(actual, "decision")) == "follow"
    assert all(0.4 <= line["tau"] <= 0.9 for line in of_tag(actual, "decision"))
    agreed = {line["way"]: line for line in of_tag(actual, "agreement")}
    assert agreed["follow"]["share"] == 1.0
    assert (agreed["ar"]["num_requests"], agreed["ar"]["sampled"]) == (count, False)


def test_agreement_is_sampled_where_ar_was_not_asked_for(page) -> None:
    load, _ = page
    *_, last = load.run("visitor", controls(ways=["fixed"], kind="recorded", recorded="0, 0.1"))
    (line,) = of_tag(whole(load, last), "agreement")
    assert line == {"way": "fixed", "share": 1.0, "num_requests": 2, "sampled": True}


def test_a_curve_has_a_point_for_each_rate(page) -> None:
    load, _ = page
    *_, last = load.run("visitor", controls(question="curve", ways=["ar"], rate=8))
    points = [point["offered"] for point in of_tag(whole(load, last), "point")]
    assert (len(points), len(set(points))) == (5 * 3, 5)
    assert points == sorted(points)


def test_one_sentence_where_drafting_does_not_pay_under_load(page) -> None:
    """The scripted lossless method writes no more per forward than AR."""
    load, _ = page
    *_, last = load.run("visitor", controls(ways=["ar", "lossless"], seconds=1, rate=8))
    actual = whole(load, last)
    ends = [tick for tick in of_tag(actual, "tick") if tick.get("over")]
    ar, lossless = (
        statistics.median(tick["latency"]["p50"] for tick in ends if tick["way"] == way)
        for way in ("ar", "lossless")
    )
    said = of_tag(actual, "status")[-1]["text"]
    assert (CANNOT_PAY in said) == (lossless >= ar)
    assert f"2 methods × 3 rounds × {ends[0]['num_arrived']} requests" in said


def test_stop_and_a_visitor_who_leaves_end_it_and_others_find_a_place(page) -> None:
    load, backend = page
    backend.forward_seconds = 0.02
    engine = load.engines.get("scripted").engine
    stream = load.run("visitor", controls(max_new_tokens=100, rate=30))
    while not any(tick["rows"] == 3 for tick in of_tag(next(stream), "tick")):
        pass
    other = engine.submit(Request((1,), DecodeSettings("ar", max_new_tokens=4)))
    assert other.place == 0
    assert other.wait(20)
    load.stop("visitor")
    *_, value = stream
    assert of_tag(whole(load, value), "status")[-1]["kind"] == "stopped"
    assert eventually(lambda: engine.num_running == 0, 10)

    stream = load.run("visitor", controls(max_new_tokens=100))
    while "running" not in next(stream):
        pass
    (drive,) = [item for item in threading.enumerate() if item.name == THREAD]
    stream.close()
    assert not drive.is_alive()
    assert len(load.runs) == 0


def test_the_time_limit_ends_it_with_a_sentence(tmp_path: Path) -> None:
    handlers, backend = make_page(tmp_path, max_seconds=0.6)
    backend.forward_seconds = 0.05
    *_, last = handlers.traffic.run("visitor", controls(max_new_tokens=100))
    handlers.engines.close()
    status = of_tag(last, "status")[-1]
    assert status["kind"] == "stopped"
    assert status["text"].startswith(TIME_LIMIT.format(0.6))


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"question": "x"}, "question", "Choose one of: Compare methods, Saturation"),
        ({"kind": None}, "kind", "Choose one of: Poisson, bursts, recorded."),
        (
            {"rate": float("nan")},
            "rate",
            "Requests per second must be a number from 0.2 to 40, got nan.",
        ),
        ({"rate": True}, "rate", "Requests per second must be a number from 0.2 to 40, got True."),
        ({"seconds": 21}, "seconds", f"{DURATION} must be a number from 1 to 20, got 21."),
        ({"rate": 40, "seconds": 20}, "rate", AT_A_TIME.split(",")[0].format(MAX_REQUESTS)),
        (
            {"rate": 20, "seconds": 5, "ways": list(METHODS)},
            "ways",
            IN_ALL.split(",")[0].format(400),
        ),
        ({"ways": []}, "ways", NO_METHODS),
        ({"ways": [["ar"]]}, "ways", NO_METHODS),
        ({"low": 0.95}, "low", LOWEST_TAU),
        ({"high": 2}, "high", "τ must be a number from 0 to 1, got 2."),
        ({"budget": -1}, "budget", f"{DEADLINE} must be a number from 0 to 60, got -1."),
        (
            {"max_new_tokens": 129},
            "max_new_tokens",
            "must be a whole number from 2 to 128, got 129.",
        ),
        (
            {"kind": "recorded", "recorded": "soon"},
            "recorded",
            "Enter the arrival times in seconds",
        ),
        ({"kind": "recorded", "recorded": "99"}, "recorded", LATE.format(20, 99)),
        ({"recorded": "0 " * 3000}, "recorded", ARRIVAL_TIMES),
        ({"kind": "recorded", "recorded": "1", "question": "curve"}, "kind", "A curve cannot use"),
        ({"checkpoint": "x"}, "checkpoint", UNLISTED),
        ({"rounds": 2}, "rounds", "Choose 3 or 5 rounds."),
    ],
)
def test_what_cannot_run_is_one_sentence(page, changes, field, sentence) -> None:
    load, backend = page
    refusal = load.check(controls(**changes))
    assert refusal is not None
    assert refusal.field == field
    assert sentence in str(refusal)
    assert backend.prompts == []


def test_what_the_tab_opens_with_can_run() -> None:
    for rate in (3.0, 12.0):
        usual = controls(
            ways=["ar", "lossless", "fixed", "follow"], rate=rate, seconds=SECONDS,
            max_new_tokens=NUM_TOKENS, low=Bounds().low, high=Bounds().high,
        )  # fmt: skip
        assert len(read_traffic_order(usual, LIMITS).parts) == 4 * 3
        assert len(read_traffic_order({**usual, "rounds": 5}, LIMITS).parts) == 4 * 5
    assert set(METHODS) == set(methods_for(Bounds()))
    assert read_recorded(RECORDED)


LOAD = "#load .mars-load"


@pytest.fixture(scope="module")
def lab(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[playwright.Page, ScriptedBackend]]:
    """The tab as one visitor has it open, who asks for a second of short answers, two ways; each
    test leaves it so."""
    handlers, backend = make_page(tmp_path_factory.mktemp("page"), port=0)
    with page_served(handlers) as url, opened(url) as page:
        open_tab(page, "load")
        page.wait_for_selector(f"{LOAD}[data-recorded-run=true]")
        for name, value in (("seconds", "1"), ("max_new_tokens", "8")):
            page.fill(f"#load-{name} input[type=number]", value)
        page.get_by_label("lossless, auto B", exact=True).uncheck()
        page.get_by_label("AR + lookup", exact=True).uncheck()
        yield page, backend


def run_load(page: playwright.Page) -> None:
    over(page, lambda: page.click("#load-run"), LOAD, "data-phase")


def cell(page: playwright.Page, way: str, column: str) -> str:
    return page.inner_text(f"#load tr[data-way={way}] [data-column='{column}'] .lv-value")


def shown_charts(page: playwright.Page) -> list[str]:
    charts = page.locator("#load .lv-charts figure:visible")
    return charts.evaluate_all("nodes => nodes.map((node) => node.dataset.chart)")


@needs_browser
def test_a_visitor_compares_two_ways(lab) -> None:
    page, _ = lab
    run_load(page)
    assert page.locator("#load tbody th").all_inner_texts() == [
        "plain AR", "adaptive τ, 0.95 to 0.5",
    ]  # fmt: skip
    arrived = page.get_attribute("#load tr[data-way=ar]", "data-arrived")
    for way in ("ar", "follow"):
        assert cell(page, way, "same as AR, % of tokens") == "100"  # the scripted text is fixed
    assert cell(page, "ar", "tokens, per pass") == "1.00"
    ranges = page.locator("#load tr[data-way=ar] .lv-range").all_inner_texts()
    assert re.fullmatch(r"[\d.]+–[\d.]+", ranges[0])  # of tokens per second
    assert "3 rounds" in page.inner_text("#load .lv-under")
    assert arrived in page.inner_text("#load .lv-arrivals")
    assert shown_charts(page) == ["rate", "open"]
    assert page.locator("#load td.lv-more:visible").count() == 0
    page.click("#load .lv-under button")
    page.wait_for_selector("#load [data-chart=tau]:visible")
    assert shown_charts(page) == ["rate", "open", "tau"]
    assert cell(page, "ar", "answered, requests") == f"{arrived} of {arrived}"
    page.click("#load .lv-help summary")
    words = page.inner_text("#load .lv-words")
    assert all(word in words for word in ("Throughput", "First token", "Median, p99"))
    see(page.locator("#load [data-chart=tau]"))
    page.wait_for_selector("#load [data-chart=tau] .scatterlayer .points path")


@needs_browser
def test_stop_ends_it_and_too_much_is_one_sentence(lab) -> None:
    page, backend = lab
    backend.forward_seconds = 0.05
    before = page.get_attribute(LOAD, "data-run")
    page.click("#load-run")
    page.wait_for_selector(f"{LOAD}:not([data-run='{before}'])")
    page.wait_for_selector("#load tr[data-way=ar][data-arrived]")
    page.click("#load-stop")
    page.wait_for_selector(f"{LOAD}[data-phase=stopped]")
    assert page.inner_text("#load .lv-status").startswith("Stopped")
    backend.forward_seconds = 0.001
    for rate, seconds in (("40", "20"), ("4", "1")):
        page.fill("#load-rate input[type=number]", rate)
        page.fill("#load-seconds input[type=number]", seconds)
        if rate == "40":
            page.click("#load-run")
            page.get_by_text(AT_A_TIME.split(",")[0].format(MAX_REQUESTS)).first.wait_for()


@needs_browser
def test_recorded_arrivals_are_typed_and_a_curve_says_where_one_way_saturates(lab) -> None:
    page, _ = lab
    assert page.locator("#load-recorded").count() == 0
    page.get_by_label("recorded", exact=True).check()
    page.fill("#load-recorded textarea", "0, 0.2, 0.3")
    run_load(page)
    assert cell(page, "ar", "answered, requests") == "3 of 3"
    arrivals = page.inner_text("#load .lv-arrivals")
    assert arrivals.startswith("Recorded arrivals: 3 requests in 1 s.")
    page.get_by_label("Poisson", exact=True).check()
    page.get_by_label("Saturation curve").check()
    page.get_by_label("adaptive τ, auto B", exact=True).uncheck()
    page.fill("#load-rate input[type=number]", "4")
    run_load(page)
    see(page.locator("#load [data-chart=answered]"))
    page.wait_for_selector("#load [data-chart=answered]:visible .points path >> nth=4")
    said = page.inner_text("#load .rv-finding")
    assert re.match(r"Plain AR (kept up with|saturates at) [\d.]+ requests/s", said)
