"""The Throughput tab: its lines, its ends, its settings; then in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from batch_page import TEXT, BatchBackend, controls, make_page
from browser import needs_browser, opened, playwright
from live_page import lines_of, over
from page_texts import texts

from app.engines.limits import RefusalError
from app.throughput import run as module
from app.throughput.run import LOW_TAU, NUM_QUEUED, WINDOW_SECONDS, Meter, ThroughputHandlers
from mars_runtime.runs.events import Prefill, Step
from tests.test_folds import EVENTS

Lines = list[tuple[str, Any]]


@pytest.fixture
def made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ThroughputHandlers, BatchBackend]]:
    monkeypatch.setattr(module, "AR_SECONDS", 0.1)
    handlers, backend = make_page(tmp_path)
    backend.forward_seconds = 0.0
    yield handlers.throughput, backend
    handlers.engines.close()


def of_tag(lines: Lines, tag: str) -> list[Any]:
    return [data for line, data in lines if line == tag]


def whole(handlers: ThroughputHandlers, value: str) -> tuple[dict, Lines]:
    head, _ = lines_of(value)
    return lines_of(handlers.logs.missed(head["run"]))


def parts_of(lines: Lines) -> dict[str, Lines]:
    """The lines of each method's last part of the run."""
    parts: dict[str, Lines] = {}
    method = ""
    for tag, data in lines:
        if tag == "begin":
            method = data["method"]
            parts[method] = []
        elif method:
            parts[method].append((tag, data))
    return parts


def test_a_row_that_ends_takes_the_next_prompt_of_the_queue(made) -> None:
    handlers, _ = made
    *_, last = handlers.run("visitor", controls())
    head, lines = whole(handlers, last)
    assert (head["rows"], len(head["prompts"])) == (4, NUM_QUEUED)
    parts = parts_of(lines)
    assert list(parts) == ["ar", "mars"]
    texts, live = dict.fromkeys(range(NUM_QUEUED), ""), set[int]()
    for step in of_tag(parts["mars"], "pass"):
        for row, count, text, *end in step["rows"]:
            texts[row] += text
            live.add(row)
            assert count >= 1
            if end:
                live.remove(row)
        assert len(live) <= 4
    assert all(text and TEXT.startswith(text) for text in texts.values())
    assert not live
    figures = of_tag(parts["mars"], "figures")[-1]
    assert (figures["done"], figures["waiting"]) == (NUM_QUEUED, 0)
    assert figures["tpf"] > 1
    assert {step["tpf"] for step in of_tag(parts["ar"], "figures")} == {1.0}
    assert of_tag(lines, "level")[0]["rate"] > 0
    assert of_tag(lines, "status")[-1]["kind"] == "finished"
    *_, again = handlers.run("visitor", controls())
    assert list(parts_of(whole(handlers, again)[1])) == ["mars"], "AR's level is measured once"


def test_settings_act_on_the_running_batch(made) -> None:
    handlers, backend = made
    backend.forward_seconds = 0.01
    values = handlers.run("visitor", controls(tau=1.0))
    is_begun = False
    for value in values:
        is_begun |= '"method":"mars"' in value
        if is_begun and "figures" in value.rpartition("begin")[2]:
            handlers.steer("another visitor", controls(tau=0.2))
            handlers.steer("visitor", controls(tau=0.5, block_size=2))
            backend.forward_seconds = 0.0
    moves = of_tag(whole(handlers, value)[1], "move")
    assert [(move["tau"], move["block_size"]) for move in moves] == [(1.0, 4), (0.5, 2)]


def test_tau_follows_the_queue(made) -> None:
    handlers, backend = made
    backend.forward_seconds = 0.004
    *_, last = handlers.run("visitor", controls(follows=True))
    taus = [move["tau"] for move in of_tag(whole(handlers, last)[1], "move")]
    assert LOW_TAU in taus
    assert taus[-1] == 0.95
    assert taus[1:] == sorted(taus[1:]), "it rises as the queue becomes shorter"


def test_a_measurement_pairs_the_methods_in_rounds(made) -> None:
    handlers, backend = made
    began: list[str] = []
    decode = backend.decode

    def noted(request, settings):
        began.append(settings().method)
        return decode(request, settings)

    backend.decode = noted
    *_, last = handlers.measure("visitor", controls(lossless=True, rounds=3))
    assert began == ["mars", "ar", "ar", "mars", "mars", "ar"]
    _, lines = whole(handlers, last)
    measured = of_tag(lines, "measured")
    assert [result["speedup"]["rounds"] for result in measured] == [1, 2, 3]
    result = measured[-1]
    assert result["num_same"] == len(result["prompts"])
    assert result["mars"]["passes"] < result["ar"]["passes"]
    assert result["speedup"]["limit"] >= (result["speedup"]["high"] or 0)
    assert result["settings"]["block_size"] == 4
    assert of_tag(lines, "status")[-1]["kind"] == "finished"


def test_a_stopped_run_is_not_finished(made) -> None:
    handlers, backend = made
    backend.forward_seconds = 0.02
    values = handlers.run("visitor", controls())
    next(value for value in values if "pass\t" in value)
    handlers.stop("another visitor")
    handlers.stop("visitor")
    *_, last = values
    _, lines = whole(handlers, last)
    assert of_tag(lines, "status")[-1]["kind"] == "stopped"
    assert len(of_tag(lines, "begin")) == 1, "nothing else begins"
    assert len(handlers.runs) == 0


def test_a_fault_ends_the_run_with_a_sentence(made) -> None:
    handlers, backend = made
    backend.fails_at = 5
    *_, last = handlers.run("visitor", controls())
    status = of_tag(whole(handlers, last)[1], "status")[-1]
    assert (status["kind"], "(RuntimeError)" in status["text"]) == ("error", True)


def test_live_figures_cover_the_last_seconds() -> None:
    meter = Meter()
    step = next(event for event in EVENTS if isinstance(event, Step))
    meter.add(Prefill(4))
    for second in (WINDOW_SECONDS, 0.5, 0.5):
        meter.add(replace(step, seconds=second))
    tokens = sum(len(row.accepted) for row in step.rows)
    figures = meter.figures()
    assert figures["at"] == WINDOW_SECONDS + 1
    assert figures["rate"] == pytest.approx(3 * tokens / (WINDOW_SECONDS + 1), abs=0.1)
    meter.add(replace(step, seconds=1.0))
    assert meter.figures()["rate"] == pytest.approx(3 * tokens / 2, abs=0.1)
    assert meter.num_joined == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("rows", 3), ("tau", 2), ("block_size", 9), ("follows", 1), ("rounds", 1)],
)
def test_refusals_name_the_control(made, field, value) -> None:
    with pytest.raises(RefusalError) as caught:
        made[0].validate(controls(**{field: value}))
    assert caught.value.field == field


VIEW = "#throughput .mars-throughput"


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[playwright.Page]:
    with opened(f"{address}#throughput") as page:
        yield page


@pytest.fixture
def backend(scripted_backend: BatchBackend) -> BatchBackend:
    scripted_backend.forward_seconds = 0.0
    return scripted_backend


@needs_browser
def test_it_opens_on_a_recorded_run_in_which_tau_moves(page: playwright.Page) -> None:
    page.wait_for_selector(f"{VIEW}[data-recorded-run=true][data-phase=finished][data-moves='1']")
    assert page.get_attribute(VIEW, "data-done") == str(NUM_QUEUED)
    assert page.locator(".tv-row").count() == 8
    page.wait_for_selector("#throughput .js-plotly-plot")
    page.emulate_media(reduced_motion="no-preference")
    page.click("#throughput .tv-again button")
    page.wait_for_selector(f"{VIEW}[data-is-played=false][data-method=ar]")
    assert page.inner_text(f"{VIEW} .rv-phase").endswith(texts()["STATUS"]["playing"])


@needs_browser
def test_a_run_shows_rows_and_figures(page: playwright.Page, backend: BatchBackend) -> None:
    backend.forward_seconds = 0.02
    page.click("#throughput-run")
    page.wait_for_selector(f"{VIEW}[data-recorded-run=false][data-method=mars]")
    backend.forward_seconds = 0.1  # it is still running when tau moves
    page.wait_for_selector(f"{VIEW}:not([data-done='0'])")
    page.fill("#throughput-tau input[type=number]", "0.2")
    page.keyboard.press("Tab")
    page.wait_for_selector(f"{VIEW}[data-moves='1']")
    backend.forward_seconds = 0.0
    page.wait_for_selector(f"{VIEW}[data-phase=finished][data-done='{NUM_QUEUED}']")
    row = page.locator(".tv-row").first
    text = row.locator(".tv-text").evaluate("e => e.textContent")
    assert text == TEXT[: len(text)]
    assert len(text) > 20
    assert row.locator("[data-n='4']").count() > 0
    assert page.locator(".tv-text b, .tv-text i").count() == 0
    names = page.evaluate("document.querySelector('#throughput .rv-plot').data.length")
    assert names == 2
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("document.documentElement.scrollWidth <= 390")
    page.set_viewport_size({"width": 1440, "height": 1000})


@needs_browser
def test_a_measurement_is_shown_and_saved(page: playwright.Page, backend: BatchBackend) -> None:
    page.click("#throughput-measure button")
    over(page, lambda: page.click("#throughput-start"), VIEW, "data-phase")
    assert page.locator(".tv-measured tbody tr").count() == 2
    with page.expect_download() as download:
        page.click(".tv-save")
    saved = json.loads(Path(download.value.path()).read_text())
    assert saved["speedup"]["rounds"] == 3
    assert len(saved["mars"]["rates"]) == len(saved["ar"]["rates"]) == 3
