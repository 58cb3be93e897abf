"""Prompts by chat templates: the ids of transformers, and no control token from typed text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import processors

from mars_runtime.chat_template import render
from mars_runtime.model.gguf import tokenizer_spec
from mars_runtime.text import TextError, Tokenizer, Turn, byte_characters
from tests.tiny_templates import FAMILIES, Messages, conversations, write_family
from tests.tiny_tokenizer import SPECIALS

Pair = tuple[Tokenizer, Any]
"""A tokenizer of this project, and transformers' of the same files."""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    root = tmp_path_factory.mktemp("families")
    return {name: pair_of(write_family(root / name, name)) for name in FAMILIES}


def pair_of(folder: Path) -> Pair:
    from transformers import AutoTokenizer

    return Tokenizer.from_dir(folder), AutoTokenizer.from_pretrained(folder)


def check(ours: Tokenizer, theirs: Any, messages: Messages, **options: Any) -> None:
    """Compare the ids of a conversation, or that the template rejects it."""
    defaults = {"add_generation_prompt": not options.get("continue_final_message")}
    turns = [(message["role"], message["content"]) for message in messages]
    try:
        expected = theirs.apply_chat_template(messages, **defaults | options)["input_ids"]
    except Exception as error:
        with pytest.raises(TextError, match=str(error).rstrip(".")):
            ours.encode_chat(turns, **options)
    else:
        assert ours.encode_chat(turns, **options) == expected, theirs.decode(expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_60_conversations_have_the_ids_of_transformers(pairs: dict[str, Pair], name: str) -> None:
    ours, theirs = pairs[name]
    for messages in conversations():
        check(ours, theirs, messages)
        check(ours, theirs, messages, enable_thinking=False)
        check(ours, theirs, messages, add_generation_prompt=False)


def test_a_bundled_model_has_the_ids_of_transformers() -> None:
    ours, theirs = pair_of(Path(__file__).parents[1] / "checkpoints" / "mars-tiny")
    for messages in conversations():
        check(ours, theirs, messages)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_last_answer_is_continued_as_in_transformers(pairs: dict[str, Pair], name: str) -> None:
    for text in ("It is", "It is ", "  It\n", "<think>\nHm.\n</think>\n\nIt is"):
        messages = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": text}]
        check(*pairs[name], messages, continue_final_message=True)
        check(*pairs[name], messages, add_generation_prompt=True)


NAMES = [*SPECIALS, *{token for _, added, _ in FAMILIES.values() for token in added}]
PIECES = st.sampled_from(
    [*NAMES, "<|", "|>", "<", "[", "im_", "end", "/think>", "\n", " ", "\udc00"]
)
HOSTILE = st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=8).map("".join)


@settings(max_examples=100)
@given(texts=st.tuples(HOSTILE, HOSTILE, HOSTILE), name=st.sampled_from(list(FAMILIES)))
def test_typed_text_never_becomes_a_control_token(
    pairs: dict[str, Pair], texts: tuple[str, str, str], name: str
) -> None:
    """Templates may write each text and lose its edges, but nothing else."""
    ours, theirs = pairs[name]
    control = set(theirs.added_tokens_decoder)

    def controls_in(*said: str) -> list[int]:
        turns = zip(("user", "assistant", "user"), said, strict=True)
        return [token for token in ours.encode_chat([*turns]) if token in control]

    assert controls_in(*texts) == controls_in("a", "b", "c")
    assert not control.intersection(ours.encode("".join(texts)))


def test_template_variables_reach_the_template_as_text(tmp_path: Path) -> None:
    template = "{{ bos_token }}{{ messages[0].content }} {{ who }} {{ more[0]['a'] }} {{ n + 1 }}"
    ours, theirs = pair_of(write_family(tmp_path, "llama3", chat_template=template))
    variables = {"who": "me", "more": [{"a": "b"}], "n": 4}
    check(ours, theirs, [{"role": "user", "content": "Hi"}], **variables)
    variables["who"] = "<|eot_id|>"
    ids = ours.encode_chat([("user", "Hi")], **variables)
    assert not ours.eos_ids.intersection(ids)


def test_templates_have_what_transformers_offers() -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    template = (
        "{% for n in range(9) %}{% if n == 1 %}{% continue %}{% endif %}{% if n > 3 %}{% break %}"
        "{% endif %}{{ n }}{% endfor %}{{ messages | tojson(indent=2) }}{{ '<é>' | tojson }}\n"
        "  {% generation %}\n{% set a = namespace(b=1) %}{{ a.b }}{% endgeneration %}\n"
        "{{ strftime_now('%Y') }}{{ dict(a=tools) }}{{ documents is none }}{{ x is defined }}\n"
    )
    messages = [{"role": "user", "content": 'a "quote" <b>'}]
    (expected,), _ = render_jinja_template([messages], chat_template=template)
    assert render(template, messages, add_generation_prompt=False) == expected


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('No\n  way.') }}", "rejects the prompt: No way"),
        ("{% if %}", "rejects the prompt: Expected an expression"),
        ("{{ messages[0].nothing.at_all }}", "has no attribute 'nothing'"),
        ("{{ ''.__class__.__mro__ }}", "is unsafe"),
        ("{{ messages.append(1) }}", "is unsafe"),
        ([{"name": "rag", "template": ""}], "has no chat template"),
        (5, "has no chat template"),
    ],
)
def test_a_template_that_cannot_be_used_gets_a_sentence(
    tmp_path: Path, template: Any, reason: str
) -> None:
    folder = write_family(tmp_path, "named", chat_template=template)
    with pytest.raises(TextError, match=rf"{re.escape(reason)}[^\n]*\.$"):
        Tokenizer.from_dir(folder).encode_prompt("Hi")


def test_what_a_template_does_not_print_cannot_be_continued(tmp_path: Path) -> None:
    template = "{% for message in messages[:1] %}{{ message.content }}{% endfor %}"
    tokenizer = Tokenizer.from_dir(write_family(tmp_path, "named", chat_template=template))
    with pytest.raises(TextError, match="cannot be continued"):
        tokenizer.encode_chat([("user", "a"), ("assistant", "b")], continue_final_message=True)


# BOS and EOS.


@pytest.mark.parametrize("is_begun", [True, False])
@pytest.mark.parametrize("add_bos", [True, False])
def test_a_text_begins_with_bos_once_as_in_transformers(
    tmp_path: Path, is_begun: bool, add_bos: bool
) -> None:
    """The post-processor decides, whatever add_bos_token in the configuration says."""
    folder = write_family(tmp_path, "llama3", add_bos_token=add_bos)
    path, begin = folder / "tokenizer.json", "<|begin_of_text|>"
    plain = tokenizers.Tokenizer.from_file(str(path))
    bos = plain.token_to_id(begin)
    single, special = (f"{begin} $A", [(begin, bos)]) if is_begun else ("$A", [])
    last = processors.TemplateProcessing(single=single, special_tokens=special)
    plain.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), last])
    plain.save(str(path))
    ours, theirs = pair_of(folder)
    ids = ours.encode_text("A fox")
    assert ids == theirs("A fox")["input_ids"]
    assert ids.count(bos) == is_begun
    assert ours.encode_text(f"{begin}A fox", parse_special=True).count(bos) == 1
    check(ours, theirs, [{"role": "user", "content": "A fox"}])
    assert ours.encode_prompt("A fox").count(bos) == 1


def test_control_tokens_in_a_text_are_read_on_request(pairs: dict[str, Pair]) -> None:
    for ours, theirs in pairs.values():
        text = "".join(f"{name} a" for name in SPECIALS) + "<think>\n[INST]b</s>"
        wanted = theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.encode_text(text, parse_special=True) == wanted
        assert not set(ours.encode_text(text)) & set(theirs.added_tokens_decoder)


@pytest.mark.parametrize(
    ("generation", "config", "own", "wanted"),
    [
        (2, None, "<|im_end|>", {1, 2}),
        ([2, 3], 4, None, {2, 3, 4}),
        (None, [5], {"content": "<|im_end|>"}, {1, 5}),
        (None, None, None, {1}),  # ChatML's, where no file names one
        (10**6, 1, None, {1}),
    ],
)
def test_eos_is_what_any_file_names(
    tmp_path: Path, generation: Any, config: Any, own: Any, wanted: set[int]
) -> None:
    write_family(tmp_path, "named", eos_token=own, mask_token=None, pad_token=None)
    for name, value in (("generation_config", generation), ("config", config)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"eos_token_id": value}))
    tokenizer = Tokenizer.from_dir(tmp_path, mask="<|im_start|>")
    assert tokenizer.eos_ids == wanted
    assert not tokenizer.forbidden_ids & wanted
    for value in ("2", True, 1.5, [None], {"a": 1}):
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": value}))
        with pytest.raises(TextError, match="eos_token_id must be a token id or a list"):
            Tokenizer.from_dir(tmp_path)


def gguf(**values: Any) -> dict[str, Any]:
    tokens = [*byte_characters().values(), *SPECIALS, "<s>", "<|eot_id|>", "<think>"]
    types = [*[1] * 256, *[3] * 6, 4]
    given = {"model": "gpt2", "pre": "qwen2", "tokens": tokens, "merges": [], "bos_token_id": 260}
    given |= {"token_type": np.array(types), **values}
    return {f"tokenizer.ggml.{name}": value for name, value in given.items()}


@pytest.mark.parametrize(
    ("values", "is_begun"),
    [
        ({}, False),
        ({"add_bos_token": True}, True),
        ({"pre": "llama-bpe"}, True),
        ({"pre": "llama-bpe", "add_bos_token": False}, False),
        ({"add_bos_token": True, "bos_token_id": 10**6}, False),
    ],
)
def test_a_gguf_file_says_whether_texts_and_chats_begin_with_bos(
    values: dict[str, Any], is_begun: bool
) -> None:
    for template in (None, "{{ bos_token }}{{ messages[0].content }}"):
        metadata = gguf(**values) | {"tokenizer.chat_template": template}
        tokenizer = Tokenizer(*tokenizer_spec(metadata))
        assert tokenizer.encode_text("a").count(260) == is_begun
        has_own = template is not None and values.get("bos_token_id") is None
        assert tokenizer.encode_prompt("a").count(260) == (is_begun or has_own)


def test_eos_of_a_gguf_file(tmp_path: Path) -> None:
    for values, wanted in (
        ({}, {257, 261}),
        ({"eos_token_id": 65, "eot_token_id": 260}, {65, 257, 260, 261}),
        ({"eos_token_id": 10**6, "eom_token_id": 66}, {66, 257, 261}),
    ):
        tokenizer = Tokenizer(*tokenizer_spec(gguf(**values)))
        assert tokenizer.eos_ids == wanted
        assert tokenizer.end_id in wanted


# Answers that are given as ids.


@pytest.mark.parametrize("name", FAMILIES)
def test_given_answers_stay_unless_the_template_changes_them(
    pairs: dict[str, Pair], name: str
) -> None:
    ours, _ = pairs[name]
    for text, is_copied in (("hello", True), (" hello", name != "llama3")):
        spelled = tuple(token for character in text for token in ours.encode(character))
        actual = ours.encode_prompt("Why?", [Turn("A fox", spelled)])
        turns = [("user", "A fox"), ("assistant", text), ("user", "Why?")]
        if is_copied:
            start = ours.encode_prompt("A fox")
            if name == "qwen3":
                start = start[: -len(ours.encode_text("<think>\n", parse_special=True))]
            elif name == "mistral":
                start = [*start, *ours.encode(" ")]
            assert actual[: len(start) + len(spelled)] == [*start, *spelled]
        assert is_copied or actual == ours.encode_chat(turns)
        assert ours.decode(actual) == ours.decode(ours.encode_chat(turns))
    if name == "qwen3":
        thought = ours.encode_text("<think>\nHm.\n</think>\n\nYes", parse_special=True)
        actual = ours.encode_prompt("Why?", [Turn("A", tuple(thought)), Turn("B", (*spelled,))])
        plain = [("user", "A"), ("assistant", "Yes"), ("user", "B"), ("assistant", " hello")]
        assert actual == ours.encode_chat([*plain, ("user", "Why?")])
