"""A random model of two layers in transformers' layout, and answers to train on."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from tiny_tokenizer import write_tokenizer

from mars_runtime.lab.training.distill import store

VOCABULARY, MASK = 96, 4


def write_base(folder: Path, vocab_size: int = VOCABULARY, kind: str = "Llama") -> Path:
    """The base as a checkpoint folder with a tokenizer of 366 tokens, by default more than rows."""
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=vocab_size, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, rope_theta=10_000.0,
        tie_word_embeddings=True, eos_token_id=2, initializer_range=0.2,
    )  # fmt: skip
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("_proj.bias", "q_norm.weight", "k_norm.weight")):  # 0 or 1 at first
                weight += 0.3 * torch.randn(weight.shape)
    model.save_pretrained(folder)
    return write_tokenizer(folder)


def write_answers(folder: Path, count: int = 24) -> Path:
    """Answers that count upwards, so that masks can be learnt."""
    rng = random.Random(0)
    records = []
    for index in range(count):
        start = rng.randrange(5, 40)
        ids = tuple(start + i for i in range(30))
        key, kind = str(index), ("chat", "code")[index % 2]
        records.append(store.DistillRecord(key, kind, index % 6 < 2, ids[:6], ids[6:], "length"))
    store.AnswerFile(folder / "answers-1-of-1.jsonl").append(records)
    return folder
