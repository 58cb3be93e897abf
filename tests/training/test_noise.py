"""What each kind of noise shows and asks, against pictures drawn by hand."""

from __future__ import annotations

import random

import pytest
import torch
from tiny_qwen2 import tiny_qwen2

from mars_runtime.lab.training.data import Example
from mars_runtime.lab.training.recipe import BLOCK_DIFFUSION_NOISE, Noise
from mars_runtime.lab.training.streams import TwoStreams
from mars_runtime.lab.training.train import mars_loss

MASK, EOS = 3, 2
# A prompt of one token, a response of three and its end; blocks of 2, the first one whole.
TEXT = Example((10, 20, 21, 22, EOS), 1)
CLEAN = """
    x....|....
    xx...|....
    xxx..|....
    xxxx.|....
    xxxxx|....
"""


class Rng(random.Random):
    """Draws as told: whole first blocks, the last block, every token masked but the second."""

    def randint(self, a, b):
        return b

    def sample(self, population, k):
        return list(population)[-k:]

    def randrange(self, *args):
        return 0

    def random(self):
        return 0.5


def streams(noise: Noise, block_size: int = 2) -> TwoStreams:
    return TwoStreams.of([TEXT], block_size, MASK, EOS, Rng(), 1.0, noise)


def picture(found: TwoStreams, clean: int, noisy: int) -> str:
    """Who sees whom among the first columns of both streams: a row is a query."""
    kept = [*range(clean), *range(found.num_clean, found.num_clean + noisy)]
    sees = found.mask[0, 0][kept][:, kept].tolist()
    rows = ["".join("x" if one else "." for one in row) for row in sees]
    return "\n".join(f"    {row[:clean]}|{row[clean:]}" for row in rows)


def noisy(found: TwoStreams, count: int) -> tuple[list[int], list[int], list[int]]:
    """Positions, ids and targets of the noisy stream."""
    part = slice(found.num_clean, found.num_clean + count)
    return tuple(one[0, part].tolist() for one in (found.positions, found.ids, found.targets))


@pytest.mark.parametrize(
    ("noise", "below"),
    [
        (
            Noise(),
            """
    x....|x...
    x....|xx..
    xxx..|..x.
    xxx..|..xx
""",
        ),
        (
            Noise(is_causal=False),
            """
    x....|xx..
    x....|xx..
    xxx..|..xx
    xxx..|..xx
""",
        ),
        (
            Noise(masking="everywhere"),
            """
    x....|x...
    x....|xx..
    x....|xxx.
    x....|xxxx
""",
        ),
    ],
)
def test_who_sees_whom(noise, below):
    assert picture(streams(noise), 5, 4) == CLEAN.strip("\n") + "\n" + below.strip("\n")


def test_without_a_clean_stream_a_text_ends_with_one_block_of_masks():
    found = streams(Noise(has_clean_stream=False))
    assert noisy(found, 3) == ([3, 4, 5], [MASK, MASK, MASK], [EOS, -100, -100])
    assert (
        picture(found, 3, 2)
        == """
    x..|..
    xx.|..
    xxx|..
    xxx|x.
    xxx|xx
""".strip("\n")
    )
    # The clean targets end with the last token before the masks, whose slot asks for their first.
    assert found.targets[0, : found.num_clean].tolist()[:4] == [20, 21, 22, -100]


def test_a_mask_asks_for_the_token_after_it_or_for_its_own():
    assert noisy(streams(Noise()), 4)[2] == [21, 22, EOS, -100]
    assert noisy(streams(Noise(is_shifted=False)), 4)[2] == [20, 21, 22, EOS]


def test_random_masks_leave_other_tokens_to_be_seen_and_ask_nothing_of_them():
    positions, ids, targets = noisy(streams(BLOCK_DIFFUSION_NOISE), 4)
    assert positions == [1, 2, 3, 4]
    assert ids == [MASK, 21, MASK, EOS]  # 0.5 < 0.5 is not: only the sure one of each block
    assert targets == [20, -100, 22, -100]


def test_what_fills_a_row_up_is_seen_by_nobody_and_asks_nothing():
    cut = Example((10, 20, 21), 1)  # no EOS: a block of 2 that is whole, and one of 1 in the other
    longer = Example((10, 20, 21, 22), 1)
    for noise in (Noise(is_causal=False), BLOCK_DIFFUSION_NOISE):
        found = TwoStreams.of([cut, longer], 2, MASK, EOS, Rng(), 1.0, noise)
        filling = found.num_clean + 2
        assert not found.mask[0, 0, :filling, filling:].any()
        assert (found.targets[0, filling:] == -100).all()


def test_losses_are_means_over_what_is_asked():
    """A model without layers: its head says 1 for token 20 and 0 for the 39 others, always."""

    class Flat(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lm_head = torch.nn.Linear(1, 40, bias=False)
            with torch.no_grad():
                self.lm_head.weight.zero_()[20] = 1.0

        def model(self, input_ids, **_):
            return type("Out", (), {"last_hidden_state": torch.ones(*input_ids.shape, 1)})

    total = torch.logsumexp(torch.tensor([1.0] + [0.0] * 39), 0)
    terms = mars_loss(Flat(), streams(Noise(is_shifted=False)), 0.5)
    # Four slots in each stream ask for 20, 21, 22 and EOS: one of them is the token it favours.
    torch.testing.assert_close(terms["clean"], total - 1 / 4)
    torch.testing.assert_close(terms["noisy"], total - 1 / 4)
    torch.testing.assert_close(terms["loss"].detach(), 1.5 * (total - 1 / 4))
    # A random share of masks can be none of them.
    unmasked = streams(Noise(is_shifted=False))
    unmasked.targets[:, unmasked.num_clean :] = -100
    terms = mars_loss(Flat(), unmasked, 0.5)
    assert terms["noisy"] == 0.0
    torch.testing.assert_close(terms["loss"].detach(), 0.5 * (total - 1 / 4))


def test_norms_in_one_kernel_are_the_models_norms():
    from mars_runtime.lab.training.train import fuse_norms

    model = tiny_qwen2()
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(weight)
    ids = torch.arange(12)[None]
    before, names = model(input_ids=ids).logits, set(model.state_dict())
    fuse_norms(model)
    assert any("forward" in vars(module) for module in model.modules())
    after = model(input_ids=ids).logits
    torch.testing.assert_close(after, before, atol=1e-5, rtol=1e-4)
    after.sum().backward()
    assert model.model.norm.weight.grad is not None
    assert set(model.state_dict()) == names
