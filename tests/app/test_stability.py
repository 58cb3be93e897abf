"""The Stability view: its order, its answers, its ends; then in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import needs_browser, opened, playwright
from live_page import lane_trace, lines_of, only_run, open_tab, over
from scripted_page import ScriptedBackend, make_handlers, page_served

from app.engines.limits import RefusalError
from app.handlers import Handlers
from app.review.stability_order import MAX_SEEDS, MAX_TOKENS
from mars_runtime import folds
from mars_runtime.engine.request import Request
from mars_runtime.events import Event
from mars_runtime.settings import DecodeSettings

COMMON, EVEN, ODD = "The sea is ", "calm.", "deep and cold."
ROOT = "#stability .mars-stability"


class SeededBackend(ScriptedBackend):
    """Writes one of two texts by the seed; at temperature 0 always the same one.

    begun: the settings of every run, in the order in which they began.
    """

    def __init__(self) -> None:
        super().__init__(forward_seconds=0.0)
        self.begun: list[DecodeSettings] = []

    def decode(self, request: Request, settings: Callable[[], DecodeSettings]) -> Iterator[Event]:
        current = settings()
        self.begun.append(current)
        self.text = COMMON + (ODD if current.temperature and current.seed % 2 else EVEN)
        return super().decode(request, settings)


def controls(**changes: object) -> dict[str, object]:
    """What the view sends for a run, with changes."""
    return {
        "prompt": "Say ${HOME}<b>.",
        "method": "lossless",
        "temperature": 0.7,
        "seeds": 4,
        "max_new_tokens": 64,
        "checkpoint": "scripted",
        **changes,
    }


@pytest.fixture
def backend() -> SeededBackend:
    return SeededBackend()


@pytest.fixture
def handlers(tmp_path: Path, backend: SeededBackend) -> Iterator[Handlers]:
    made = make_handlers(tmp_path, backend, port=0)
    yield made
    made.engines.close()


def test_each_seed_gives_an_answer_whose_trace_is_whole(
    handlers: Handlers, backend: SeededBackend
) -> None:
    *_, last = handlers.stability.run("visitor", controls())
    head, lines = lines_of(last)
    assert (head["seeds"], head["temperature"]) == ([0, 1, 2, 3], 0.7)
    assert head["method"] == "MARS, lossless"
    texts = [folds.text(lane_trace(last, f"s{seed}")) for seed in range(4)]
    assert texts == [COMMON + EVEN, COMMON + ODD] * 2
    assert lines[-1] == ("status", {"text": "Finished: 4 of 4 answers.", "kind": "finished"})
    assert [item.seed for item in backend.begun] == [0, 1, 2, 3]
    for settings in backend.begun:
        assert (settings.temperature, settings.lossless, settings.tau) == (0.7, True, 0)
        assert settings.block_size == 4  # an automatic B would follow the clock


@pytest.mark.parametrize(
    ("method", "expected"), [("ar", ("ar", False)), ("unverified", ("mars", False))]
)
def test_a_method_is_decoded_as_named(
    handlers: Handlers, backend: SeededBackend, method: str, expected: tuple[str, bool]
) -> None:
    [*handlers.stability.run("visitor", controls(method=method, seeds=2, temperature=0))]
    assert {(item.method, item.lossless) for item in backend.begun} == {expected}
    assert {entry.temperature for entry in backend.begun} == {0}


@pytest.mark.parametrize(
    ("field", "value", "names"),
    [
        ("seeds", 1, "from 2 to 16"),
        ("seeds", MAX_SEEDS + 1, "from 2 to 16"),
        ("method", "magic", "MARS, lossless"),
        ("temperature", -1, "temperature"),
        (
            "max_new_tokens",
            MAX_TOKENS + 1,
            f"at most {MAX_TOKENS} tokens per answer (you chose 257)",
        ),
        ("prompt", "  ", "Type a prompt"),
    ],
)
def test_a_wrong_control_is_named(
    handlers: Handlers, field: str, value: object, names: str
) -> None:
    refusal = handlers.stability.check(controls(**{field: value}))
    assert isinstance(refusal, RefusalError)
    assert refusal.field == field
    assert names in str(refusal)


def test_a_stopped_run_keeps_its_complete_answers(
    handlers: Handlers, backend: SeededBackend
) -> None:
    backend.forward_seconds = 0.002
    values = handlers.stability.run("visitor", controls(seeds=16))
    last = next(value for value in values if "s2" in value)
    only_run(handlers.stability).cancel()
    *_, last = values
    tag, status = lines_of(last)[1][-1]
    assert (tag, status["kind"]) == ("status", "stopped")
    assert status["text"].startswith("Stopped after ")
    assert status["text"].endswith(" of 16 answers.")
    assert folds.text(lane_trace(last, "s0")) == COMMON + EVEN


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[playwright.Page]:
    made = make_handlers(tmp_path_factory.mktemp("page"), SeededBackend(), port=0)
    with page_served(made) as url, opened(url) as visitor:
        visitor.wait_for_selector("#race .mars-race")
        open_tab(visitor, "stability")
        yield visitor


def run(page: playwright.Page, temperature: float) -> None:
    page.fill("#stability-prompt textarea", "Describe the sea.")
    page.fill("#stability-seeds input[type=number]", "4")
    page.fill("#stability-temperature input[type=number]", str(temperature))
    over(page, lambda: page.click("#stability-run"), ROOT, "data-phase")


@needs_browser
def test_the_view_opens_on_a_recorded_tree(page: playwright.Page) -> None:
    page.wait_for_selector(f"{ROOT}[data-recorded-run=true][data-phase=finished]")
    assert page.inner_text(f"{ROOT} .rv-phase").startswith("Recorded 20")
    leaves = page.locator(f"{ROOT} .sv-node:not(:has(.sv-node))")
    assert page.get_attribute(ROOT, "data-distinct") == str(leaves.count())
    assert page.inner_text(f"{ROOT} .rv-finding").startswith(f"{leaves.count()} different answers")
    members = leaves.evaluate_all("nodes => nodes.map((node) => +node.dataset.members)")
    assert page.get_attribute(ROOT, "data-answers") == str(sum(members))


@needs_browser
def test_answers_that_diverge_are_a_tree_and_open_in_live(page: playwright.Page) -> None:
    run(page, 0.7)
    page.wait_for_selector(f"{ROOT}[data-answers='4'][data-distinct='2']")
    assert page.get_attribute(ROOT, "data-common") == str(len(COMMON))
    place = len(COMMON) + 1
    assert page.inner_text(f"{ROOT} .rv-finding") == (
        "2 different answers from 4 seeds, one of them from 2 seeds; "
        f"the first difference is at token {place}."
    )
    texts = page.locator(f"{ROOT} .sv-text").evaluate_all(
        "nodes => nodes.map((node) => [...node.childNodes].filter((n) => n.nodeName !== 'EM')"
        ".map((n) => n.textContent).join(''))"
    )
    assert texts == [COMMON, EVEN, ODD]
    assert page.locator(f"{ROOT} .sv-text mark").all_text_contents() == [EVEN[0], ODD[0]]
    page.locator(f"{ROOT} .sv-open").nth(1).click()
    page.wait_for_selector("#race .mars-race[data-state=finished]")
    shown = page.locator("#race .rv-pane .rv-t:not(.rv-eos)").all_text_contents()
    assert "".join(shown) == COMMON + ODD
    playwright.expect(page.locator("#prompt textarea")).to_have_value("Describe the sea.")
    open_tab(page, "stability")


@needs_browser
def test_identical_answers_are_one_text(page: playwright.Page) -> None:
    run(page, 0)
    page.wait_for_selector(f"{ROOT}[data-answers='4'][data-distinct='1']")
    assert page.inner_text(f"{ROOT} .rv-finding") == "All 4 answers are identical."
    assert page.locator(f"{ROOT} .sv-node").count() == 1
