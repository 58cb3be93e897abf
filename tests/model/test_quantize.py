"""Matrices in 8 bits: near to fp32, the same for a token in every forward, refused where absent."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers import tokens_of

from mars_runtime.decoders import decode
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.quantize import add_product, can_quantize, multiply, quantize
from mars_runtime.settings import DecodeSettings
from tests.methods import decode_as
from tests.tiny_checkpoint import write_checkpoint

needs_kernels = pytest.mark.skipif(not can_quantize(), reason="int8 kernels exist on x86 only")
PROMPTS = ["Count 12 foxes", "Say hello", "a b c d e f g"]


@needs_kernels
def test_a_product_is_near_to_that_of_fp32() -> None:
    torch.manual_seed(0)
    matrix, x = torch.randn(64, 48), torch.randn(5, 64) * torch.logspace(-2, 2, 5).unsqueeze(1)
    exact = x @ matrix
    error = (multiply(x, quantize(matrix)) - exact).abs() / exact.abs().amax(1, keepdim=True)
    assert 0 < error.max() < 0.02
    total = torch.ones(5, 48)
    add_product(total, x, quantize(matrix))
    assert torch.equal(total, 1 + multiply(x, quantize(matrix)))


@needs_kernels
def test_a_token_comes_out_the_same_in_every_company() -> None:
    torch.manual_seed(1)
    matrix, x = quantize(torch.randn(64, 48)), torch.randn(9, 64)
    x[3] *= 1000  # another token's size must not matter
    alone = torch.cat([multiply(row.unsqueeze(0), matrix) for row in x])
    assert torch.equal(multiply(x, matrix), alone)


@needs_kernels
def test_zeros_stay_zeros_and_what_is_no_number_stays_none() -> None:
    matrix = quantize(torch.randn(8, 4))
    out = multiply(torch.stack([torch.zeros(8), torch.full((8,), torch.nan)]), matrix)
    assert torch.equal(out[0], torch.zeros(4))
    assert bool(out[1].isnan().all())


@needs_kernels
def test_lossless_keeps_to_ar_of_the_same_arithmetic_in_nearly_every_answer(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(str(write_checkpoint(tmp_path)), device="cpu", dtype="int8")
    settings = DecodeSettings(tau=0.0, block_size=8, lossless=True, max_new_tokens=40)
    num_equal = 0
    for text in PROMPTS:
        prompt = [checkpoint.tokenizer.encode_prompt(text)]
        found = decode(checkpoint.model, checkpoint.tokenizer, prompt, lambda: settings)
        wanted = decode_as("ar", checkpoint.model, checkpoint.tokenizer, prompt, lambda: settings)
        num_equal += tokens_of(found) == tokens_of(wanted)
    assert num_equal >= len(PROMPTS) - 1


@needs_kernels
def test_int8_keeps_a_quarter_of_the_bytes_and_says_so(tmp_path: Path) -> None:
    folder = str(write_checkpoint(tmp_path))
    small, full = (load_checkpoint(folder, device="cpu", dtype=kind) for kind in ("int8", "fp32"))
    assert (small.model.arithmetic, full.model.arithmetic) == ("int8", "float32")

    def num_bytes(checkpoint) -> int:
        matrices = [one for one in list(checkpoint.model.weights())[2:] if one.dim() == 2]
        return sum(one.numel() * one.element_size() for one in matrices)

    assert 4 * num_bytes(small) == num_bytes(full)
    sizes = [[one.numel() for one in each.model.weights()] for each in (small, full)]
    assert sizes[0] == sizes[1]


@needs_kernels
def test_weights_that_are_no_numbers_are_refused_in_8_bits_too(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = write_checkpoint(tmp_path)
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.mlp.up_proj.weight"][0, 0] = torch.nan
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="not finite"):
        load_checkpoint(str(folder), device="cpu", dtype="int8")


def test_where_there_are_no_kernels_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mars_runtime.model.build.can_quantize", lambda: False)
    with pytest.raises(CheckpointError, match="x86"):
        load_checkpoint(str(write_checkpoint(tmp_path)), device="cpu", dtype="int8")
