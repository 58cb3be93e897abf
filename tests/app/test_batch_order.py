"""What the Batch tab may ask for: prompts with line breaks, methods, ranges, one sentence each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batch.order import (
    MAX_CACHE_BLOCK,
    MIN_CACHE_BLOCK,
    TITLES,
    prompts_as_text,
    read_batch_order,
)
from app.controls import Limits, RefusalError
from mars_runtime.decoders import baselines
from mars_runtime.decoders.baselines import BATCH_METHODS

LIMITS = Limits(max_prompt_chars=40, max_new_tokens=512, block_size=8)
VALUES = {
    "prompts": "One.\nTwo ⏎ lines.",
    "method": "cursor",
    "second": "block",
    "batch_size": 4.0,
    "tau": 0.9,
    "block_size": 4.0,
    "cache_block": 16,
    "max_new_tokens": 64,
    "checkpoint": "mars-tiny",
}


def test_an_order() -> None:
    order = read_batch_order(VALUES, LIMITS)
    assert order.prompts == ("One.", "Two\nlines.")
    assert order.methods == ("cursor", "block")
    assert (order.batch_size, order.cache_block) == (4, 16)
    assert (order.settings.tau, order.settings.block_size) == (0.9, 4)
    assert order.title("block") == "MARS, block cache 16"
    assert read_batch_order({**VALUES, "second": "none"}, LIMITS).methods == ("cursor",)


def test_the_tab_offers_what_the_runtime_has() -> None:
    assert set(TITLES) == set(BATCH_METHODS)
    runtime = (baselines.MIN_CACHE_BLOCK, baselines.MAX_CACHE_BLOCK)
    assert runtime == (MIN_CACHE_BLOCK, MAX_CACHE_BLOCK)


@given(st.lists(st.lists(st.sampled_from(["a b", "", "$x"]), min_size=1).map("\n".join)))
def test_prompts_survive_the_text_box(prompts) -> None:
    kept = [prompt for prompt in prompts if prompt.strip()][:16]
    if kept:
        limits = Limits(10_000, 512, 8)
        values = {**VALUES, "prompts": prompts_as_text(kept)}
        assert list(read_batch_order(values, limits).prompts) == kept


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"prompts": " \n "}, "prompts", "Type at least one prompt"),
        ({"prompts": None}, "prompts", "Type at least one prompt"),
        ({"prompts": "x\n" * 17}, "prompts", "at most 16 prompts"),
        ({"prompts": "ok\n" + "y" * 41}, "prompts", "Prompt 2: Shorten the prompt"),
        ({"method": "magic"}, "method", "Choose a method"),
        ({"second": ["ar"]}, "second", "Choose a method"),
        ({"second": "cursor"}, "second", "differs from the first"),
        ({"batch_size": 0}, "batch_size", "batch size must be a whole number from 1 to 16"),
        ({"batch_size": float("nan")}, "batch_size", "batch size must be a whole number"),
        ({"cache_block": 2}, "cache_block", "cache block must be a whole number from 4 to 256"),
        ({"cache_block": True}, "cache_block", "cache block must be a whole number"),
        ({"tau": float("nan")}, "tau", "threshold"),
        ({"block_size": 9}, "block_size", "trained depth"),
        ({"max_new_tokens": 300}, "max_new_tokens", "at most 256 tokens"),
    ],
)
def test_refusals_name_the_control(changes, field, sentence) -> None:
    with pytest.raises(RefusalError, match=sentence) as caught:
        read_batch_order({**VALUES, **changes}, LIMITS)
    assert caught.value.field == field
