"""The real file of mars-smollm2 against transformers, which reads it by code of its own.

Skipped where the file is not on this machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mars_runtime import tasks
from mars_runtime.decoders.cursor import decode
from mars_runtime.model.gguf import read_gguf
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.quantized import GroupedMatrix
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Tokenizer
from tests.helpers import tokens_of

NAME = "mars-smollm2"
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
PROMPTS_OF_A_KIND, NEW_TOKENS, ROWS = 40, 48, 10
TEXTS = (
    "Why is the sky blue?",
    "  What is 17 * 23?\n\n12. Count:   1,  2,\t3 and 2026",
    "def f(x):\n    return x ** 2  # naïve, 日本語 👩‍👩‍👧 ½ ²",
    "It's I'LL we've \r\n\r\n  trailing  ",
)


@pytest.fixture(scope="module")
def ours(smollm2_file: Path) -> Tokenizer:
    loaded = read_gguf(smollm2_file)
    return Tokenizer(loaded.tokenizer, loaded.tokenizer_config, mask="<reponame>")


@pytest.fixture(scope="module")
def theirs(smollm2_file: Path) -> Any:
    """transformers' tokenizer of the same file. It splits words as GPT-2 did, regardless of the
    file; SmolLM2 (llama.cpp's "smollm") first splits digits one by one.
    """
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    actual = AutoTokenizer.from_pretrained(smollm2_file.parent, gguf_file=smollm2_file.name)
    actual.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    return actual


def test_the_tokenizer_is_read_as_it_is(ours: Tokenizer) -> None:
    assert ours.size == 49152
    assert ours.token_bytes(ours.mask_id) == b"<reponame>"
    assert ours.eos_ids == {0, 2}
    assert ours.forbidden_ids == {1, 4}
    assert ours.system is None


def test_prompts_are_those_of_the_template(ours: Tokenizer, theirs: Any) -> None:
    for text in [*TEXTS, *(task.prompt for kind in tasks.KINDS for task in drawn(kind))]:
        turns = [{"role": "user", "content": text}]
        expected = theirs.apply_chat_template(turns, add_generation_prompt=True)["input_ids"]
        assert ours.encode_prompt(text) == expected
    turns = [("user", "Hi 12"), ("assistant", "Hello!"), ("user", "  3 + 4?")]
    said = [{"role": role, "content": text} for role, text in turns]
    expected = theirs.apply_chat_template(said, add_generation_prompt=True)["input_ids"]
    assert ours.encode_chat(turns) == expected


@settings(max_examples=300)
@given(text=st.text(st.characters(codec="utf-8") | st.sampled_from(" \n\t0123'sabc"), max_size=60))
def test_texts_have_the_ids_of_the_tokenizers_library(ours, theirs, text) -> None:
    if not any(name in text for name in theirs.all_special_tokens):
        assert ours.encode(text) == theirs.backend_tokenizer.encode(text).ids


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fp32_gives_the_text_of_transformers_on_200_prompts(smollm2_file: Path) -> None:
    """Every token is transformers' most likely after the same tokens, so the texts are equal."""
    from transformers import AutoModelForCausalLM

    checkpoint = load_checkpoint(NAME, device="cpu", dtype="fp32")
    tokenizer = checkpoint.tokenizer
    model = AutoModelForCausalLM.from_pretrained(
        smollm2_file.parent, gguf_file=smollm2_file.name, dtype=torch.float32
    )
    weights = read_gguf(smollm2_file).weights
    for name, weight in model.state_dict().items():
        if name in weights:
            actual = weights[name]
            dense = actual.dense() if isinstance(actual, GroupedMatrix) else actual
            assert torch.equal(dense, weight), name
    prompts = [tokenizer.encode_prompt(t.prompt) for k in tasks.KINDS for t in drawn(k)]
    assert len(prompts) >= 200
    prompts.sort(key=len)
    ar = DecodeSettings("ar", max_new_tokens=NEW_TOKENS)
    wrong: list[tuple[int, float]] = []
    for start in range(0, len(prompts), ROWS):
        batch = prompts[start : start + ROWS]
        events = decode(checkpoint.model, tokenizer, batch, lambda: ar)
        answers = tokens_of(events, len(batch))
        for prompt, answer in zip(batch, answers, strict=True):
            behind = _behind(model, prompt, answer, sorted(tokenizer.forbidden_ids))
            if behind > 0:
                wrong.append((len(prompt), behind))
    print(json.dumps({"prompts": len(prompts), "different": wrong}))
    assert not wrong


@torch.inference_mode()
def _behind(model: Any, prompt: list[int], answer: list[int], forbidden: list[int]) -> float:
    """How far the logit of any token of the answer lies behind the largest of its place."""
    logits = model(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
    logits[:, forbidden] = -torch.inf
    chosen = logits.gather(1, torch.tensor(answer).unsqueeze(1)).squeeze(1)
    return float((logits.amax(1) - chosen).max())


def drawn(kind: str, count: int = PROMPTS_OF_A_KIND) -> list[tasks.Task]:
    return tasks.generate(kind, "test", 0, count)
