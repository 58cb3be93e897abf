"""The bundled checkpoints in the page: chosen, linked to, and run by each method."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browser import Arrive, needs_browser, playwright
from live_page import ROOT, choose, lane_trace, last, open_tab, over
from scripted_page import controls, page_served

from app.engines.engines import Engines
from app.handlers import Handlers, make_handlers
from app.settings import AppSettings
from mars_runtime.decoders.methods import LOOKUP
from mars_runtime.runs import folds

USUAL, MASKLESS = "mars-tiny", "ar-tiny"
PANE = f"{ROOT} .rv-pane[data-lane={{}}]"
LANES = f"document.querySelector('{ROOT}').lineView.run.lanes"
COPIED = "Repeat the word fox ten times: fox fox fox fox fox fox fox fox fox fox"


@pytest.fixture(scope="module")
def handlers() -> Handlers:
    """Of ``app.py --checkpoint mars-tiny``; ``address`` closes them."""
    engines = Engines(AppSettings(checkpoint=USUAL, port=0, max_new_tokens=48))
    engines.open()
    return make_handlers(engines)


@pytest.fixture(scope="module")
def address(handlers: Handlers) -> Iterator[str]:
    with page_served(handlers) as url:
        yield url


def ready(arrive: Arrive, address: str, name: str, **query: object) -> playwright.Page:
    link = "".join(f"&{key}={value}" for key, value in query.items())
    page = arrive(f"{address}?checkpoint={name}&max_new_tokens=40{link}")
    page.wait_for_selector(f"{ROOT}[data-state=empty]")
    page.wait_for_selector(f"#footer:has-text('{name}:')")
    return page


def assert_answers(page: playwright.Page, name: str, has_masks: bool) -> None:
    page.fill("#prompt textarea", "Count from 1 to 5.")
    over(page, lambda: page.click("#run"))
    page.wait_for_selector(f"{ROOT}:has(.rv-env:text('{name} ·'))")
    assert page.locator("#block_size").is_visible() is has_masks


@needs_browser
def test_one_is_linked_to_and_another_chosen(arrive: Arrive, address: str) -> None:
    page = ready(arrive, address, MASKLESS, prompt="Count.")
    assert page.input_value("#checkpoint input") == MASKLESS
    assert page.input_value("#prompt textarea") == "Count."
    assert_answers(page, MASKLESS, has_masks=False)
    open_tab(page, "grid")
    page.click("#grid-run")  # without masks there is nothing to compare
    page.wait_for_selector(".mars-grid[data-phase=error][data-recorded-run=false]")
    open_tab(page, "live")
    choose(page, "checkpoint", USUAL)
    page.wait_for_selector(f"#footer:has-text('{USUAL}:')")
    assert_answers(page, USUAL, has_masks=True)


def race(page: playwright.Page) -> list[dict[str, Any]]:
    """Run a race of two lanes; the steps of the first."""
    over(page, lambda: page.click("#run"))
    assert page.get_attribute(ROOT, "data-lanes") == "2"
    return page.evaluate(f"{LANES}.find((lane) => lane.method !== 'ar').steps")


@needs_browser
def test_a_draft_model_and_block_diffusion_race_plain_ar(arrive: Arrive, address: str) -> None:
    prompt = "Sort+these+numbers%3A+5%2C+3%2C+9"
    page = ready(arrive, address, USUAL, prompt=prompt, lanes="speculative,ar", tau=0)
    assert sum(step["draftForwards"] for step in race(page)) > 0
    texts = [page.inner_text(f"{PANE.format(lane)} .rv-text") for lane in ("speculative", "ar")]
    assert texts[0] == texts[1] != ""
    page.click(f"{PANE.format('speculative')} .rv-t >> nth=3")
    page.wait_for_selector(f"{ROOT} .rv-drawer[data-lane=speculative]")
    page.goto("about:blank")

    name, more = "block-diffusion-tiny", {"tau": 0.9, "lossless": "false"}
    page = ready(arrive, address, name, prompt=prompt, lanes="block_diffusion,ar", **more)
    places = [step["first"] + taken for step in race(page) for taken in step["taken"]]
    assert sorted(places) == list(range(40))
    assert places != sorted(places)  # some were taken ahead of an open one


def test_the_controls_move_ar_with_lookup_no_more_than_plain_ar(handlers: Handlers) -> None:
    asked = {"checkpoint": USUAL, "max_new_tokens": 48, "prompt": COPIED}
    stream = handlers.live.run("b", controls(**asked, view=[LOOKUP], pace=4))
    next(stream)
    handlers.live.steer("b", controls(**asked, tau=0.5, block_size=4, lossless=False))
    trace = lane_trace(last(stream), LOOKUP)
    steps = [step for step, _ in folds.row_steps(trace.events)]
    assert {step.settings for step in steps} == {trace.header.settings}
