"""What a visitor finds before anything ran: a recorded run, marked so, which plays once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import needs_browser, visiting
from scripted_page import TEXT, ScriptedBackend, make_handlers

from app.handlers import Handlers
from app.recordings import Recording, first, measured
from mars_runtime import folds

pytestmark = needs_browser
ROOT = "#race .mars-race"
AT = f"+document.querySelector('{ROOT}').dataset.at"
STATUS = f"document.querySelector('{ROOT} .rv-status').innerText"
CAPTION = (
    "Each shaded group was written in one pass of the model. An ordinary model ({}) needs one pass "
    "per token."
)


@pytest.fixture
def recording() -> Recording:
    found = first()
    assert found is not None
    return found


@pytest.fixture
def handlers(tmp_path: Path) -> Iterator[Handlers]:
    """Handlers whose checkpoint has not loaded yet."""
    made = make_handlers(tmp_path, ScriptedBackend(TEXT, 0.05), port=0)
    yield made
    made.engines.close()


def test_a_recording_is_there_at_once_and_gives_way_to_the_first_run(
    handlers: Handlers, recording: Recording
) -> None:
    from app.serving.serve import serve

    handlers.engines.forget()
    page = serve(handlers, is_blocking=False, first=recording)
    with visiting() as take:
        visitor = take(page.local_url)
        visitor.set_viewport_size({"width": 1280, "height": 720})
        visitor.goto(page.local_url)
        visitor.wait_for_selector(f"{ROOT}[data-state=finished]")
        assert "Loading scripted" in visitor.inner_text("#footer")
        trace = recording.traces()["mars"]
        tokens = visitor.locator(f"{ROOT} .rv-pane[data-lane=mars] .rv-t")
        shown = "".join(tokens.evaluate_all("nodes => nodes.map(n => n.textContent)"))
        assert shown == folds.text(trace)
        badge = visitor.locator(f"{ROOT} .rv-recorded")
        header = measured(recording).header
        assert badge.inner_text() == f"recorded {header.date[:10]}"
        assert visitor.inner_text("body").count(header.hardware) == 1
        caption = visitor.locator(f"{ROOT} .rv-caption")
        assert caption.inner_text() == CAPTION.format("right")
        visitor.set_viewport_size({"width": 390, "height": 844})
        assert caption.inner_text() == CAPTION.format("below")
        visitor.set_viewport_size({"width": 1280, "height": 900})
        assert visitor.input_value("#prompt textarea") == recording.prompt

        visitor.click("#run")
        visitor.wait_for_selector(f"{ROOT}[data-state=waiting]")
        assert badge.is_hidden()
        assert caption.is_hidden()
        handlers.engines.held.set()
        visitor.wait_for_selector(f"{ROOT}:is([data-state=running], [data-state=slow])")
        assert badge.is_hidden()
        visitor.click("#stop")
        visitor.wait_for_selector(f"{ROOT}[data-state=stopped]")
    page.close()


def test_the_recording_plays_once_and_slowly_until_somebody_acts(
    handlers: Handlers, recording: Recording
) -> None:
    from app.serving.serve import serve

    page = serve(handlers, is_blocking=False, first=recording)
    last = len(measured(recording).counts)
    with visiting() as take:
        visitor = take(page.local_url)
        visitor.emulate_media(reduced_motion="no-preference")
        visitor.set_viewport_size({"width": 1280, "height": 900})
        for act in ("type", "pause", "run"):
            visitor.goto(page.local_url)
            visitor.wait_for_selector(f"{ROOT}[data-state=finished]")
            visitor.wait_for_function(f"{AT} > 2")
            assert visitor.evaluate(AT) < last / 2
            assert visitor.inner_text(f"{ROOT} .pl-speeds [aria-pressed=true]") == "1/20×"
            assert "20 times slower" in visitor.inner_text(f"{ROOT} .rv-status")
            assert visitor.inner_text(f"{ROOT} .rv-live") == ""
            if act == "type":
                visitor.locator("#prompt textarea").press_sequentially("And")
                visitor.wait_for_function(f"{AT} === {last}")
                visitor.wait_for_function(f"{STATUS}.startsWith('Finished')")
            elif act == "pause":
                visitor.click(f"{ROOT} .pl-play")
                stays = visitor.evaluate(AT)
                visitor.wait_for_function(f"{STATUS}.startsWith('Finished')")
                visitor.locator("#prompt textarea").press_sequentially("And")
                visitor.wait_for_selector(f"{ROOT} .rv-foreign:visible")
                assert visitor.evaluate(AT) == stays
            else:
                visitor.click("#run")
                visitor.wait_for_selector(f"{ROOT}[data-state=running]")
                assert visitor.locator(f"{ROOT} .rv-caption").is_hidden()
                assert visitor.inner_text(f"{ROOT} .pl-speeds [aria-pressed=true]") == "1×"
                visitor.click("#stop")
    page.close()


def test_a_run_as_the_page_opens_repeats_the_recording(recording: Recording) -> None:
    from app.controls import DEFAULTS, settings_for

    for lane, trace in recording.traces().items():
        assert trace.header.settings == settings_for(lane, DEFAULTS)
