"""A tokenizer that has no token for some bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_text import edit

from mars_runtime.byte_level import byte_characters
from mars_runtime.text import TextError, Tokenizer
from tests.tiny_tokenizer import write_tokenizer

LOST = {0x04, 0x16, 0x1D, 0xC0, 0xF1}


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A tokenizer without tokens for the bytes in LOST, as SmolLM2's lacks some."""
    folder = write_tokenizer(tmp_path_factory.mktemp("lossy"))
    spec = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    lost = {char for byte, char in byte_characters().items() if byte in LOST}
    model = spec["model"]
    model["vocab"] = {k: v for k, v in model["vocab"].items() if not lost & set(k)}
    model["merges"] = [merge for merge in model["merges"] if not lost & set("".join(merge))]
    return Tokenizer.from_dir(edit(folder, folder, **spec))


@given(
    text=st.text(
        st.characters(codec="utf-8") | st.sampled_from("\x04\x16\x1d\U000412ab"), max_size=40
    )
)
def test_bytes_without_a_token_are_left_out_as_the_library_does(
    lossy: Tokenizer, text: str
) -> None:
    ids = lossy.encode(text)
    kept = bytes(byte for byte in text.encode() if byte not in LOST)
    assert b"".join(map(lossy.token_bytes, ids)) == kept


def test_a_prompt_of_nothing_but_lost_bytes_gets_a_sentence(lossy: Tokenizer) -> None:
    with pytest.raises(TextError, match=r"no tokens for these characters\.$"):
        lossy.encode_prompt(" \x04\x16\n")
    assert lossy.encode_prompt("a\x04b") == lossy.encode_prompt("ab")
