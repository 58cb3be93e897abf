"""Settings are checked once, where they are born, and say what to do."""

from __future__ import annotations

import dataclasses
import math

import pytest

from mars_runtime.settings import SETTINGS, BlockSize, DecodeSettings, SettingsError


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


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ({"method": "AR"}, "Choose a method among mars, ar, jacobi, speculative, block_diffusion."),
        ({"method": []}, "Choose a method among mars, ar, jacobi, speculative, block_diffusion."),
        ({"metric": "p"}, "Choose a confidence metric among probability, margin, entropy."),
        ({"groups": 1}, "Choose mask groups among one, every."),
        ({"masked": "all"}, "Choose which model is fed masks among both, draft, target, none."),
        ({"threshold": ""}, "Choose how τ is held among fixed, entropy, agreement."),
        ({"draft": "x" * 201}, "The draft is the name of a checkpoint."),
        ({"lossless": 1}, "Lossless is either on or off."),
        ({"lookup": None}, "Lookup is either on or off."),
        ({"tau": math.nan}, "The threshold τ must be a number from 0 to 1."),
        ({"target": 1}, "The target of agreement must be a number from 0.5 to 0.999."),
        ({"temperature": True}, "The temperature must be a number from 0 to 2."),
        ({"top_p": 0}, "Top-p must be a number from 0.01 to 1."),
        ({"top_k": -2}, "Top-k must be a whole number from -1 to 2147483647."),
        ({"min_p": 2}, "Min-p must be a number from 0 to 1."),
        (
            {"min_tokens": -1},
            "The minimum number of tokens must be a whole number from 0 to 4096.",
        ),
        ({"ignore_eos": 1}, "Ignoring the end of the text is either on or off."),
        ({"block_size": 4.0}, "The block size B must be a whole number from 1 to 16, or auto."),
        ({"method": "jacobi", "block_size": "auto"}, "Jacobi needs a number as B."),
        ({"method": "speculative", "block_size": "auto"}, "speculative needs a number as B."),
        (
            {"max_new_tokens": "9"},
            "The number of tokens to generate must be a whole number from 1 to 4096.",
        ),
        ({"seed": 2**31}, "The seed must be a whole number from 0 to 2147483647."),
    ],
)
def test_every_refusal_is_one_sentence_that_says_what_to_choose(chosen, sentence):
    with pytest.raises(SettingsError) as error:
        DecodeSettings(**chosen)
    assert str(error.value) == sentence


def test_a_value_is_kept_as_it_was_given():
    assert type(DecodeSettings(tau=1).tau) is int, "a trace says 1, not 1.0"


@pytest.mark.parametrize("name", SETTINGS)
def test_a_line_of_the_table_is_whole(name):
    line = SETTINGS[name]
    assert line.default == getattr(DecodeSettings(), name)
    assert line.says
    assert line.link in ("", name)
    assert bool(line.link) == bool(line.label), "what has a control has a label and stands in links"
    assert not line.is_steered or line.link
    assert set(line.titles) <= set(line.choices)
    is_number = line.type in (int, float) or line.type == BlockSize
    assert is_number == (line.low is not None) == (line.high is not None)
