"""Law 6: the two-stream mask is the table of the paper, and does what it is for; what each kind of
noise shows and asks, against pictures drawn by hand.
"""

from __future__ import annotations

import random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mars_runtime.lab.training.data import TrainingExample
from mars_runtime.lab.training.streams import TwoStreams, block_ids, two_stream_mask
from mars_runtime.lab.training.train import mars_loss

MASK, EOS = 3, 2


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


def tiny_qwen2():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=40, **sizes, **heads))


def streams_of(ids, start: int, block_size: int, seed: int = 5, share: float = 1.0) -> TwoStreams:
    example = TrainingExample(tuple(ids), start)
    return TwoStreams.of([example], block_size, MASK, EOS, random.Random(seed), share)


def noisy_hidden(model, streams: TwoStreams) -> torch.Tensor:
    with torch.no_grad():
        hidden = model.model(
            input_ids=streams.ids, attention_mask=streams.mask, position_ids=streams.positions
        ).last_hidden_state
    return hidden[0, streams.num_clean :]


def test_a_noisy_slot_sees_what_decoding_would_show_it():
    """Masks appended to a clean prefix predict as the noisy stream does: training is decoding."""
    model, start, block_size = tiny_qwen2().eval(), 4, 3
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


def test_a_share_of_the_blocks_is_asked_as_in_the_whole_and_over_draws_every_block() -> None:
    model, ids, start = tiny_qwen2().eval(), (10, 11, 12, 13, 20, 21, 22, 23, 24, 25, 26, EOS), 4
    asked = set()
    for seed in range(12):
        whole = streams_of(ids, start, 3, seed)
        part = streams_of(ids, start, 3, seed, 1 / 3)
        targets = part.targets[0, part.num_clean :]
        places = part.positions[0, part.num_clean :][targets >= 0] - start
        noisy_targets = whole.targets[0, whole.num_clean :]
        assert 0 < len(places) < int((noisy_targets >= 0).sum())
        assert torch.equal(targets[targets >= 0], noisy_targets[places])
        hidden, expected = noisy_hidden(model, part)[targets >= 0], noisy_hidden(model, whole)
        torch.testing.assert_close(hidden, expected[places], atol=1e-5, rtol=1e-4)
        asked |= set(places.tolist())
    assert asked >= set(range(len(ids) - 1 - start))


# A prompt of one token, a response of three and its end; blocks of 2, the first one whole.
TEXT = TrainingExample((10, 20, 21, 22, EOS), 1)


class Rng(random.Random):
    """Draw as given: whole first blocks, the last block, every token masked except the second."""

    def randint(self, a, b):
        return b

    def sample(self, population, k):
        return list(population)[-k:]

    def randrange(self, *args):
        return 0

    def random(self):
        return 0.5


def test_a_block_of_a_diffusion_model_sees_itself_whole_and_asks_for_its_masks() -> None:
    drawn = TwoStreams.of([TEXT], 2, MASK, EOS, Rng(), is_diffusion=True)
    noisy = slice(drawn.num_clean, drawn.num_clean + 4)
    shown = [*range(5), *range(noisy.start, noisy.stop)]
    rows = ["".join(".x"[item] for item in row) for row in drawn.mask[0, 0][shown][:, shown]]
    assert rows == [
        *("x........", "xx.......", "xxx......", "xxxx.....", "xxxxx...."),
        *("x....xx..", "x....xx..", "xxx....xx", "xxx....xx"),
    ]
    positions, ids, targets = (
        item[0, noisy].tolist() for item in (drawn.positions, drawn.ids, drawn.targets)
    )
    assert positions == [1, 2, 3, 4]
    assert ids == [MASK, 21, MASK, EOS]  # 0.5 < 0.5 is not: only the sure one of each block
    assert targets == [20, -100, 22, -100]


def test_padding_of_a_row_is_seen_by_no_position_and_has_no_target() -> None:
    # Without EOS: a block of 2 that is whole, and one of 1 in the other.
    cut = TrainingExample((10, 20, 21), 1)
    longer = TrainingExample((10, 20, 21, 22), 1)
    for is_diffusion in (False, True):
        actual = TwoStreams.of([cut, longer], 2, MASK, EOS, Rng(), is_diffusion=is_diffusion)
        filling = actual.num_clean + 2
        assert not actual.mask[0, 0, :filling, filling:].any()
        assert (actual.targets[0, filling:] == -100).all()


def test_losses_are_means_over_what_is_asked():
    """A model without layers: its head always gives 1 for token 20 and 0 for the 39 others."""

    class Flat(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lm_head = torch.nn.Linear(1, 40, bias=False)
            with torch.no_grad():
                self.lm_head.weight.zero_()[20] = 1.0

        def model(self, input_ids, **_):
            return type("Out", (), {"last_hidden_state": torch.ones(*input_ids.shape, 1)})

    total = torch.logsumexp(torch.tensor([1.0] + [0.0] * 39), 0)
    # The clean stream asks for 20, 21, 22 and EOS; the model favours one of them, 20.
    # The noisy stream asks for 21, 22 and EOS.
    streams = TwoStreams.of([TEXT], 2, MASK, EOS, Rng())
    terms = mars_loss(Flat(), streams, 0.5)
    torch.testing.assert_close(terms["clean"], total - 1 / 4)
    torch.testing.assert_close(terms["noisy"], total)
    torch.testing.assert_close(terms["loss"].detach(), 1.5 * total - 1 / 8)
    # A response that was cut may leave no mask with a target.
    streams.targets[:, streams.num_clean :] = -100
    terms = mars_loss(Flat(), streams, 0.5)
    assert terms["noisy"] == 0.0
    torch.testing.assert_close(terms["loss"].detach(), 0.5 * (total - 1 / 4))
