"""Outcomes are folds over events; batching changes none of them."""

from __future__ import annotations

import pytest
from scripted_decoder import EOS, ScriptedDecoder, answer_ids

from mars_runtime.evaluation.measure import RowOutput, decode_in_batches, judge, read_rows
from mars_runtime.events import End, Prefill
from mars_runtime.settings import DecodeSettings

PROMPTS = [[5] * 7, [6], [7] * 3, [8] * 12, [9] * 2]


def test_forwards_of_a_row_are_counted_to_its_eos_only():
    settings = DecodeSettings(block_size=4)
    outputs = read_rows(ScriptedDecoder()([[5] * 7, [6]], settings), 2)
    assert outputs[0] == RowOutput((*[5] * 7, EOS), 2, True)
    assert outputs[1] == RowOutput((6, EOS), 1, True)


def test_a_row_cut_by_the_limit_has_not_ended():
    settings = DecodeSettings(block_size=4, max_new_tokens=6)
    (output,) = read_rows(ScriptedDecoder()([[5] * 7], settings), 1)
    assert output == RowOutput((5,) * 6, 2, False)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 16])
def test_batches_give_the_outputs_in_the_order_of_the_prompts(batch_size: int):
    settings = DecodeSettings(block_size=2)
    decoder = ScriptedDecoder()
    heard: list[int] = []
    outputs = decode_in_batches(decoder, PROMPTS, settings, batch_size, heard.append)
    assert [list(output.tokens) for output in outputs] == [
        answer_ids(prompt, settings) for prompt in PROMPTS
    ]
    assert sum(heard) == len(PROMPTS)
    assert max(decoder.batches) <= batch_size


def test_a_row_that_never_took_part_is_an_error():
    with pytest.raises(ValueError, match="Row 0"):
        read_rows([Prefill(3), End("cancelled")], 1)


def test_judged_outcomes_tell_equal_tokens_by_their_id():
    one = judge(RowOutput((1, 23), 1, True), "a", True)
    same = judge(RowOutput((1, 23), 2, True), "a", None)
    other = judge(RowOutput((12, 3), 1, True), "a", True)
    assert one.output_id == same.output_id != other.output_id
    assert one.tokens_per_forward == 2.0
    assert same.is_right is None
