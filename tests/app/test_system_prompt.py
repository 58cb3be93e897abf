"""The system prompt: used for every prompt, recorded, bounded, and never a control token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import batch_page
import pytest
import test_grid
from live_page import lane_trace, last
from scripted_page import ScriptedBackend, controls, make_handlers

from app.api.runs import generate
from app.handlers import Handlers
from app.ui.controls import RefusalError
from mars_runtime.runs.trace import Header
from mars_runtime.text import MAX_SYSTEM_CHARS, Tokenizer

BRIEF = "Be brief."


@pytest.fixture
def handlers(tmp_path: Path) -> Iterator[Handlers]:
    made = make_handlers(tmp_path, ScriptedBackend("Hello!" * 3))
    yield made
    made.engines.close()


def tokenizer_of(handlers: Handlers) -> Tokenizer:
    return handlers.engines.get("scripted").checkpoint.tokenizer


def header_of(handlers: Handlers, **changes: Any) -> Header:
    value = last(handlers.live.run("a", controls(max_new_tokens=4, **changes)))
    return lane_trace(value, "mars").header


def test_a_run_begins_with_it_and_its_trace_records_it(handlers: Handlers) -> None:
    header = header_of(handlers, system=BRIEF)
    assert header.system == BRIEF
    chat = [("system", BRIEF), ("user", "Say hello.")]
    assert list(header.prompt_ids) == tokenizer_of(handlers).encode_chat(chat)


@pytest.mark.parametrize("empty", ["", " \n", None])
def test_empty_is_the_checkpoints_own(handlers: Handlers, empty: str | None) -> None:
    tokenizer = tokenizer_of(handlers)
    for system in (None, "Be kind."):
        tokenizer.system = system
        header = header_of(handlers, system=empty)
        assert header.system == (system or "")
        assert list(header.prompt_ids) == tokenizer.encode_chat([("user", "Say hello.")])


@pytest.mark.parametrize("broken", ["x" * (MAX_SYSTEM_CHARS + 1), "nul \0", ["x"]])
def test_what_cannot_be_used_is_refused_in_one_sentence(handlers: Handlers, broken: object) -> None:
    refusal = handlers.live.check(controls(system=broken))
    assert refusal is not None
    assert refusal.field == "system"
    assert "xxx" not in str(refusal)
    for validate, values in (
        (handlers.throughput.validate, batch_page.controls(system=broken)),
        (handlers.grid.validate, test_grid.controls(system=broken)),
        (lambda request: next(generate(handlers.engines, handlers.book, request)),
         controls(method="ar", system=broken)),
    ):  # fmt: skip
        with pytest.raises(RefusalError, match=r"system prompt|characters"):
            validate(values)
    values, sentence = handlers.live.linked({"system": broken, "tau": "0.5"})
    assert values == {"tau": 0.5}
    assert "system: " in sentence
