"""A forward of a tree of masks against one plain forward for each of its branches."""

from __future__ import annotations

import pytest
import torch
from helpers import hf_config
from test_qwen2 import CONFIGS, SIZES, pair

from mars_runtime.branches import Branches, Layout
from mars_runtime.model.qwen2 import Qwen2

MASK = 3
CPU = torch.device("cpu")


def branch_logits(model: Qwen2, prefix: list[int], num_masks: int) -> torch.Tensor:
    """Logits of the last token of ``prefix`` and of the masks behind it, all fed anew."""
    fed = torch.tensor([prefix + [MASK] * num_masks])
    found = model.forward(
        fed, model.new_cache(1, fed.shape[1]), slice(len(prefix) - 1, fed.shape[1])
    )
    assert found is not None
    return found[0]


def check(model: Qwen2, texts: list[list[int]], layouts: list[Layout]) -> None:
    """Rows of different lengths; the pending tokens are the last of each text."""
    cache = model.new_cache(len(texts), 80)
    num_fed = max(layout.num_fed for layout in layouts) + 1
    fed = []
    for row, (text, layout) in enumerate(zip(texts, layouts, strict=True)):
        done, pending = text[: -layout.num_pending], text[-layout.num_pending :]
        model.forward(torch.tensor([done]), cache.row(row), None)
        cache.cursors[row] = len(done)
        fed.append(pending + [MASK] * (num_fed - len(pending)))
    found = model.forward(
        torch.tensor(fed), cache, slice(0, num_fed), Branches.of(layouts, num_fed, CPU)
    )
    assert found is not None
    for row, (text, layout) in enumerate(zip(texts, layouts, strict=True)):
        at = layout.num_pending
        for place, size in enumerate(layout.groups, layout.num_pending - len(layout.groups)):
            prefix = text[: len(text) - layout.num_pending + place + 1]
            slots = [place, *range(at, at + size)]
            wanted = branch_logits(model, prefix, size)
            torch.testing.assert_close(found[row, slots], wanted, atol=2e-4, rtol=1e-4)
            at += size


@pytest.mark.parametrize("name", ["tied", "one kv head", "llama"])
def test_every_branch_equals_a_plain_sequence(name: str) -> None:
    _, model = pair(CONFIGS[name]())
    text = torch.randint(4, 90, (30,), generator=torch.Generator().manual_seed(1)).tolist()
    check(model, [text], [Layout(4, (2, 1, 3))])
    layouts = [Layout(4, (2, 2, 2, 2)), Layout(1, (5,)), Layout(3, (0, 1, 2)), Layout(2, ())]
    check(model, [text, text[:9], text[:17], text[3:20]], layouts)


def test_what_a_tree_wrote_ahead_is_never_seen_again() -> None:
    _, model = pair(hf_config(SIZES))
    text = torch.randint(4, 90, (1, 24), generator=torch.Generator().manual_seed(2))
    caches = [model.new_cache(1, 64) for _ in range(2)]
    for cache, layout in zip(caches, (Layout(4, ()), Layout(4, (3, 3, 3, 3))), strict=True):
        model.forward(text[:, :16], cache, None)
        cache.cursors[0] = 16
        masks = torch.full((1, layout.num_fed - 4), MASK)
        fed = torch.cat([text[:, 16:20], masks], 1)
        model.forward(fed, cache, None, Branches.of([layout], layout.num_fed, CPU))
        cache.cursors[0] = 20
    outs = [model.forward(text[:, 20:], cache, slice(0, 4)) for cache in caches]
    torch.testing.assert_close(outs[0], outs[1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["tied", "one kv head"])
def test_a_block_sees_both_ways_and_the_text_before_it_does_not_see_it(name: str) -> None:
    """Against transformers with the mask of the training written out."""
    theirs, ours = pair(CONFIGS[name]())
    num_clean, num_pending, size = 7, 3, 5
    ids = torch.randint(4, 90, (1, num_clean + num_pending + size))
    total, first = ids.shape[1], num_clean + num_pending
    place = torch.arange(total)
    is_seen = place[None, :] <= place[:, None]
    is_seen |= (place[None, :] >= first) & (place[:, None] >= first)
    bias = torch.zeros(total, total).masked_fill(~is_seen, torch.finfo(torch.float32).min)
    with torch.inference_mode():
        wanted = theirs(input_ids=ids, attention_mask=bias[None, None]).logits[0]
    cache = ours.new_cache(1, total)
    ours.forward(ids[:, :num_clean], cache, None)
    cache.cursors[0] = num_clean
    branches = Branches.of_block(num_pending, size, torch.device("cpu"))
    found = ours.forward(ids[:, num_clean:], cache, slice(0, num_pending + size), branches)
    assert found is not None
    torch.testing.assert_close(found[0], wanted[num_clean:], atol=2e-4, rtol=1e-4)
