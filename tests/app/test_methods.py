"""The table of methods: the page's copy says the same, and every setting it names exists."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from app.controls import TITLES, settings_for
from mars_runtime.methods import METHODS, Method
from mars_runtime.settings import RECOMMENDED, DecodeSettings

SCRIPT = Path(__file__).parents[2] / "assets" / "web" / "core" / "methods.js"
LINE = re.compile(
    r'^ {2}(\w+): \{\s+title: (".*?"),'
    r"\s+obeys: (\[.*?\]),\s+isExact: (true|false),?\s+\},$",
    re.MULTILINE,
)


def test_the_page_and_the_runtime_say_the_same_of_every_method() -> None:
    said = {
        name: (json.loads(title), set(json.loads(obeys)), json.loads(is_exact))
        for name, title, obeys, is_exact in LINE.findall(SCRIPT.read_text())
    }
    known = {
        name: (facts.title, set(facts.obeys), facts.is_exact) for name, facts in METHODS.items()
    }
    assert said == known
    assert list(said) == list(known) == list(TITLES)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_obeys_settings_that_there_are_and_no_others(method: Method) -> None:
    wanted = DecodeSettings(
        tau=0.3, block_size=7, metric="margin", lossless=True, groups="every", lookup=True,
        max_new_tokens=9, temperature=0.5, seed=3,
    )  # fmt: skip
    plain, made = DecodeSettings(tau=1.0, block_size=1), settings_for(method, wanted)
    assert made.method == method
    facts = METHODS[method]
    assert facts.obeys <= set(DecodeSettings.__slots__)
    if method == "block_diffusion":  # which takes what it proposes: boldness in drafting is no τ
        assert made.tau == DecodeSettings().tau
        made = replace(made, tau=wanted.tau)
    for name in ("tau", "block_size", "lossless", "groups", "lookup"):
        assert getattr(made, name) == getattr(wanted if name in facts.obeys else plain, name)
    for name in ("metric", "max_new_tokens", "temperature", "seed"):
        assert getattr(made, name) == getattr(wanted, name)


@pytest.mark.parametrize("method", METHODS)
def test_without_lossless_every_method_with_a_threshold_has_the_visitors(method: Method) -> None:
    made = settings_for(method, DecodeSettings(tau=0.3, lossless=False))
    assert made.tau == (0.3 if "tau" in METHODS[method].obeys else 1.0)


@pytest.mark.parametrize("method", METHODS)
def test_what_the_page_opens_with_suits_every_method(method: Method) -> None:
    assert settings_for(method, RECOMMENDED).method == method
