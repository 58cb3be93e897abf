"""What a visitor finds before anything ran, and while the checkpoint is fetched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from browser import Arrive, needs_browser, playwright, visiting
from fake_source import FakeHub
from fake_source import make_handlers as make_fetching
from page_texts import texts
from scripted_page import TEXT, ScriptedBackend, make_handlers, page_served

from app.handlers import Handlers
from app.live.tab import KNOWS_TASKS
from app.ui.recordings import Recording, first
from mars_runtime.runs import folds

pytestmark = needs_browser


ROOT = "#race .mars-race"
AT = f"+document.querySelector('{ROOT}').dataset.at"
OVER = f"Both {texts()['ENDS']['eos']['all']}"
STATUS = f"document.querySelector('{ROOT} .rv-status').innerText"


@pytest.fixture(scope="module")
def recording() -> Recording:
    return first()


@pytest.fixture(scope="module")
def handlers(tmp_path_factory: pytest.TempPathFactory) -> Handlers:
    """Of the page that opens with the recording; ``address`` closes them."""
    folder = tmp_path_factory.mktemp("page")
    return make_handlers(folder, ScriptedBackend(TEXT, 0.05), port=0)


@pytest.fixture(scope="module")
def address(handlers: Handlers, recording: Recording) -> Iterator[str]:
    with page_served(handlers, first=recording) as url:
        yield url


def test_a_recording_is_there_at_once(
    arrive: Arrive, address: str, handlers: Handlers, recording: Recording
) -> None:
    handlers.engines.forget()  # its checkpoint has not loaded yet
    visitor = arrive(address, 1280, 720)
    visitor.wait_for_selector(f"{ROOT}[data-state=finished]")
    assert "Loading scripted" in visitor.inner_text("#footer")
    trace = recording.traces()["mars"]
    tokens = visitor.locator(f"{ROOT} .rv-pane[data-lane=mars] .rv-t")
    assert "".join(tokens.all_text_contents()) == folds.text(trace)
    badge = visitor.locator(f"{ROOT} .rv-recorded")
    assert trace.header.date[:10] in badge.inner_text()
    assert visitor.input_value("#prompt textarea") != recording.prompt
    assert visitor.text_content(f"{ROOT} .rv-prompt") == recording.prompt
    assert not visitor.locator(f"{ROOT} .rv-foreign").is_visible()
    passes = visitor.inner_text(f"{ROOT} .rv-headline").split()
    assert str(folds.num_forwards(folds.up_to_loop(trace.events))) in passes

    visitor.click("#run")
    visitor.wait_for_selector(f"{ROOT}[data-state=waiting]")
    assert badge.is_hidden()
    handlers.engines.held.set()
    visitor.wait_for_selector(f"{ROOT}:is([data-state=running], [data-state=slow])")
    assert badge.is_hidden()
    visitor.click("#stop")
    visitor.wait_for_selector(f"{ROOT}[data-state=stopped]")


def open_playing(visitor: playwright.Page, address: str, last: int) -> None:
    """The page after its recording has started to play by itself."""
    visitor.goto(address)
    visitor.wait_for_selector(f"{ROOT}[data-state=finished]")
    visitor.wait_for_function(f"{AT} > 2 && {AT} < {last}")
    assert visitor.inner_text(f"{ROOT} .rv-live") == ""


def test_a_recording_plays_unless_the_visitor_acts(address: str, recording: Recording) -> None:
    last = folds.num_forwards(recording.traces()["mars"].events)
    with visiting() as take:
        visitor = take(address)
        visitor.emulate_media(reduced_motion="no-preference")
        visitor.set_viewport_size({"width": 1280, "height": 900})
        open_playing(visitor, address, last)
        visitor.locator("#prompt textarea").press("A")
        visitor.wait_for_function(f"{AT} === {last}")
        visitor.wait_for_function(f"{STATUS}.startsWith({OVER!r})")
        visitor.wait_for_selector(f"{ROOT} .rv-foreign:visible")

        visitor.goto(f"{address}?prompt=Say+it.&tau=0.5")  # it brings its own prompt
        playwright.expect(visitor.locator("#prompt textarea")).to_have_value("Say it.")
        assert visitor.get_attribute(ROOT, "data-state") == "empty"
        assert visitor.inner_text(f"{ROOT} .rv-status") == texts()["STATUS"]["empty"]


CHAT_CHIP, TASK_CHIP = ".chip:text-is('Ask a question')", ".chip:text-is('Word problem')"


def test_a_checkpoint_is_selected_once_it_is_loaded(arrive: Arrive, tmp_path: Path) -> None:
    source = FakeHub()
    with ExitStack() as stack:
        url = stack.enter_context(page_served(make_fetching(tmp_path, source, port=0)[0]))
        stack.callback(source.go.set)
        page = arrive(url, 1280, 900)
        page.wait_for_selector(f"{ROOT}[data-state=empty]")
        page.wait_for_selector("#arrival:has-text('Downloading chat, 94 MB: 43 %')")
        assert page.input_value("#checkpoint input") == "tiny"
        page.wait_for_selector(TASK_CHIP)
        assert not page.locator(CHAT_CHIP).is_visible()
        assert KNOWS_TASKS.format("tiny") in page.inner_text("#note")
        page.fill("#prompt textarea", "Half a thou")
        source.go.set()
        playwright.expect(page.locator("#checkpoint input")).to_have_value("chat")
        page.wait_for_selector(CHAT_CHIP)
        assert not page.locator(TASK_CHIP).is_visible()
        assert page.input_value("#prompt textarea") == "Half a thou"
        page.wait_for_selector("#footer:has-text('chat:')")
        page.wait_for_function("!document.querySelector('#arrival').innerText.trim()")
        page.click("#run")
        page.wait_for_selector(".rv-pane[data-lane=mars] .rv-text:has-text('I chat')")
        page.goto("about:blank")  # no stream delays the end of the server
