"""Tiny tokenizers with the chat templates of other families, and conversations, for tests."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from tests.tiny_tokenizer import write_tokenizer

DEFAULT_SYSTEM = (
    "{%- set own = 'You\\'re \"Tiny\".\\nIt\\'s small.' %}"
    "{%- if messages[0]['role'] == 'system' %}{%- set own = messages[0]['content'] %}{%- endif %}"
    "{{- '<|im_start|>system\\n' + own + '<|im_end|>\\n' }}"
    "{%- for message in messages if message.role != 'system' %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NAMED = [
    {"name": "tool_use", "template": "{{ raise_exception('There are no tools.') }}"},
    {"name": "default", "template": CHATML},
]
LLAMA3 = (
    "{{- bos_token }}{%- if not tools is defined %}{%- set tools = none %}{%- endif %}"
    "{%- if tools is not none %}{{- raise_exception('There are no tools.') }}{%- endif %}"
    "{%- for message in messages %}{{- '<|start_header_id|>' + message['role'] + "
    "'<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
)
QWEN3 = (
    "{%- set ns = namespace(open=true, last=messages|length - 1) %}"
    "{%- for message in messages[::-1] %}{%- if ns.open and message.role == 'user' %}"
    "{%- set ns.open, ns.last = false, messages|length - 1 - loop.index0 %}{%- endif %}"
    "{%- endfor %}"
    "{%- for message in messages %}{%- set content = message.content %}"
    "{%- if message.role != 'assistant' %}"
    "{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}{%- else %}"
    "{%- set thought = '' %}{%- if '</think>' in content %}"
    "{%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1]"
    ".lstrip('\\n') %}{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
    "{{- '<|im_start|>assistant\\n' }}{%- if loop.index0 > ns.last and (loop.last or thought) %}"
    "{{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}"
    "{%- else %}{{- content }}{%- endif %}{{- '<|im_end|>\\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{- '\\n</think>\\n\\n' }}"
    "{%- endif %}{%- endif %}"
)
MISTRAL = (
    "{%- set begin = '' %}{%- set turns = messages %}{%- if messages[0].role == 'system' %}"
    "{%- set begin = messages[0].content + '\n\n' %}{%- set turns = messages[1:] %}{%- endif %}"
    "{{- bos_token }}{%- for message in turns %}{%- if message.role == 'user' %}"
    "{{- '[INST] ' + (begin if loop.last else '') + message.content + '[/INST]' }}{%- else %}"
    "{% generation %}{{- ' ' + message.content + eos_token }}{% endgeneration %}"
    "{%- endif %}{%- endfor %}"
)
FAMILIES: dict[str, tuple[Any, Sequence[str], dict[str, str]]] = {
    "default-system": (DEFAULT_SYSTEM, [], {"eos_token": "<|im_end|>"}),
    "named": (NAMED, [], {"eos_token": "<|im_end|>"}),
    "llama3": (
        LLAMA3,
        ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end|>"],
        {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
    ),
    "qwen3": (QWEN3, ["<think>", "</think>"], {"eos_token": "<|im_end|>"}),
    "mistral": (
        MISTRAL,
        ["<s>", "</s>", "[INST]", "[/INST]"],
        {"bos_token": "<s>", "eos_token": "</s>"},
    ),
}
"""Per family: the chat template, the control tokens besides ChatML's, and special tokens."""


def write_family(folder: Path, name: str, **config: Any) -> Path:
    """Write a tokenizer with the template of a family and ``config`` as its configuration."""
    template, added, special = FAMILIES[name]
    write_tokenizer(folder)
    path = str(folder / "tokenizer.json")
    plain = Tokenizer.from_file(path)
    tokens = (AddedToken(t, special="think" not in t, normalized=False) for t in added)
    plain.add_tokens([*tokens])
    plain.save(path)
    own = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<|pad|>"}
    own |= {"mask_token": "<|mask|>", **special, "chat_template": template, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(own), encoding="utf-8")
    return folder


_TEXTS = (
    *("Hello", "Why is the sky blue?", "It's 7 o'clock, isn't it?", "|>", "a  b   c", "</b> <|"),
    *(" leading and trailing \n", "\n\nTwo lines\n\nmore\n", "user\n", "1. One\n2. Two\r\n"),
    *("A small fox ran over 12 hills.", "x" * 300, "{{ bos_token }} {% if %}"),
    "\tif a < b and b > c:\n\t\treturn '<b>'",
    "naïve café, 日本語 text, 👩\u200d👩\u200d👧 and ☃",
)
_THOUGHTS = ("<think>\nHm, 12.\n</think>\n\n", "<think>\n\n</think>\n\n", "no thought</think>")
Messages = list[dict[str, str]]


def conversations() -> list[Messages]:
    """Return fixed conversations of 1 to 5 turns, some with a system prompt and with thoughts."""
    rng = random.Random(57)
    made = []
    for index in range(60):
        messages = [{"role": "system", "content": rng.choice(_TEXTS)}] if index % 3 == 0 else []
        for turn in range(1 + index % 5):
            if turn:
                thought = rng.choice(_THOUGHTS) if rng.random() < 0.4 else ""
                messages += [{"role": "assistant", "content": thought + rng.choice(_TEXTS)}]
            messages += [{"role": "user", "content": rng.choice(_TEXTS)}]
        made.append(messages)
    return made
