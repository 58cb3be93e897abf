"""The Review tab in a browser: an hour of reading, and a set that the page makes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from browser import Arrive, needs_browser, playwright
from live_page import run, wait_loaded
from scripted_page import ScriptedBackend

pytestmark = needs_browser
VIEW = ".mars-review"
READY = f"{VIEW}[data-phase=ready]"
TALLY = ".rw-tally"
SAID = ".rw-left [data-part=said]"


@pytest.fixture
def page(arrive: Arrive, address: str) -> playwright.Page:
    return arrive(f"{address}#review")


def wait(page: playwright.Page, **state: object) -> None:
    """Wait for attributes of the view."""
    attributes = "".join(f"[data-{name}='{value}']" for name, value in state.items())
    page.wait_for_selector(f"{VIEW}{attributes}")


def state(page: playwright.Page, name: str) -> str:
    return page.get_attribute(VIEW, f"data-{name}") or ""


def test_an_hour_of_reading(page: playwright.Page, tmp_path: Path) -> None:
    wait(page, phase="ready", shown=100)
    page.select_option(".rw-left select >> nth=1", "unlike")
    wait(page, votes=0)
    assert 3 <= int(state(page, "shown")) < 100
    page.wait_for_selector(".rw-list button")
    counts = re.findall(r"\d+", page.inner_text(".rw-place"))
    assert counts == ["1", state(page, "shown"), "100"]
    for key in "120x3":
        before = state(page, "item")
        page.keyboard.press(key)
        page.keyboard.press("j")
        page.wait_for_selector(f"{VIEW}:not([data-item='{before}'])")
    wait(page, votes=5)
    page.click(f"{VIEW} :text-is('Blind')")
    wait(page, blind="true")
    assert page.locator(".rw-answers .rv-t").count() == 0
    assert "MARS" not in page.inner_text(".rw-reading")
    page.keyboard.press("1")
    wait(page, blind="false", votes=6)
    assert page.locator(".rw-answers .rv-t").count() > 0
    page.click(f"{VIEW} :text-is('Blind')")
    page.keyboard.press("n")
    page.keyboard.type("breaks off")
    page.keyboard.press("Enter")
    page.click(".rw-answers .rv-pane:has(.rv-wrong) .rv-wrong >> nth=0")
    page.wait_for_selector(".rw-reading .rv-drawer[data-token]")
    page.keyboard.press("Escape")
    tally = page.inner_text(TALLY)
    page.click(".rw-menu summary")
    with page.expect_download() as download:
        page.click(".rw-menu [data-act=set]")
    saved = tmp_path / "set"
    download.value.save_as(saved)
    lines = [json.loads(line) for line in saved.read_text("utf-8").split("\n") if line]
    assert [line["type"] for line in lines].count("vote") == 6
    page.reload()
    wait(page, phase="ready", shown=100, votes=6)
    assert page.inner_text(TALLY) == tally
    page.evaluate("localStorage.clear()")
    page.reload()
    wait(page, phase="ready", shown=100, votes=0)
    damaged = {"name": "a.jsonl", "mimeType": "", "buffer": b"<html>"}
    page.set_input_files(".rw-menu input", damaged)
    page.wait_for_selector(f"{SAID}.rw-fault:not(:empty)")
    assert state(page, "shown") == "100"  # the open set stays
    page.set_input_files(".rw-menu input", saved)
    wait(page, votes=6)
    page.wait_for_selector(f"{SAID}:not(:empty):not(.rw-fault)")
    assert page.inner_text(TALLY) == tally
    page.click(".rw-list button >> nth=0")
    page.click(".rw-live")
    page.wait_for_selector("#race .mars-race[data-steps]:not([data-steps='0'])")


def test_a_set_is_made(page: playwright.Page, scripted_backend: ScriptedBackend) -> None:
    scripted_backend.forward_seconds = 0.02
    wait(page, phase="ready", shown=100)
    page.click(f"{VIEW} :text-is('New set')")
    page.fill(".rw-form textarea", "\n".join(f"Prompt {number}" for number in range(3)))
    page.uncheck("[data-part=has-unverified]")
    page.click(".rw-make")
    wait(page, making="true", shown=3)
    page.wait_for_selector(f"{VIEW}[data-missing]:not([data-missing='6'])")
    page.context.set_offline(True)
    wait(page, making="false")
    page.wait_for_selector(f"{SAID}.rw-fault:not(:empty)")
    page.context.set_offline(False)
    left = int(state(page, "missing"))
    assert 0 < left < 6
    page.reload()
    wait(page, phase="ready", shown=3, missing=left)
    scripted_backend.forward_seconds = 0.0
    page.click(".rw-go")
    wait(page, making="false", missing=0)
    for row in page.locator(".rw-list button").all():
        row.click()
        assert page.locator(".rw-answers .rv-pane .rv-t").count() > 2


def test_pinned_runs_are_a_set(page: playwright.Page) -> None:
    wait(page, phase="ready", shown=100)
    page.click("#live-tab-button")
    wait_loaded(page)
    run(page)
    page.click("#race .ex-menu > summary")
    pins = page.locator("#race .ex-line button:text-is('Pin')")
    pins.nth(1).wait_for()  # The menu gets its lines when it has opened.
    for pin in pins.all():
        pin.click()
        page.wait_for_selector("#race .ex-said:not(:empty)")
        page.wait_for_function("button => !button.disabled", arg=pin.element_handle())
    page.click("#review-tab-button")
    page.select_option(".rw-left select >> nth=0", "pinned")
    wait(page, set="pinned", shown=1)
    assert page.locator(".rw-answers .rv-pane").count() == 2
    page.click(".rw-menu summary")
    page.click(".rw-menu .rw-delete")
    wait(page, set="pinned")  # until it is pressed again
    page.click(".rw-menu .rw-delete")
    wait(page, phase="ready", shown=100)
    assert page.locator(".rw-left option[value=pinned]").count() == 0


def test_a_phone_shows_one_answer_at_a_time(page: playwright.Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    wait(page, phase="ready", shown=100)
    panes = page.locator(".rw-answers .rv-pane:visible")
    assert panes.count() == 1
    page.click(".rw-switch button >> nth=2")
    assert (panes.count(), panes.get_attribute("data-method")) == (1, "ar")
    page.click(f"{VIEW} [data-act=next]")
    wait(page, item="chat-2")
    assert (panes.count(), panes.get_attribute("data-method")) == (1, "ar")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
