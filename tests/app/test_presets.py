"""Presets: offered where they were measured to pay off, lit exactly when they are what is set."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from browser import Arrive, needs_browser
from live_page import wait_loaded

from app.live.presets import (
    CONTROLS,
    EXACT,
    FAST,
    MEASURED,
    UNVERIFIED,
    VERIFIED,
    controls_of,
    named,
    preset_of,
    presets_of,
)
from app.live.tab import settings_for_example
from app.ui.controls import DEFAULTS
from app.ui.examples import EXAMPLE_SETTINGS
from mars_runtime.settings import AR_LOOKUP, DecodeSettings, describe, read_settings


def way(tau: float, agreement: float, speed: float, **more: Any) -> dict[str, Any]:
    settings = asdict(DecodeSettings(tau=tau, **{"block_size": 4, **more}))
    values = {"tpf": 2.0, "agreement": agreement, "speed": speed}
    return {
        "checkpoint": "some",
        "settings": settings,
        **{name: {"value": value} for name, value in values.items()},
    }


def exact(speed: float) -> dict[str, Any]:
    """What the page opens with, as measured."""
    more = {
        name: getattr(DEFAULTS, name) for name in (*VERIFIED, "auto_objective") if name != "tau"
    }
    return way(DEFAULTS.tau, 1.0, speed, **more)


def offered(folder: Path, *ways: dict[str, Any]) -> dict[str, float]:
    """The threshold of each preset that is offered."""
    path = folder / f"{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps({"ways": ways}), encoding="utf-8")
    return {name: changes["tau"] for name, changes in presets_of("some", path).items()}


def test_fast_is_offered_only_where_it_was_faster_than_exact(tmp_path: Path) -> None:
    only = {EXACT: DEFAULTS.tau}
    safe, bold = way(0.9, 0.8, 1.1), way(0.6, 0.4, 1.5)
    assert offered(tmp_path) == only
    assert offered(tmp_path, safe, bold) == only  # Exact was not measured with them
    assert offered(tmp_path, exact(1.2), safe, bold) == {**only, FAST: 0.6}
    assert offered(tmp_path, exact(1.5), safe, bold) == only
    gibberish = way(0.1, 0.1, 2.5)
    assert offered(tmp_path, exact(1.2), gibberish) == only
    lookup = way(0.0, 1.0, 3.0, **{"block_size": 1, "lossless": True, "lookup": True})
    assert offered(tmp_path, exact(1.2), lookup, bold) == {**only, FAST: 0.6}
    assert list(presets_of("another", tmp_path / "2.json")) == [EXACT]
    assert list(presets_of("some", tmp_path / "absent.json")) == [EXACT]


def test_each_that_ships_was_measured_to_be_faster() -> None:
    """In one run, on the examples of the page."""
    rows = json.loads(MEASURED.read_text(encoding="utf-8"))["ways"]
    for name in ("mars-smollm2", "mars-tiny"):
        actual = presets_of(name)
        assert set(actual) <= {EXACT, FAST}
        settings = {
            describe(read_settings(row["settings"])): row
            for row in rows
            if row["checkpoint"] == name
        }
        assert {describe(AR_LOOKUP), describe(DEFAULTS)} <= settings.keys()
        if FAST in actual:
            fast = settings[describe(replace(DecodeSettings(), **actual[FAST]))]
            assert fast["speed"]["value"] > settings[describe(DEFAULTS)]["speed"]["value"]


def test_a_preset_is_known_by_all_that_it_names() -> None:
    """Only controls of the page may be named, by it or by an example."""
    for names in (VERIFIED, UNVERIFIED, *EXAMPLE_SETTINGS.values()):
        assert set(names) <= set(CONTROLS)
    presets = {EXACT: named(DEFAULTS, VERIFIED), FAST: named(DecodeSettings(), UNVERIFIED)}
    chosen = controls_of(presets[EXACT])
    assert preset_of(chosen, presets) == EXACT
    assert preset_of({**chosen, "block_size": 3}, presets) == EXACT  # not read: B is automatic
    assert preset_of({**chosen, "temperature": 1.0, "repetition_penalty": 1.2}, presets) == EXACT
    for name, other in (("lookup", False), ("mask_layout", "last"), ("auto", False), ("tau", 0.1)):
        assert preset_of({**chosen, name: other}, presets) is None
    fast = controls_of(presets[FAST])
    assert preset_of(fast, presets) == FAST
    assert preset_of({**fast, "lookup": True}, presets) == FAST
    assert preset_of({**fast, "block_size": 5}, presets) is None
    assert preset_of(dict.fromkeys(chosen), presets) is None


def test_an_example_that_is_too_bold_brings_its_settings_and_takes_them_away() -> None:
    exact = controls_of(named(DEFAULTS, VERIFIED))
    bold = settings_for_example("bold", exact)
    assert (bold["lossless"], bold["auto"]) == (False, False)
    assert bold["tau"] < 0.5
    assert preset_of(bold, EXAMPLE_SETTINGS) == "bold"
    back = settings_for_example("explain", bold)
    assert back == {name: exact[name] for name in ("lossless", "tau", "auto")}
    assert settings_for_example("explain", {**bold, "tau": 0.4}) == {}  # the visitor's own
    assert settings_for_example("explain", exact) == {}


@needs_browser
def test_a_preset_is_lit_while_it_is_set_and_restores_all_of_it(
    arrive: Arrive, address: str
) -> None:
    page = arrive(address)
    wait_loaded(page)
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
