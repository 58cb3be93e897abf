"""The tokenizer of a training run: copied from a checkpoint or trained. Knows no model."""

from __future__ import annotations

import shutil
from pathlib import Path

from mars_runtime.lab.training.recipe import Recipe
from mars_runtime.model.registry import REGISTRY

TOKENIZER_SHARDS = 3
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def put_tokenizer(recipe: Recipe, data: Path, out: Path, start: Path | None) -> None:
    """Copy the tokenizer of ``start`` or the one that the recipe names, or train one where the
    folder has none yet."""
    start = start or (REGISTRY.parent / recipe.tokenizer if recipe.tokenizer else None)
    if start is not None:
        for name in TOKENIZER_FILES:
            if (start / name).is_file():
                shutil.copy(start / name, out / name)
    elif not (out / "tokenizer.json").is_file():
        from mars_runtime.lab.training.data import Corpus
        from mars_runtime.lab.training.tokenizer import save_tokenizer, train_tokenizer

        texts = Corpus(data, recipe).texts(TOKENIZER_SHARDS)
        tokenizer = train_tokenizer(texts, recipe.shape.vocab_size)
        save_tokenizer(tokenizer, out, recipe.shape.max_positions)
