"""The system prompt: used for every prompt, recorded, bounded, and never a control token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import batch_page
import grid_page
import pytest
from live_page import lane_trace, last
from scripted_page import ScriptedBackend, controls, make_handlers

from app.api.runs import generate
from app.handlers import Handlers
from app.live.order import FROM_VIEW
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
    served = handlers.engines.get("scripted")
    assert served is not None
    actual = served.checkpoint.tokenizer
    assert isinstance(actual, Tokenizer)
    return actual


def header_of(handlers: Handlers, **changes: Any) -> Header:
    value = last(handlers.live.run("a", controls(max_new_tokens=4, **changes)))
    return lane_trace(value, "mars").header


def encoded(handlers: Handlers, *prompts: str) -> list[int]:
    tokenizer = tokenizer_of(handlers)
    chats = [tokenizer.encode_chat([("system", BRIEF), ("user", prompt)]) for prompt in prompts]
    return [token for ids in chats for token in ids]


def test_a_run_begins_with_it_and_its_trace_records_it(handlers: Handlers) -> None:
    header = header_of(handlers, system=BRIEF)
    assert header.system == BRIEF
    assert list(header.prompt_ids) == encoded(handlers, "Say hello.")


@pytest.mark.parametrize("empty", ["", " \n", None])
def test_empty_is_the_checkpoints_own(handlers: Handlers, empty: str | None) -> None:
    tokenizer = tokenizer_of(handlers)
    for system in (None, "Be kind."):
        tokenizer.system = system
        header = header_of(handlers, system=empty)
        assert header.system == (system or "")
        assert list(header.prompt_ids) == tokenizer.encode_chat([("user", "Say hello.")])


def test_a_template_that_rejects_it_says_so_on_the_page(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = "{{ raise_exception('No system role') }}"
    monkeypatch.setattr(tokenizer_of(handlers), "_template", template)
    value = last(handlers.live.run("a", controls(system=BRIEF)))
    assert "The model's chat template rejects the prompt: No system role." in value


@pytest.mark.parametrize(
    "broken", ["x" * (MAX_SYSTEM_CHARS + 1), "nul \0", "half \ud800", 7, ["x"], {"a": 1}]
)
def test_what_cannot_be_used_is_refused_in_one_sentence(handlers: Handlers, broken: object) -> None:
    refusal = handlers.live.check(controls(system=broken))
    assert refusal is not None
    assert refusal.field == "system"
    assert str(refusal).endswith(".")
    assert "xxx" not in str(refusal)
    for validate, values in (
        (handlers.throughput.validate, batch_page.controls(system=broken)),
        (handlers.grid.validate, grid_page.controls(system=broken)),
        (lambda request: next(generate(handlers.engines, handlers.book, request)),
         controls(method="ar", system=broken)),
    ):  # fmt: skip
        with pytest.raises(RefusalError, match=r"system prompt|characters"):
            validate(values)
    values, sentence = handlers.live.linked({"system": broken, "tau": "0.5"})
    assert values == {"tau": 0.5}
    assert "system: " in sentence


def test_a_run_from_a_view_has_that_of_the_run_on_show(handlers: Handlers) -> None:
    assert "system" in FROM_VIEW
    for posted, wanted in (({"system": BRIEF}, BRIEF), ({}, "")):  # the control holds another
        request = json.dumps({"prompt": "Say hello.", "checkpoint": "scripted", **posted})
        values = controls(system="Be long.", max_new_tokens=4)
        *_, (value, sentence) = handlers.live.run_from_view("a", request, values)
        assert sentence == ""
        assert value is not None
        assert lane_trace(value, "mars").header.system == wanted


def test_every_cell_and_the_endpoint_begin_with_it(tmp_path: Path) -> None:
    handlers, backend = grid_page.make_page(tmp_path)
    list(handlers.grid.run("a", grid_page.controls(system=BRIEF, prompt="One.")))
    list(generate(handlers.engines, handlers.book, controls(method="ar", system=BRIEF)))
    *cells, asked = backend.prompts
    assert len(cells) > 5
    assert {list(ids) == encoded(handlers, "One.") for ids in cells} == {True}
    assert list(asked) == encoded(handlers, "Say hello.")
    handlers.engines.close()
