"""An engine whose worker dies or hangs: the page says so, and the next run gets another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from scripted_page import ScriptedBackend, controls, make_handlers

from app.handlers import Handlers
from app.serving.engines import KEEPS_DYING, MAX_REPLACED, Served
from mars_runtime.engine.engine import DEAD, Engine
from mars_runtime.engine.request import Request
from mars_runtime.events import Event
from mars_runtime.settings import DecodeSettings


class Mortal(ScriptedBackend):
    """Its forwards end the worker as long as ``is_ill``, or hang until ``gate`` is set."""

    is_ill = False
    gate: threading.Event | None = None

    def decode(self, request: Request, settings: Callable[[], DecodeSettings]) -> Iterator[Event]:
        if self.is_ill:
            raise SystemExit
        if self.gate is not None:
            self.gate.wait(60)
        yield from super().decode(request, settings)


@pytest.fixture
def backend() -> Mortal:
    return Mortal("Hello.")


@pytest.fixture
def handlers(tmp_path: Path, backend: Mortal) -> Iterator[Handlers]:
    """Each time the checkpoint is loaded, it gets an engine of its own."""
    made = make_handlers(tmp_path, backend)
    engines = made.engines
    load = engines._load

    def fresh(name: str) -> Served:
        engine = Engine(backend, max_turn_seconds=0.2)
        return replace(load(name), engine=engine)

    engines._load = fresh  # type: ignore[method-assign]
    yield made
    engines.close()


def last(handlers: Handlers) -> str:
    return list(handlers.live.run("a", controls()))[-1]


def test_a_dead_engine_is_replaced(handlers: Handlers, backend: Mortal) -> None:
    backend.is_ill = True
    value = last(handlers)
    assert value.count(DEAD) == 2
    assert '"reason":"limit"' not in value
    backend.is_ill = False
    assert '"reason":"eos"' in last(handlers)


def test_a_hung_one_too_and_its_waiting_runs_end(handlers: Handlers, backend: Mortal) -> None:
    backend.is_ill = True
    last(handlers)  # from now on by an engine that is quick to be given up
    backend.is_ill = False
    backend.gate = threading.Event()
    assert last(handlers).count(DEAD) == 2
    gate, backend.gate = backend.gate, None
    assert '"reason":"eos"' in last(handlers)
    gate.set()


def test_one_that_keeps_dying_is_given_up(handlers: Handlers, backend: Mortal) -> None:
    backend.is_ill = True
    for _ in range(MAX_REPLACED + 1):
        assert DEAD in last(handlers)
    backend.is_ill = False
    for _ in range(2):
        assert KEEPS_DYING in last(handlers)
