"""Outcomes are folds over events; batching changes none of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted_decoder import EOS, ScriptedDecoder, answer_ids

from mars_runtime.events import End, Prefill, Proposal, RowStep
from mars_runtime.lab.evaluation.measure import (
    RowOutput,
    decode_in_batches,
    judge,
    num_offered,
    read_rows,
    survival,
)
from mars_runtime.settings import DecodeSettings

PROMPTS = [[5] * 7, [6], [7] * 3, [8] * 12, [9] * 2]


def test_forwards_of_a_row_are_counted_to_its_eos_only():
    settings = DecodeSettings(block_size=4)
    outputs = read_rows(ScriptedDecoder()([[5] * 7, [6]], settings), 2)
    assert outputs[0] == RowOutput((*[5] * 7, EOS), (4, 4), (0, 0), True)
    assert outputs[1] == RowOutput((6, EOS), (2,), (0,), True)


def test_a_row_cut_by_the_limit_has_not_ended():
    settings = DecodeSettings(block_size=4, max_new_tokens=6)
    (output,) = read_rows(ScriptedDecoder()([[5] * 7], settings), 1)
    assert output == RowOutput((5,) * 6, (4, 2), (0, 0), False)


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
    one = judge(RowOutput((1, 23), (2,), (2,), True), "a", True)
    same = judge(RowOutput((1, 23), (1, 1), (1, 1), True), "a", None)
    other = judge(RowOutput((12, 3), (2,), (2,), True), "a", True)
    assert one.output_id == same.output_id != other.output_id
    assert one.tokens_per_forward == 2.0
    assert same.is_right is None


def test_a_repetition_is_cut_with_the_forwards_that_made_it():
    text = [*range(100, 110), *[1, 2, 3] * 20]
    looped = RowOutput(tuple(text), (4,) * 17 + (2,), (5,) * 18, False)
    cut = looped.without_loop()
    assert cut.tokens == tuple(text[:13])
    assert cut.taken == (4, 4, 4, 1)
    assert cut.offered == (5,) * 4
    assert cut.is_looped
    assert judge(cut, "", None).tokens_per_forward == 13 / 4
    plain = RowOutput((1, 2, 3), (1, 2), (1, 2), True)
    assert plain.without_loop() is plain


def step(settings: DecodeSettings, num_proposals: int, num_drafted: int) -> RowStep:
    proposals = (Proposal(1, 1.0, ()),) * num_proposals
    return RowStep(0, 0, 0, 1, 4, proposals, (1,), num_drafted, settings, "threshold")


def test_what_could_have_left_with_a_forward():
    lossless = step(DecodeSettings(lossless=True), 4, 3)
    assert num_offered(lossless, None) == 1
    assert num_offered(lossless, lossless) == 4
    looked_up = replace(lossless, num_drafted=0, looked_up=(7, 8))
    assert num_offered(lossless, looked_up) == 3
    assert num_offered(step(DecodeSettings(), 4, 0), None) == 4
    assert num_offered(step(DecodeSettings("ar"), 1, 0), lossless) == 1


def test_survival_counts_only_forwards_that_offered_as_much():
    assert survival([(1, 1), (2, 3), (3, 3), (1, 3)]) == [1.0, 2 / 3, 1 / 3]
    assert survival([]) == []
