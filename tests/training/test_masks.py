"""Law 6: the two-stream mask is the table of the paper, and does what it is for."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_qwen2 import tiny_qwen2

from mars_runtime.lab.training.data import Example
from mars_runtime.lab.training.streams import TwoStreams, block_ids, two_stream_mask
from mars_runtime.lab.training.train import mars_loss


def brute_block(position: int, response_start: int, first_block: int, block_size: int) -> int:
    if position < response_start:
        return -1
    if position < response_start + first_block:
        return 0
    return 1 + (position - response_start - first_block) // block_size


@given(
    start=st.integers(1, 6),
    block_size=st.integers(1, 5),
    length=st.integers(7, 16),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_mask_equals_a_brute_force_reading_of_the_table(start, block_size, length, data):
    first = data.draw(st.integers(1, block_size))
    blocks = block_ids(length, torch.tensor([start]), torch.tensor([first]), block_size)
    noisy_at = torch.arange(start, length)[None]
    mask = two_stream_mask(blocks, blocks[:, start:], noisy_at)[0, 0]

    def block(position: int) -> int:
        return brute_block(position, start, first, block_size)

    stream = [("clean", p) for p in range(length)] + [("noisy", p) for p in range(start, length)]
    for row, (query, i) in enumerate(stream):
        for column, (key, j) in enumerate(stream):
            if query == "clean":
                expected = key == "clean" and j <= i
            elif key == "noisy":
                expected = block(j) == block(i) and j <= i
            else:
                expected = block(j) < block(i)
            assert bool(mask[row, column]) == expected, (query, i, key, j)


def tiny_model():
    return tiny_qwen2().eval()


MASK, EOS = 3, 2


def streams_of(ids: list[int], start: int, block_size: int, seed: int = 5) -> TwoStreams:
    example = Example(tuple(ids), start)
    return TwoStreams.of([example], block_size, MASK, EOS, random.Random(seed))


def noisy_hidden(model, streams: TwoStreams) -> torch.Tensor:
    with torch.no_grad():
        hidden = model.model(
            input_ids=streams.ids, attention_mask=streams.mask, position_ids=streams.positions
        ).last_hidden_state
    return hidden[0, streams.num_clean :]


def test_clean_tokens_of_a_block_never_move_noisy_slots_of_it_or_of_earlier_ones():
    model, start, block_size = tiny_model(), 4, 3
    ids = [10, 11, 12, 13, 20, 21, 22, 23, 24, 25, 26, EOS]
    first = random.Random(5).randint(1, block_size)
    before = noisy_hidden(model, streams_of(ids, start, block_size))
    for changed in range(start, len(ids) - 1):
        other = [*ids]
        other[changed] = 30
        after = noisy_hidden(model, streams_of(other, start, block_size))
        block = brute_block(changed, start, first, block_size)
        moved = (before - after).abs().amax(-1) > 1e-5
        for place in range(len(ids) - start):
            is_later = brute_block(start + place, start, first, block_size) > block
            assert bool(moved[place]) == is_later


def test_a_noisy_slot_sees_what_decoding_would_show_it():
    """Masks appended to a clean prefix predict as the noisy stream does: training is decoding."""
    model, start, block_size = tiny_model(), 4, 3
    ids = [10, 11, 12, 13, 20, 21, 22, 23, 24, 25, 26, EOS]
    first = random.Random(5).randint(1, block_size)
    noisy = noisy_hidden(model, streams_of(ids, start, block_size))
    for begin in range(start + first, len(ids) - block_size, block_size):
        appended = torch.tensor([ids[:begin] + [MASK] * block_size])
        with torch.no_grad():
            hidden = model.model(input_ids=appended).last_hidden_state[0, begin:]
        expected = noisy[begin - start : begin - start + block_size]
        torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=1e-4)


def test_response_is_padded_with_eos_to_a_whole_block_and_the_padding_is_learned():
    ids, start, block_size = [10, 11, 20, 21, EOS], 2, 4
    for seed in range(8):
        first = random.Random(seed).randint(1, block_size)
        streams = streams_of(ids, start, block_size, seed)
        targets = streams.targets[0, : streams.num_clean]
        num_targets = int((targets >= 0).sum())
        assert (num_targets - first) % block_size == 0
        assert targets[start - 1 : start + 2].tolist() == [20, 21, EOS]
        assert set(targets[start + 2 : start - 1 + num_targets].tolist()) <= {EOS}
        noisy = streams.targets[0, streams.num_clean :]
        assert noisy[:2].tolist() == [21, EOS]


def test_a_cut_response_is_not_given_an_end():
    streams = streams_of([10, 11, 20, 21, 22], 2, 4)
    assert EOS not in streams.targets[streams.targets >= 0].tolist()


@pytest.mark.parametrize("clean_weight", [0.0, 1.0])
def test_loss_is_noisy_plus_weighted_clean(clean_weight):
    model = tiny_model()
    terms = mars_loss(model, streams_of([10, 11, 20, 21, 22, EOS], 2, 3), clean_weight)
    expected = terms["noisy"] + clean_weight * terms["clean"]
    torch.testing.assert_close(terms["loss"].detach(), expected)
    assert terms["noisy"] > 0
    assert terms["clean"] > 0


def test_the_noisy_stream_may_hold_a_share_of_the_blocks_each_as_in_the_whole():
    """Left-out blocks move no other's slots, and over draws every block is asked."""
    model, start, block_size = tiny_model(), 4, 3
    ids = [10, 11, 12, 13, 20, 21, 22, 23, 24, 25, 26, EOS]
    asked = set()
    for seed in range(12):
        whole = streams_of(ids, start, block_size, seed)
        rng = random.Random(seed)
        part = TwoStreams.of([Example(tuple(ids), start)], block_size, MASK, EOS, rng, 1 / 3)
        expected, hidden = noisy_hidden(model, whole), noisy_hidden(model, part)
        is_real = part.targets[0, part.num_clean :] >= 0
        num_asked = int(is_real.sum())
        assert 0 < num_asked < int((whole.targets[0, whole.num_clean :] >= 0).sum())
        places = part.positions[0, part.num_clean :][is_real] - start
        torch.testing.assert_close(hidden[is_real], expected[places], atol=1e-5, rtol=1e-4)
        noisy_targets = whole.targets[0, whole.num_clean :]
        assert part.targets[0, part.num_clean :][is_real].tolist() == noisy_targets[places].tolist()
        assert torch.equal(part.targets[0, : part.num_clean], whole.targets[0, : whole.num_clean])
        asked |= set(places.tolist())
    assert asked >= set(range(len(ids) - 1 - start))
