"""Settings are validated once, where they are made, and errors say what to choose."""

from __future__ import annotations

import dataclasses
import math
import reprlib

import pytest

from mars_runtime.decoders.methods import METHODS
from mars_runtime.settings import SETTINGS, BlockSize, DecodeSettings, SettingsError

METHOD = f"The method must be one of {', '.join(METHODS)}."
NUMBER = " must be a number from {} to {}."
WHOLE = " must be a whole number from {} to {}."
NAN = math.nan


@pytest.mark.parametrize(
    ("name", "values", "sentence"),
    [
        ("method", ["", "AR", "beam", None, []], METHOD),
        (
            "metric",
            ["p", None, 3],
            "The confidence measure must be one of probability, margin, entropy.",
        ),
        ("mask_layout", [1], "The mask layout must be one of last, every."),
        ("masked", ["all"], "The setting masked must be one of both, draft, target, none."),
        ("tau_policy", [""], "The threshold rule must be one of fixed, entropy, agreement."),
        (
            "draft",
            ["x" * 201],
            "The draft model must be the name of a checkpoint, at most 200 characters long.",
        ),
        ("lossless", [1, "yes", None], "Lossless must be on or off."),
        ("lookup", [None], "Prompt lookup must be on or off."),
        ("ignore_eos", [1], "The setting ignore_eos must be on or off."),
        (
            "tau",
            [NAN, math.inf, -0.01, 1.01, "0.9", None, True, 10**400],
            "The threshold τ" + NUMBER.format(0, 1),
        ),
        ("agreement_target", [1], "The agreement target" + NUMBER.format(0.5, 0.999)),
        ("temperature", [NAN, -1, 2.5, "hot", True], "The temperature" + NUMBER.format(0, 2)),
        ("top_p", [0, 1.1, NAN, "all", None], "Top-p" + NUMBER.format(0.01, 1)),
        ("min_p", [-0.1, 2, NAN, "all", None], "Min-p" + NUMBER.format(0, 1)),
        ("top_k", [-2, 2.0, 2**31, NAN, "all", None], "Top-k" + WHOLE.format(-1, 2147483647)),
        ("min_tokens", [-1], "The minimum number of tokens" + WHOLE.format(0, 4096)),
        (
            "block_size",
            [0, -1, 3.7, 4.0, 17, 2**31, "4", "AUTO", None, True, NAN],
            "The block size B must be a whole number from 1 to 16, or auto.",
        ),
        (
            "max_new_tokens",
            [0, -5, 10**9, 1.5, None, "9"],
            "The number of tokens to generate" + WHOLE.format(1, 4096),
        ),
        ("seed", [-1, 2**31, 0.5], "The seed" + WHOLE.format(0, 2147483647)),
    ],
)
def test_a_value_out_of_range_is_refused_in_one_sentence(name, values, sentence):
    for value in values:
        with pytest.raises(SettingsError) as error:
            DecodeSettings(**{name: value})
        assert str(error.value) == f"{sentence[:-1]}, got {reprlib.repr(value)}."


def test_the_ends_of_the_ranges_are_allowed():
    for tau in (0, 0.0, -0.0, 1, 1.0):
        DecodeSettings(tau=tau)
    DecodeSettings(block_size=1, max_new_tokens=1, temperature=2.0, seed=0)
    DecodeSettings(block_size=16, max_new_tokens=4096, seed=2**31 - 1)
    assert type(DecodeSettings(tau=1).tau) is int, "a trace says 1, not 1.0"


def test_what_b_means_to_each_method():
    assert DecodeSettings("ar", block_size=8).num_proposals == 1
    assert DecodeSettings("mars", block_size=8).num_proposals == 8
    assert DecodeSettings("mars", block_size="auto").is_auto
    assert not DecodeSettings("ar", block_size="auto").is_auto
    assert DecodeSettings(block_size="auto").num_proposals == 1
    for method, title in (("jacobi", "Jacobi"), ("speculative", "speculative")):
        with pytest.raises(SettingsError, match=rf"^{title} needs a number as B\.$"):
            DecodeSettings(method, block_size="auto")


def test_settings_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        DecodeSettings().tau = 0.5


@pytest.mark.parametrize("name", SETTINGS)
def test_a_line_of_the_table_is_complete(name):
    line = SETTINGS[name]
    assert line.default == getattr(DecodeSettings(), name)
    assert line.says
    assert line.link in ("", name)
    assert bool(line.link) == bool(line.label), "what has a control has a label and is in links"
    assert not line.is_steered or line.link
    assert set(line.titles) <= set(line.choices)
    is_number = line.type in (int, float) or line.type == BlockSize
    assert is_number == (line.low is not None) == (line.high is not None)
