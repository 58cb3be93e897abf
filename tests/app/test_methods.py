"""The tables of methods and settings: the page's copy is equal, and every named setting exists."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.live.order import LiveSteering
from app.ui.controls import SHOWN, STEERED_SETTINGS, settings_for
from mars_runtime.decoders.methods import METHODS, Method
from mars_runtime.settings import OBEYED_BY_ALL, DecodeSettings
from tools.wire_types import files


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_the_page_and_the_runtime_say_the_same_of_methods_settings_and_lines(path: Path) -> None:
    """After a change: ``python tools/wire_types.py``."""
    assert path.read_text("utf-8") == files()[path]


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
    for name in ("tau", "block_size", "lossless", "mask_layout", "lookup", *OBEYED_BY_ALL):
        is_free = name in OBEYED_BY_ALL and name not in facts.refuses
        has_it = is_free or name in facts.obeys
        assert getattr(made, name) == getattr(wanted if has_it else plain, name), name
