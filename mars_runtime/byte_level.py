"""The files of a byte-level BPE tokenizer, checked: vocabulary, added tokens, chat template.

A template is a program and is never run. Knows no prompts and no model; ``text.py`` does the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tokenizers

MASK, IM_START, IM_END, END_OF_TEXT = "<|mask|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"
_SYSTEM = re.compile(r"<\|im_start\|>system(?:\n|\\n)([^'\"{}<>]+)<\|im_end\|>")


class TextError(ValueError):
    """A prompt or a tokenizer that cannot be used; one sentence that says what to do."""


def default_system(template: object) -> str | None:
    """The system prompt that stands word for word in a ChatML template, if one does."""
    match = _SYSTEM.search(template) if isinstance(template, str) else None
    return match[1] if match else None


def byte_characters() -> dict[int, str]:
    """GPT-2's map from a byte to the printable character that stands for it in a vocabulary.

    Source: openai/gpt-2, src/encoder.py, ``bytes_to_unicode``.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {byte: chr(256 + index) for index, byte in enumerate(others)}
    return {byte: chr(byte) for byte in printable} | shifted


BYTE_OF_CHAR = {char: byte for byte, char in byte_characters().items()}


def read_spec(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """``tokenizer.json`` and, where they are there, its configuration and chat template."""
    spec = _read_json(folder / "tokenizer.json")
    config_path, template = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    config = _read_json(config_path) if config_path.exists() else {}
    if template.exists():
        config["chat_template"] = template.read_text(encoding="utf-8", errors="replace")
    return spec, config


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TextError(f"{path} is missing or damaged: fetch the checkpoint again.") from error
    if not isinstance(value, dict):
        raise TextError(f"{path} is not a tokenizer file: fetch the checkpoint again.")
    return value


def added_tokens(spec: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, int]:
    """Every added token, control or not: typed text must become none of them."""
    added = {str(token["content"]): int(token["id"]) for token in spec.get("added_tokens") or []}
    for index, token in (config.get("added_tokens_decoder") or {}).items():
        added.setdefault(str(token["content"]), int(index))
    if len(set(added.values())) != len(added):
        raise TextError("Two added tokens of this tokenizer share an id: fetch it again.")
    return added


def spare_token(added: Mapping[str, int]) -> str:
    """A token that can serve as mask: the usual one, else the first that no chat needs."""
    spare = [name for name in added if name not in (IM_START, IM_END, END_OF_TEXT)]
    return MASK if MASK in added or not spare else spare[0]


def plain_encoder(
    spec: Mapping[str, Any], added: Mapping[str, int]
) -> tuple[tokenizers.Tokenizer, dict[str, int]]:
    """The encoder without added tokens, normal form C at most, and its vocabulary."""
    import tokenizers  # here, so that a Detokenizer of a recorded trace needs no such library

    model = spec.get("model") or {}
    steps = _parts(spec.get("pre_tokenizer"), "pretokenizers")
    byte_level = [step for step in steps if step.get("type") == "ByteLevel"]
    is_byte_level = model.get("type") == "BPE" and not model.get("byte_fallback") and byte_level
    if not is_byte_level or any(step.get("add_prefix_space") for step in byte_level):
        raise TextError(
            "Only byte-level BPE tokenizers without a prefix space are supported: choose a "
            "checkpoint with one, such as Qwen2."
        )
    normalizers = _parts(spec.get("normalizer"), "normalizers")
    if any(step.get("type") != "NFC" for step in normalizers):
        raise TextError("Only tokenizers that leave the text as it is (or NFC) are supported.")
    vocabulary = {token: index for token, index in model["vocab"].items() if token not in added}
    if any(not set(token) <= BYTE_OF_CHAR.keys() for token in vocabulary):
        raise TextError("The vocabulary of this tokenizer is not byte-level: choose one that is.")
    for merge in model.get("merges") or []:  # the library would panic, which is no exception
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        if not {left, right, left + right} <= vocabulary.keys():
            raise TextError("This tokenizer's merges don't fit its vocabulary: fetch it again.")
    plain = {
        **spec,
        "added_tokens": [],
        "post_processor": None,
        "padding": None,
        "truncation": None,
        "model": {**model, "vocab": vocabulary, "unk_token": None},
    }
    return tokenizers.Tokenizer.from_str(json.dumps(plain)), vocabulary


def _parts(step: Mapping[str, Any] | None, inner: str) -> list[Mapping[str, Any]]:
    """The steps of a sequence, flattened."""
    if not step:
        return []
    if step.get("type") != "Sequence":
        return [step]
    return [part for each in step.get(inner) or [] for part in _parts(each, inner)]
