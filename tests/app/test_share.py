"""Links: each value by the rules of its control, and one sentence for what was left out."""

from __future__ import annotations

import pytest

from app.engines.limits import Limits, RefusalError
from app.live.order import read_link


def limits_of(checkpoint: object) -> Limits:
    if checkpoint not in ("small", "deep"):
        raise RefusalError("checkpoint", "Choose a checkpoint from the list.")
    return Limits(40, 100, 4 if checkpoint == "small" else 12)


def read(**query: str) -> tuple[dict[str, object], str]:
    return read_link(query, limits_of, "small")


def test_a_whole_link() -> None:
    values, sentence = read(
        prompt="Say <b>hello</b>.",
        tau="0.7",
        block_size="3",
        lossless="true",
        metric="margin",
        max_new_tokens="64",
        temperature="0",
        seed="7",
        lanes="mars",
        checkpoint="deep",
    )
    assert sentence == ""
    assert values == {
        "prompt": "Say <b>hello</b>.",
        "tau": 0.7,
        "block_size": 3,
        "auto": False,
        "lossless": True,
        "metric": "margin",
        "max_new_tokens": 64,
        "temperature": 0,
        "seed": 7,
        "view": ["mars"],
        "checkpoint": "deep",
    }


def test_what_a_link_does_not_say_is_not_touched() -> None:
    assert read() == ({}, "")
    assert read(tau="1") == ({"tau": 1}, "")
    assert read(__theme="dark", __sign="abc", given="[1]", pace="3") == ({}, "")


def test_links_of_before_keep_working_and_the_api_page_has_its_name_to_itself() -> None:
    assert read(view="ar") == ({"view": ["ar"]}, "")
    assert read(view="ar", lanes="mars") == ({"view": ["mars"]}, "")
    assert read(view="api", tau="1") == ({"tau": 1}, "")


def test_b_may_be_left_to_be_chosen() -> None:
    assert read(block_size="auto") == ({"auto": True}, "")


def test_the_depth_is_that_of_the_checkpoint_of_the_link() -> None:
    assert read(block_size="9")[0] == {}
    assert read(block_size="9", checkpoint="deep")[0]["block_size"] == 9


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tau", "2"),
        ("tau", "nan"),
        ("tau", "true"),
        ("tau", "9" * 5000),
        ("block_size", "0"),
        ("block_size", "5"),
        ("block_size", "2.5"),
        ("lossless", "1"),
        ("lossless", "yes"),
        ("metric", "best"),
        ("max_new_tokens", "101"),
        ("max_new_tokens", "inf"),
        ("temperature", "-1"),
        ("seed", "x"),
        ("lanes", "both"),
        ("checkpoint", "../etc"),
        ("prompt", " "),
        ("prompt", "a" * 41),
        ("prompt", "a\0b"),
    ],
)
def test_a_bad_value_is_named_in_a_sentence_and_the_rest_applies(name: str, text: str) -> None:
    good = {"tau": "0.5", "seed": "3"}
    good.pop(name, None)
    values, sentence = read(**good, **{name: text})
    assert values == {key: float(value) for key, value in good.items()}
    assert sentence.startswith(f"Of this link, {name} was left out: ")
    assert sentence.endswith(".")
    assert len(sentence) < 160
    assert "<" not in sentence


def test_several_bad_values_are_all_named() -> None:
    sentence = read(tau="x", seed="y")[1]
    assert "tau was left out" in sentence
    assert "seed was left out" in sentence
