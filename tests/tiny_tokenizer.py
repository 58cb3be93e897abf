"""A tiny byte-level BPE tokenizer folder in the format of the bundled checkpoints, for tests."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIALS = ("<|im_start|>", "<|im_end|>", "<|mask|>", "<|pad|>")
_CORPUS = (
    "user\nassistant\nsystem\nA small fox ran over 12 hills and counted 345 sheep.",
    "im_start im_end mask pad endoftext <| |> < | >",
    "naïve café, 日本語 text, emoji 👩‍👩‍👧 and ☃",
) * 4


@cache
def _spec() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return str(tokenizer.to_str())


def write_tokenizer(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(_spec(), encoding="utf-8")
    config = {"pad_token": "<|pad|>", "eos_token": "<|im_end|>", "mask_token": "<|mask|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
