"""Train the byte-level BPE tokenizer of the bundled checkpoints, or copy it from one of them. The
space before a capitalised word is a separate token, so a name has the same tokens everywhere and
small models learn to copy names much faster."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from mars_runtime.chat_template import CHATML
from mars_runtime.lab.training.data import Corpus
from mars_runtime.lab.training.recipe import Recipe
from mars_runtime.model.registry import REGISTRY

SPECIAL_TOKENS = ("<|pad|>", "<|im_start|>", "<|im_end|>", "<|mask|>")
TOKENIZER_SHARDS = 3
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")

# Alternatives of the pattern, in order: capitalised words, contractions, other words with a leading
# space or symbol, digits, punctuation, line ends, spaces.
_SPLIT = (
    r"\p{Lu}+\p{Ll}*|'(?:s|t|re|ve|m|ll|d)(?!\p{L})|[^\r\n\p{L}\p{N}]?(?:(?!\p{Lu})\p{L})+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, max_positions: int) -> None:
    import transformers

    fast_class: Any = transformers.PreTrainedTokenizerFast
    fast = fast_class(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|pad|>",
        mask_token="<|mask|>",
        additional_special_tokens=["<|im_start|>"],
        model_max_length=max_positions,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHATML
    folder.mkdir(parents=True, exist_ok=True)
    fast.save_pretrained(str(folder))


def put_tokenizer(recipe: Recipe, data: Path, out: Path, start: Path | None) -> None:
    """Copy from ``start`` or the recipe's checkpoint, else keep the one in ``out``, else train
    it."""
    start = start or (REGISTRY.parent / recipe.tokenizer if recipe.tokenizer else None)
    if start is not None:
        for name in TOKENIZER_FILES:
            if (start / name).is_file():
                shutil.copy(start / name, out / name)
    elif not (out / "tokenizer.json").is_file():
        texts = Corpus(data, recipe).texts(TOKENIZER_SHARDS)
        tokenizer = train_tokenizer(texts, recipe.shape.vocab_size)
        save_tokenizer(tokenizer, out, recipe.shape.max_positions)
