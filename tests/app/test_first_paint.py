"""What a visitor finds before anything ran, and while the checkpoint is fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import needs_browser, origin_of, playwright, visiting
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
    actual = first()
    assert actual is not None
    return actual


@pytest.fixture(scope="module")
def handlers(tmp_path_factory: pytest.TempPathFactory) -> Handlers:
    """Of the page that opens with the recording; ``address`` closes them."""
    folder = tmp_path_factory.mktemp("page")
    return make_handlers(folder, ScriptedBackend(TEXT, 0.05), port=0)


@pytest.fixture(scope="module")
def address(handlers: Handlers, recording: Recording) -> Iterator[str]:
    with page_served(handlers, first=recording) as url:
        yield url


def test_a_recording_is_there_at_once_and_gives_way_to_the_first_run(
    address: str, handlers: Handlers, recording: Recording
) -> None:
    handlers.engines.forget()  # its checkpoint has not loaded yet
    with visiting() as take:
        visitor = take(address)
        visitor.set_viewport_size({"width": 1280, "height": 720})
        visitor.goto(address)
        visitor.wait_for_selector(f"{ROOT}[data-state=finished]")
        assert "Loading scripted" in visitor.inner_text("#footer")
        trace = recording.traces()["mars"]
        tokens = visitor.locator(f"{ROOT} .rv-pane[data-lane=mars] .rv-t")
        shown = "".join(tokens.evaluate_all("nodes => nodes.map(n => n.textContent)"))
        assert shown == folds.text(trace)
        badge = visitor.locator(f"{ROOT} .rv-recorded")
        header = trace.header
        assert badge.inner_text() == f"{header.checkpoint}, recorded {header.date[:10]}"
        assert visitor.locator("#tau").is_visible()
        assert visitor.input_value("#prompt textarea") != recording.prompt
        assert visitor.inner_text(f"{ROOT} .rv-prompt") == recording.prompt
        assert not visitor.locator(f"{ROOT} .rv-foreign").is_visible()
        passes = str(num_passes(recording))
        assert passes in visitor.inner_text(f"{ROOT} .rv-headline").split()

        visitor.click("#run")
        visitor.wait_for_selector(f"{ROOT}[data-state=waiting]")
        assert badge.is_hidden()
        handlers.engines.held.set()
        visitor.wait_for_selector(f"{ROOT}:is([data-state=running], [data-state=slow])")
        assert badge.is_hidden()
        visitor.click("#stop")
        visitor.wait_for_selector(f"{ROOT}[data-state=stopped]")


def num_passes(recording: Recording) -> int:
    """Return the number of forward passes of the MARS lane, up to a loop."""
    trace = recording.traces()["mars"]
    return len(list(folds.row_steps(folds.up_to_loop(trace.events))))


def open_playing(visitor: playwright.Page, address: str, last: int) -> None:
    """The page after its recording has started to play by itself."""
    visitor.goto(address)
    visitor.wait_for_selector(f"{ROOT}[data-state=finished]")
    visitor.wait_for_function(f"{AT} > 2 && {AT} < {last}")
    assert visitor.inner_text(f"{ROOT} .rv-live") == ""


def test_the_recording_plays_once_and_the_second_follows_unless_the_visitor_acts(
    address: str, recording: Recording
) -> None:
    last = num_passes(recording)
    second = f"{ROOT}[data-run=recorded-area]"
    with visiting() as take:
        visitor = take(address)
        visitor.emulate_media(reduced_motion="no-preference")
        visitor.set_viewport_size({"width": 1280, "height": 900})
        open_playing(visitor, address, last)
        visitor.wait_for_selector(second)
        visitor.wait_for_function(f"{AT} > 2")

        open_playing(visitor, address, last)
        visitor.locator("#prompt textarea").press("A")
        visitor.wait_for_function(f"{AT} === {last}")
        visitor.wait_for_function(f"{STATUS}.startsWith({OVER!r})")
        visitor.wait_for_selector(f"{ROOT} .rv-foreign:visible")
        visitor.wait_for_timeout(3000)  # longer than the rest between the two
        assert not visitor.locator(second).count()


CHAT_CHIP, TASK_CHIP = ".chip:text-is('Ask a question')", ".chip:text-is('Word problem')"


@pytest.fixture
def source() -> Iterator[FakeHub]:
    made = FakeHub()
    yield made
    made.go.set()


@pytest.fixture
def fetching(tmp_path: Path, source: FakeHub) -> Handlers:
    return make_fetching(tmp_path, source, port=0)[0]


@pytest.fixture
def visit(fetching: Handlers) -> Iterator[Callable[..., playwright.Page]]:
    """Open the page as a new visitor."""
    with page_served(fetching) as url, visiting() as take:

        def open_page(query: str = "") -> playwright.Page:
            page = take(url)
            page.set_viewport_size({"width": 1280, "height": 900})
            page.goto(url + query)
            page.wait_for_selector(f"{ROOT}[data-state=empty]")
            return page

        yield open_page


def chosen(page: playwright.Page) -> str:
    return page.input_value("#checkpoint input")


def wait_chosen(page: playwright.Page, name: str) -> None:
    playwright.expect(page.locator("#checkpoint input")).to_have_value(name)


def test_the_page_shows_loading_progress_and_then_selects_the_checkpoint(
    visit, source: FakeHub
) -> None:
    page = visit()
    page.wait_for_selector("#arrival:has-text('Downloading chat, 94 MB: 43 %')")
    assert chosen(page) == "tiny"
    assert page.locator(TASK_CHIP).is_visible()
    assert not page.locator(CHAT_CHIP).is_visible()
    assert KNOWS_TASKS.format("tiny") in page.inner_text("#note")
    page.fill("#prompt textarea", "Half a thou")
    source.go.set()
    wait_chosen(page, "chat")
    page.wait_for_selector(CHAT_CHIP)
    assert not page.locator(TASK_CHIP).is_visible()
    assert page.input_value("#prompt textarea") == "Half a thou"
    page.wait_for_selector("#footer:has-text('chat:')")
    page.wait_for_function("!document.querySelector('#arrival').innerText.trim()")
    page.click("#run")
    page.wait_for_selector(".rv-pane[data-lane=mars] .rv-text:has-text('I chat')")
    page.goto(origin_of(page.url))  # as a later visitor
    page.wait_for_selector(f"{ROOT}[data-state=empty]")
    wait_chosen(page, "chat")
