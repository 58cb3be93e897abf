"""Settings are checked once, where they are born, and say what to do."""

from __future__ import annotations

import dataclasses
import math

import pytest

from mars_runtime.settings import DecodeSettings, SettingsError


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("tau", [math.nan, math.inf, -0.01, 1.01, "0.9", None, True, 10**400]),
        ("temperature", [math.nan, -1, 2.5, "hot"]),
        ("block_size", [0, -1, 3.7, 4.0, 17, 2**31, "4", "AUTO", None, True, math.nan]),
        ("max_new_tokens", [0, -5, 10**9, 1.5, None]),
        ("seed", [-1, 2**31, 0.5]),
        ("method", ["", "AR", "beam", None]),
        ("metric", ["p", None, 3]),
        ("lossless", [1, "yes", None]),
    ],
)
def test_a_value_out_of_range_is_refused_in_one_sentence(field, values):
    for value in values:
        with pytest.raises(SettingsError) as error:
            DecodeSettings(**{field: value})
        assert str(error.value).count(".") >= 1
        assert "\n" not in str(error.value)


def test_the_ends_of_the_ranges_are_allowed():
    for tau in (0, 0.0, -0.0, 1, 1.0):
        DecodeSettings(tau=tau)
    DecodeSettings(block_size=1, max_new_tokens=1, temperature=2.0, seed=0)
    DecodeSettings(block_size=16, max_new_tokens=4096, seed=2**31 - 1)


def test_ar_makes_one_proposal_whatever_b_says():
    assert DecodeSettings(method="ar", block_size=8).num_proposals == 1
    assert DecodeSettings(method="mars", block_size=8).num_proposals == 8


def test_only_mars_leaves_b_to_be_chosen():
    assert DecodeSettings(method="mars", block_size="auto").is_auto
    assert not DecodeSettings(method="ar", block_size="auto").is_auto
    assert DecodeSettings(block_size="auto").num_proposals == 1


def test_settings_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        DecodeSettings().tau = 0.5  # type: ignore[misc]
