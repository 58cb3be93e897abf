"""The tables of methods and settings: the page's copy is equal, and every named setting exists."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import Arrive, needs_browser, playwright, see
from scripted_page import page_served

from app.engines.engines import Engines
from app.handlers import make_handlers
from app.live.order import LiveSteering
from app.settings import AppSettings
from app.ui.controls import SHOWN, STEERED_SETTINGS, settings_for
from mars_runtime.decoders.methods import METHODS, Method
from mars_runtime.settings import OBEYED_BY_ALL, RECOMMENDED, DecodeSettings
from tools.wire_types import WEB, files


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_the_page_and_the_runtime_say_the_same_of_methods_settings_and_lines(path: Path) -> None:
    """After a change: ``python tools/wire_types.py``."""
    assert path.read_text("utf-8") == files()[path]


NAMES_PYTHON = re.compile(
    r"^\s*//[^\n]*\.py\b[^\n]*\n(?:export )?const \w+ = [\d\"\[{]"
    r"|^(?:export )?const \w+ = (?:\d|\"|\[|\{)[^\n]*//[^\n]*(?:\.py\b|as the server)",
    re.MULTILINE,
)
"""A constant that a script defines itself although its comment names where Python defines it."""


def test_no_script_repeats_a_constant_of_python() -> None:
    """Such a constant belongs into ``core/table.js``, which ``tools/wire_types.py`` writes."""
    actual = [
        f"{path.relative_to(WEB)}: {match.group().strip()}"
        for path in sorted(WEB.rglob("*.js"))
        if path != WEB / "core" / "table.js"
        for match in NAMES_PYTHON.finditer(path.read_text("utf-8"))
    ]
    assert actual == []


def test_every_setting_that_is_steered_moves_a_run_that_goes_on_and_no_other_does() -> None:
    moved = DecodeSettings(
        tau=0.3, block_size=7, metric="margin", lossless=True, mask_layout="every", lookup=True,
        tau_policy="agreement", agreement_target=0.5,
        max_new_tokens=9, temperature=1.0, top_p=0.5, seed=3,
        repetition_penalty=1.2, stop_loops=True,
    )  # fmt: skip
    actual = LiveSteering(settings=moved).applied_to(DecodeSettings())
    for name in SHOWN:
        expected = moved if name in STEERED_SETTINGS else DecodeSettings()
        assert getattr(actual, name) == getattr(expected, name), name
        assert getattr(moved, name) != getattr(DecodeSettings(), name), name


@pytest.mark.parametrize("method", METHODS)
def test_a_method_obeys_settings_that_there_are_and_no_others(method: Method) -> None:
    wanted = DecodeSettings(
        tau=0.3, block_size=7, metric="margin", lossless=True, mask_layout="every", lookup=True,
        max_new_tokens=9, temperature=0.5, seed=3, repetition_penalty=1.2, stop_loops=True,
    )  # fmt: skip
    plain, made = DecodeSettings(tau=1.0, block_size=1), settings_for(method, wanted)
    assert made.method == method
    facts = METHODS[method]
    assert facts.obeys <= set(DecodeSettings.__slots__)
    if method == "block_diffusion":  # which takes what it proposes: boldness in drafting is no τ
        assert made.tau == DecodeSettings().tau
        made = replace(made, tau=wanted.tau)
    for name in ("tau", "block_size", "lossless", "mask_layout", "lookup"):
        assert getattr(made, name) == getattr(wanted if name in facts.obeys else plain, name)
    assert settings_for(method, RECOMMENDED).method == method
    bold = settings_for(method, DecodeSettings(tau=0.3, lossless=False))
    assert bold.tau == (0.3 if "tau" in facts.obeys else 1.0)
    for name in OBEYED_BY_ALL:
        refused = name in facts.refuses
        assert getattr(made, name) == getattr(plain if refused else wanted, name)


RACE = "#race .mars-race"
PANE = f"{RACE} .rv-pane[data-lane={{}}]"
CHART = f"{RACE} .rv-plot.js-plotly-plot:not([data-is-stale])"
PROMPT = "Sort+these+numbers%3A+5%2C+3%2C+9"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The page of ``app.py --checkpoint mars-tiny``."""
    engines = Engines(AppSettings(checkpoint="mars-tiny", port=0, max_new_tokens=48))
    engines.open()
    with page_served(make_handlers(engines)) as url:
        yield url


Raced = Callable[[str, str], tuple[playwright.Page, list[dict[str, Any]]]]


@pytest.fixture
def raced(address: str, arrive: Arrive) -> Raced:
    """Opens the page by a link and runs what it names: the finished race, all drawn, and the steps
    of its first lane."""

    def race(checkpoint: str, more: str) -> tuple[playwright.Page, list[dict[str, Any]]]:
        page = arrive(f"{address}?checkpoint={checkpoint}&prompt={PROMPT}&max_new_tokens=40&{more}")
        page.wait_for_selector(f"{RACE}[data-state=empty]")
        page.wait_for_selector(f"#footer:has-text('{checkpoint}:')")
        page.click("#run")
        page.wait_for_selector(f"{RACE}[data-state=finished][data-lanes='2']")
        see(page.locator(f"{RACE} .rv-charts"))
        page.wait_for_function(f"document.querySelectorAll('{CHART}').length === 2")
        lanes = f"document.querySelector('{RACE}').lineView.run.lanes"
        return page, page.evaluate(f"{lanes}.find((lane) => lane.method !== 'ar').steps")

    return race


@needs_browser
def test_a_draft_model_races_plain_ar_and_writes_the_same(raced: Raced) -> None:
    page, steps = raced("mars-tiny", "lanes=speculative,ar&tau=0")
    said = page.inner_text(f"{PANE.format('speculative')} .rv-head")
    assert "draft model" in said
    assert "same text" in said
    assert sum(step["draftForwards"] for step in steps) > 0
    page.click(f"{PANE.format('speculative')} .rv-t >> nth=3")
    page.wait_for_selector(f"{RACE} .rv-drawer[data-lane=speculative]")


@needs_browser
def test_blocks_are_filled_in_any_order_next_to_plain_ar(raced: Raced) -> None:
    page, steps = raced("block-diffusion-tiny", "lanes=block_diffusion,ar&tau=0.9&lossless=false")
    assert "unverified" in page.inner_text(f"{PANE.format('block_diffusion')} .rv-head")
    places = [step["first"] + taken for step in steps for taken in step["taken"]]
    assert sorted(places) == list(range(40))
    assert places != sorted(places)  # some were taken ahead of an open one
    for lane in ("block_diffusion", "ar"):
        assert page.inner_text(f"{PANE.format(lane)} .rv-text")
