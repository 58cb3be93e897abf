"""Words for methods of decoding, and what is refused of them."""

from __future__ import annotations

import pytest

from mars_runtime.review.methods import ReviewMethod, method_of_json, read_method, read_methods
from mars_runtime.settings import DecodeSettings, SettingsError


@pytest.mark.parametrize(
    ("text", "checkpoint", "settings"),
    [
        ("ar", "tiny", {"method": "ar"}),
        ("tau=0.8", "tiny", {"tau": 0.8}),
        (" tau=1, B=8,checkpoint=other ", "other", {"tau": 1.0, "block_size": 8}),
        ("lossless", "tiny", {"tau": 0.0, "lossless": True}),
        ("lossless,tau=0.5,B=auto", "tiny", {"tau": 0.5, "lossless": True, "block_size": "auto"}),
        ("jacobi,B=4", "tiny", {"method": "jacobi"}),
    ],
)
def test_words_become_settings_and_come_back_from_json(text, checkpoint, settings) -> None:
    method = read_method(text, "tiny", max_new_tokens=9)
    wanted = DecodeSettings(**settings, max_new_tokens=9)
    name = ",".join(word.strip() for word in text.split(","))
    assert method == ReviewMethod(name, checkpoint, wanted) == method_of_json(method.as_json())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "The method is empty"),
        ("fast", "'fast' is not a method"),
        ("tau=high", "threshold"),
        ("B=auto", "Choose a number for B, or a lossless method"),
    ],
)
def test_what_is_no_way_gets_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        read_method(text, "tiny")


def test_ways_differ_and_are_few_and_are_validated_again() -> None:
    methods = read_methods(["ar", "tau=0.5"], "t")
    assert [method.name for method in methods] == ["ar", "tau=0.5"]
    with pytest.raises(SettingsError, match="2 to 5 methods"):
        read_methods(["ar"], "t")
    with pytest.raises(SettingsError, match="the same"):
        read_methods(["tau=0.5", "tau=0.50"], "t")
    stored = methods[1].as_json()
    stored["settings"]["block_size"] = "auto"
    with pytest.raises(SettingsError, match="Choose a number"):
        method_of_json(stored)
