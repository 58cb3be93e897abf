"""Words for ways of decoding, and what is refused of them."""

from __future__ import annotations

import pytest

from mars_runtime.review.ways import Way, read_way, read_ways, way_of
from mars_runtime.settings import DecodeSettings, SettingsError


def test_words_become_settings() -> None:
    assert read_way("ar", "tiny") == Way("ar", "tiny", DecodeSettings(method="ar"))
    assert read_way("tau=0.8", "tiny").settings == DecodeSettings(tau=0.8)
    both = read_way(" tau=1, B=8,checkpoint=other ", "tiny", max_new_tokens=9)
    assert both == Way(
        "tau=1,B=8,checkpoint=other",
        "other",
        DecodeSettings(tau=1.0, block_size=8, max_new_tokens=9),
    )
    assert read_way("lossless", "t").settings == DecodeSettings(tau=0.0, lossless=True)
    assert read_way("lossless,tau=0.5,B=auto", "t").settings == DecodeSettings(
        tau=0.5, lossless=True, block_size="auto"
    )
    assert read_way("jacobi,B=4", "t").settings == DecodeSettings(method="jacobi")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "A way needs a word"),
        ("fast", "'fast' is no way of decoding"),
        ("tau", "'tau' is no way of decoding"),
        ("tau=2", "threshold τ must be a number from 0 to 1"),
        ("tau=high", "threshold τ must be a number"),
        ("B=17", "block size B must be a whole number"),
        ("B=auto", "Choose a number as B, or lossless"),
        ("lossless=maybe", "Lossless is either on or off"),
        ("block_diffusion,B=auto", "Choose a number as B"),
    ],
)
def test_what_is_no_way_gets_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        read_way(text, "tiny")


def test_ways_differ_and_are_few() -> None:
    assert [way.name for way in read_ways(["ar", "tau=0.5"], "t")] == ["ar", "tau=0.5"]
    with pytest.raises(SettingsError, match="2 to 5 ways"):
        read_ways(["ar"], "t")
    with pytest.raises(SettingsError, match="the same"):
        read_ways(["tau=0.5", "tau=0.50"], "t")


def test_a_way_comes_back_from_json_and_is_judged_again() -> None:
    way = read_way("tau=0.8,B=8", "tiny")
    assert way_of(way.as_json()) == way
    told = way.as_json()
    told["settings"]["block_size"] = "auto"
    with pytest.raises(SettingsError, match="Choose a number"):
        way_of(told)
