"""What goes wrong is logged where it went wrong, without a word of what a visitor sent."""

from __future__ import annotations

import json
import logging

import pytest
from scripted_page import ScriptedBackend, controls
from visitor import RUN, Visitor, assert_serves, post

from app.handlers import Handlers
from app.live.order import STEERED
from app.ui.stream import FAILED

SECRET = "my-secret-words"


def test_no_exception_of_a_run_brings_the_prompt_into_the_log(
    served_handlers: Handlers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The visitor gets one sentence, the log where it went wrong."""

    def failing(prompt: str) -> None:
        try:
            raise KeyError(prompt)
        except KeyError as error:
            raise ValueError(f"no task for {prompt}") from error

    monkeypatch.setattr(served_handlers.book, "task", failing)
    with caplog.at_level(logging.DEBUG):
        value = list(served_handlers.live.run("a", controls(prompt=SECRET)))[-1]
    assert FAILED in value
    assert all(word in caplog.text for word in ("ValueError", "KeyError", "failing"))
    assert SECRET not in caplog.text


def test_gradio_prints_nothing_of_what_was_sent(
    address: str,
    scripted_backend: ScriptedBackend,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    scripted_backend.forward_seconds = 0.0
    visitor = Visitor(address)
    with caplog.at_level(logging.DEBUG):
        posts = [
            ("queue/join", {"data": [SECRET] * 3, "fn_index": visitor.events[RUN]}),
            ("run/predict", {"data": [SECRET], "fn_index": visitor.events[(len(STEERED), 0)]}),
            ("call/generate", {"data": [SECRET]}),
            ("run/predict", {"data": [SECRET], "fn_index": 10**6}),
            ("component_server", {"data": [SECRET], "component_id": 10**6, "fn_name": "x"}),
        ]
        for path, body in posts:
            whole = {**body, "session_hash": visitor.session}
            post(address, f"gradio_api/{path}", json.dumps(whole).encode())
        assert_serves(Visitor(address))
    output = capfd.readouterr()
    for text in (caplog.text, output.out, output.err):
        assert SECRET not in text


def test_gradio_logs_where_an_event_failed_without_its_words(
    address: str,
    served_handlers: Handlers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def failing(*_: object) -> None:
        raise KeyError(SECRET)

    visitor = Visitor(address)
    monkeypatch.setattr(served_handlers.live, "run", failing)
    assert visitor.run()[0] == 200
    assert not visitor.stream()[-2]["success"]
    monkeypatch.setattr(served_handlers.live.runs, "of", failing)
    assert visitor.knobs()[0] == 500
    output = capfd.readouterr()
    assert caplog.text.count("an event failed: KeyError") == 2
    assert "failing" in caplog.text
    for text in (caplog.text, output.out, output.err):
        assert SECRET not in text
