"""Settings are validated once, where they are made; an error names the field, what is wrong and the
value. Each way in has one case of its own where it is tested."""

from __future__ import annotations

import math
import reprlib
from typing import Any

import numpy as np
import pytest

from mars_runtime.settings import SETTINGS, DecodeSettings, SettingsError, parse_settings

NAN = math.nan
BAD: dict[str, list[Any]] = {
    "method": ["", "AR", "beam", None, []],
    "metric": ["p", None, 3],
    "mask_layout": [1],
    "masked": ["all"],
    "tau_policy": [""],
    "draft": ["x" * 201, 3],
    "lossless": [1, "yes", None],
    "lookup": [None],
    "ignore_eos": [1],
    "tau": [NAN, math.inf, -0.01, 1.01, "0.9", None, True, 10**400, np.array([0.5])],
    "agreement_target": [1],
    "temperature": [NAN, -1, 2.5, "hot", True],
    "top_p": [0, 1.1, NAN, "all", None],
    "min_p": [-0.1, 2, NAN, "all", None],
    "top_k": [-2, 2**31, NAN, "all", None],
    "min_tokens": [-1, 4097],
    "block_size": [0, -1, 3.7, 17, 2**31, "4", "AUTO", None, True, NAN],
    "max_new_tokens": [0, -5, 10**9, 1.5, None, "9"],
    "seed": [-1, 2**31, 0.5],
    "presence_penalty": [-2.1, 2.1],
    "frequency_penalty": [NAN],
    "repetition_penalty": [0.9, "1"],
    "taus": [1],
    "logit_bias": [
        *("x", 3, None, [1], [[1]], {"x": 1}, {"-1": 1}, {1: 101}, {1: "2"}, {1: True}, {1: NAN}),
        dict.fromkeys(range(301), 1),
    ],
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_value_is_refused_in_one_sentence(name: str) -> None:
    for value in BAD[name]:
        with pytest.raises(SettingsError) as error:
            DecodeSettings(**{name: value})
        sentence = str(error.value)
        assert error.value.field == name
        assert sentence.startswith(name)
        assert sentence.endswith(".")
        assert "\n" not in sentence
        if name not in ("logit_bias", "taus"):  # the sentence shows the part that is wrong
            assert f"got {reprlib.repr(value)}." in sentence


def test_the_ends_of_the_ranges_and_scalars_of_numpy_are_allowed() -> None:
    for tau in (0, 0.0, -0.0, 1, 1.0, np.float32(0.5)):
        DecodeSettings(tau=tau)
    DecodeSettings(block_size=1, max_new_tokens=1, temperature=2.0, seed=0)
    DecodeSettings(block_size=16, max_new_tokens=4096, seed=2**31 - 1)
    made = DecodeSettings(block_size=np.int64(4), seed=3.0, lossless=np.bool_(True))  # type: ignore[arg-type]
    assert repr(made) == repr(DecodeSettings(block_size=4, seed=3, lossless=True))
    bias = {"7": 1, np.int64(2): np.float32(-1)}
    assert DecodeSettings(logit_bias=bias).logit_bias == ((2, -1), (7, 1))  # type: ignore[arg-type]


def test_texts_become_values() -> None:
    texts = {"tau": "0.5", "block_size": "auto", "seed": "7", "lossless": "true", "draft": "3"}
    values = {"tau": 0.5, "block_size": "auto", "seed": 7, "lossless": True, "draft": "3"}
    assert parse_settings(texts) == values
    for name, text in (("tau", "2"), ("tau", "nan"), ("seed", "9" * 5000), ("block_size", "x")):
        with pytest.raises(SettingsError) as error:
            parse_settings({name: text})
        assert error.value.field == name


def test_what_b_means_to_each_method() -> None:
    assert DecodeSettings("ar", block_size=8).num_proposals == 1
    assert DecodeSettings("mars", block_size=8).num_proposals == 8
    assert DecodeSettings("mars", block_size="auto").is_auto
    assert not DecodeSettings("ar", block_size="auto").is_auto
    assert DecodeSettings(block_size="auto").num_proposals == 1
    for method in ("jacobi", "speculative"):
        with pytest.raises(SettingsError, match="needs a number as B") as error:
            DecodeSettings(method, block_size="auto")
        assert error.value.field == "method"


def test_each_setting_is_described() -> None:
    for name, schema in SETTINGS.items():
        assert schema["description"], name
