"""Presets: offered where they were measured to pay off, lit exactly when they are what is set."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from browser import Arrive, needs_browser, playwright
from live_page import wait_loaded

from app.controls import DEFAULTS
from app.examples.book import EXAMPLE_SETTINGS
from app.live.presets import BALANCED, EXACT, FAST, WAYS, controls_of, preset_of, presets_of
from app.live.tab import settings_for_example
from mars_runtime.settings import DecodeSettings


def way(tau: float, tpf: float, agreement: float, speed: float, **more: Any) -> dict[str, Any]:
    settings = asdict(DecodeSettings(tau=tau, block_size=4, **more))
    told = {"tpf": tpf, "agreement": agreement, "speed": speed}
    return {
        "checkpoint": "some",
        "settings": settings,
        **{name: {"value": value} for name, value in told.items()},
    }


def offered(folder: Path, *ways: dict[str, Any]) -> dict[str, float]:
    """The threshold of each preset that is offered."""
    path = folder / f"{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps({"ways": ways}), encoding="utf-8")
    return {name: settings.tau for name, settings in presets_of("some", path).items()}


def test_only_what_pays_off_is_offered(tmp_path: Path) -> None:
    safe, bold = way(0.9, 1.3, 0.8, 1.1), way(0.6, 1.9, 0.4, 1.5)
    exact = {EXACT: DEFAULTS.tau}
    assert offered(tmp_path) == exact
    assert offered(tmp_path, safe, bold) == {**exact, BALANCED: 0.9, FAST: 0.6}
    assert offered(tmp_path, safe) == {**exact, BALANCED: 0.9}
    slower = way(0.99, 1.2, 0.9, 0.97)
    no_fewer_passes = way(0.98, 1.0, 1.0, 1.1)
    gibberish = way(0.1, 4.0, 0.1, 2.5)
    assert offered(tmp_path, slower, no_fewer_passes, gibberish) == exact
    assert offered(tmp_path, slower, safe, bold, gibberish) == {**exact, BALANCED: 0.9, FAST: 0.6}
    assert presets_of("another", tmp_path / "1.json") == {EXACT: DEFAULTS}
    assert presets_of("some", tmp_path / "absent.json") == {EXACT: DEFAULTS}


def test_each_that_ships_was_measured_to_pay_off() -> None:
    """In passes and in seconds, on the examples of the page."""
    rows = json.loads(WAYS.read_text(encoding="utf-8"))["ways"]
    for name in ("mars-smollm2", "mars-tiny"):
        others = {preset: s for preset, s in presets_of(name).items() if preset != EXACT}
        assert others
        for settings in others.values():
            (row,) = [
                each
                for each in rows
                if each["checkpoint"] == name
                and each["settings"]["tau"] == settings.tau
                and each["settings"]["block_size"] == settings.block_size
            ]
            assert row["tpf"]["low"] > 1
            assert row["speed"]["value"] >= 1


def test_a_preset_is_known_by_all_of_its_settings() -> None:
    presets = {EXACT: DEFAULTS, BALANCED: DecodeSettings(tau=0.9, block_size=4)}
    exact = controls_of(DEFAULTS)
    assert preset_of(exact, presets) == EXACT
    assert preset_of({**exact, "block_size": 3}, presets) == EXACT  # not read: B is automatic
    for name, other in (("lookup", False), ("groups", "one"), ("auto", False), ("tau", 0.1)):
        assert preset_of({**exact, name: other}, presets) is None
    balanced = controls_of(presets[BALANCED])
    assert preset_of(balanced, presets) == BALANCED
    assert preset_of({**balanced, "block_size": 5}, presets) is None
    assert preset_of(dict.fromkeys(exact), presets) is None


def test_an_example_that_is_too_bold_brings_its_settings_and_takes_them_away() -> None:
    exact = controls_of(DEFAULTS)
    bold = settings_for_example("bold", exact)
    assert (bold["lossless"], bold["auto"]) == (False, False)
    assert bold["tau"] < 0.5
    assert preset_of(bold, {"bold": EXAMPLE_SETTINGS["bold"]}) == "bold"
    assert settings_for_example("explain", bold) == exact
    assert settings_for_example("explain", {**bold, "tau": 0.4}) == {}  # the visitor's own
    assert settings_for_example("explain", exact) == {}


@pytest.fixture
def page(arrive: Arrive, address: str) -> playwright.Page:
    opened = arrive(address)
    wait_loaded(opened)
    return opened


@needs_browser
def test_a_preset_is_lit_while_it_is_set_and_restores_all_of_it(page: playwright.Page) -> None:
    chosen = "#presets .preset.chosen:visible"
    assert page.locator("#presets .preset:visible").all_inner_texts() == [EXACT]
    assert page.locator(chosen).all_inner_texts() == [EXACT]
    page.click("#more > button")
    page.uncheck("#lookup input")
    page.wait_for_selector(chosen, state="hidden")
    page.uncheck("#auto input")
    page.click("#presets button:visible")
    page.wait_for_selector(chosen)
    assert page.is_checked("#lookup input")
    assert page.is_checked("#auto input")
