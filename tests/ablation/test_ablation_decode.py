"""Decoding of the variants against the decoders of the runtime and against full recomputation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_qwen2 import tiny_qwen2

from mars_runtime.lab.ablation.decode import GreedyBatch, SpecialIds
from mars_runtime.lab.training.recipe import Noise
from mars_runtime.settings import DecodeSettings

MASK, EOS, PAD = 3, 2, 0
PROMPTS = ([5, 6, 7], [8, 9, 10, 11, 12, 13], [14], [5, 5, 5, 20])
LIMIT = 14
NOISES = (Noise(), Noise(is_causal=False), Noise(is_shifted=False))
AR = DecodeSettings("ar", 1.0, 1)
LOSSLESS = DecodeSettings("mars", 0.0, 4, lossless=True)
WAYS = (DecodeSettings("mars", 0.0, 4), DecodeSettings("mars", 0.05, 3))


@pytest.fixture(scope="module")
def model():
    """Random weights with choices that differ from position to position, in float64 so that there
    are no near ties.
    """
    return tiny_qwen2(3, initializer_range=0.4).double().eval()


def ids() -> SpecialIds:
    return SpecialIds(MASK, EOS, torch.tensor([PAD, MASK]))


def decoded(model, way, noise=NOISES[0], prompts=PROMPTS):
    return GreedyBatch(model, prompts, way, noise, ids(), LIMIT).decoded()


def recomputed(model, text: list[int], num_masks: int, noise: Noise) -> torch.Tensor:
    """Logits of a text and its masks without cache, the mask of attention written out."""
    size, first = len(text) + num_masks, len(text)
    sees = torch.ones(size, size, dtype=torch.bool).tril()
    if not noise.is_causal:
        sees[first:, first:] = True
    bias = torch.zeros(1, 1, size, size, dtype=torch.float64).masked_fill(~sees, -torch.inf)
    tokens = torch.tensor([text + [MASK] * num_masks])
    with torch.no_grad():
        logits = model(input_ids=tokens, attention_mask={"full_attention": bias}).logits[0]
    logits[:, [PAD, MASK]] = -torch.inf
    return logits.softmax(-1)


def slowly(model, prompt: list[int], way: DecodeSettings, noise: Noise) -> tuple[list[int], int]:
    """MARS by the book for one prompt: tokens and forwards."""
    text, forwards = list(prompt), 0
    while len(text) - len(prompt) < LIMIT and (text[-1] != EOS or len(text) == len(prompt)):
        num_masks = way.block_size - (1 if noise.is_shifted else 0)
        chances = recomputed(model, text, num_masks, noise)
        first = len(text) - 1
        slots = [first + place + (place > 0 and not noise.is_shifted) for place in range(8)]
        forwards += 1
        for place in range(way.block_size):
            chance, token = chances[slots[place]].max(-1)
            if place and chance < way.tau:
                break
            text.append(int(token))
            if int(token) == EOS or len(text) - len(prompt) == LIMIT:
                break
    return text[len(prompt) :], forwards


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("way", WAYS)
def test_a_batch_with_a_cache_is_each_prompt_recomputed(model, way, noise):
    for prompt, answer in zip(PROMPTS, decoded(model, way, noise), strict=True):
        assert (list(answer.tokens), answer.num_forwards) == slowly(model, prompt, way, noise)


@pytest.mark.parametrize("noise", NOISES)
def test_lossless_is_ar_and_ar_takes_a_forward_a_token(model, noise):
    ar = decoded(model, AR, noise)
    lossless = decoded(model, LOSSLESS, noise)
    assert [answer.tokens for answer in lossless] == [answer.tokens for answer in ar]
    assert all(answer.num_forwards == len(answer.tokens) for answer in ar)
    assert all(answer.num_forwards <= len(answer.tokens) for answer in lossless)
    assert not {PAD, MASK} & {token for answer in ar for token in answer.tokens}


def test_mars_is_what_the_decoders_of_the_runtime_give():
    from transformers import Qwen2ForCausalLM

    from mars_runtime.decoders import decode as decode_events
    from mars_runtime.lab.ablation.jobs import start_folder
    from mars_runtime.lab.evaluation.measure import read_rows
    from mars_runtime.model.load import load_checkpoint

    folder = start_folder("mars-tiny")
    checkpoint = load_checkpoint("mars-tiny")
    tokenizer = checkpoint.tokenizer
    texts = ["Sort 3, 1, 2", "Name a color.", "What is 12 + 7?"]
    prompts = [tokenizer.encode_prompt(text) for text in texts]
    model = Qwen2ForCausalLM.from_pretrained(str(folder), dtype=torch.float32).eval()
    special_ids = SpecialIds(tokenizer.mask_id, tokenizer.im_end_id, torch.tensor([0, 1, 3]))
    for way in (DecodeSettings("mars", 0.8, 4), LOSSLESS):
        settings = replace(way, max_new_tokens=LIMIT)
        events = decode_events(checkpoint.model, tokenizer, prompts, lambda: settings)  # noqa: B023
        for row, answer in zip(
            read_rows(events, len(prompts)),
            GreedyBatch(model, prompts, way, Noise(), special_ids, LIMIT).decoded(),
            strict=True,
        ):
            assert (answer.tokens, answer.num_forwards) == (row.tokens, row.num_forwards)
