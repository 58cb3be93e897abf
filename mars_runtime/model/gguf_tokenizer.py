"""The tokenizer in the metadata of a GGUF file, written as ``tokenizer.json`` has it.

Knows no tensors. Only byte-level BPE (``gpt2`` in GGUF), and only the ways of cutting text into
words that are named here: another way would give other ids without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mars_runtime.model.gguf_file import GgufError

NORMAL, UNUSED = 1, 5
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = (
    _CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _split(pattern: str) -> dict[str, Any]:
    words = {"Regex": pattern}
    split = {"type": "Split", "pattern": words, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, _byte_level(use_regex=False)]}


_GPT2 = _byte_level(use_regex=True)
_DIGITS = {
    "type": "Sequence",
    "pretokenizers": [{"type": "Digits", "individual_digits": True}, _GPT2],
}
_QWEN2, _LLAMA3 = _split(_WORDS.replace("DIGITS", "")), _split(_WORDS.replace("DIGITS", "{1,3}"))
# Source: ggml-org/llama.cpp, src/llama-vocab.cpp, ``regex_exprs`` by the name of the pre-tokenizer.
_CUTS = {
    "gpt-2": _GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "llama-bpe": _LLAMA3,
}
_NFC = {"qwen2", "deepseek-r1-qwen"}
_WHOLE_WORDS_FIRST = {"llama-bpe"}


def tokenizer_spec(metadata: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """``tokenizer.json`` and ``tokenizer_config.json`` as values. Raises GgufError.

    Every token that is not plain text (control, unknown, user-defined) is an added token; what the
    file marks as unused is in neither list.
    """
    kind, cut = (str(metadata.get(f"tokenizer.ggml.{name}")) for name in ("model", "pre"))
    if kind != "gpt2" or cut not in _CUTS:
        raise GgufError(
            f"has a tokenizer of the kind {kind!r} with words cut as in {cut!r}, and only gpt2 "
            f"with {', '.join(_CUTS)} is supported"
        )
    tokens, merges = _strings(metadata, "tokens"), _strings(metadata, "merges")
    types = metadata.get("tokenizer.ggml.token_type")
    if not isinstance(types, np.ndarray) or {len(types), len(set(tokens))} != {len(tokens)}:
        raise GgufError("is damaged: its tokens and their types don't fit")
    listed = list(zip(range(len(tokens)), tokens, types.tolist(), strict=True))
    model = {
        "type": "BPE",
        "vocab": {token: index for index, token, kind in listed if kind == NORMAL},
        "merges": [merge.split(" ") for merge in merges],
        "ignore_merges": cut in _WHOLE_WORDS_FIRST,
    }
    spec = {
        "version": "1.0",
        "added_tokens": [
            {"content": token, "id": index}
            for index, token, kind in listed
            if kind not in (NORMAL, UNUSED)
        ],
        "normalizer": {"type": "NFC"} if cut in _NFC else None,
        "pre_tokenizer": _CUTS[cut],
        "decoder": _GPT2,
        "model": model,
    }
    pad = metadata.get("tokenizer.ggml.padding_token_id")
    config = {
        "pad_token": tokens[pad] if isinstance(pad, int) and 0 <= pad < len(tokens) else None,
        "chat_template": metadata.get("tokenizer.chat_template"),
    }
    return spec, config


def _strings(metadata: Mapping[str, Any], name: str) -> list[str]:
    value = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(value, list):
        raise GgufError(f"is damaged: it has no tokenizer.ggml.{name}")
    return value
