"""Work that is no run, between the forwards of runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from scripted import Script, eventually, request, steps

from mars_runtime.engine import Engine, EngineBusy, EngineError, RequestError
from mars_runtime.engine.background import MAX_OF_OWNER, MAX_WAITING, SHARE
from mars_runtime.layers import Fed, Layers

FED = Fed((1,), 0, (0,), (1,))
FOUND = Layers((), ())


@dataclass
class LookingScript(Script):
    """Looks in ``num_pieces`` of ``piece`` seconds; when each began and ended is in ``pieces``."""

    num_pieces: int = 5
    piece: float = 0.0
    fault: Any = None
    pieces: list[tuple[float, float]] = field(default_factory=list)

    def read_layers(self, fed: Fed) -> Generator[None, None, Layers]:
        for _ in range(self.num_pieces):
            self.threads.add(threading.get_ident())
            self.forwards.append(("piece",))  # type: ignore[arg-type]
            began = time.monotonic()
            time.sleep(self.piece)
            self.pieces.append((began, time.monotonic()))
            if self.fault is not None:
                raise self.fault
            yield
        return FOUND


def test_without_runs_all_pieces_follow_at_once() -> None:
    script = LookingScript()
    with Engine(script) as engine:
        assert engine.read_layers(FED).result(20) is FOUND
        assert script.forwards == [("piece",)] * 5
        assert len(script.threads) == 1  # the worker's


def test_during_a_run_pieces_take_their_share_and_never_two_at_a_time() -> None:
    script = LookingScript(seconds={1: 0.005})
    script.num_pieces, script.piece = 3, 0.01
    with Engine(script) as engine:
        run = engine.submit(request(num_tokens=2000), is_alone=True)
        assert eventually(lambda: len(steps(run)) > 3)
        assert engine.read_layers(FED).result(60) is FOUND
        run.cancel()
    places = [i for i, work in enumerate(script.forwards) if work == ("piece",)]
    assert all(after - before > 1 for before, after in pairwise(places))
    for (began, ended), (again, _) in pairwise(script.pieces):
        assert again - ended >= (ended - began) * (1.0 / SHARE - 1.0)


def test_pieces_are_done_while_a_run_in_slow_motion_rests() -> None:
    script = LookingScript(seconds={1: 0.002})
    with Engine(script) as engine:
        run = engine.submit(request(num_tokens=50), pace=200.0)
        assert eventually(lambda: len(steps(run)) > 0)
        assert engine.read_layers(FED).result(20) is FOUND
        assert len(steps(run)) < 10
        run.cancel()


def test_an_error_is_raised_and_the_next_request_works() -> None:
    script = LookingScript()
    script.fault = ValueError("no")
    with Engine(script) as engine:
        with pytest.raises(ValueError, match="no"):
            engine.read_layers(FED).result(20)
        script.fault = None
        assert engine.read_layers(FED).result(20) is FOUND
        assert engine.submit(request()).wait(20)


def test_an_abandoned_job_is_not_done() -> None:
    script = LookingScript(gate=threading.Event())
    with Engine(script) as engine:
        engine.submit(request())
        left = engine.read_layers(FED)
        assert left.cancel()
        script.gate.set()
        assert engine.read_layers(FED).result(20) is FOUND
        assert script.forwards.count(("piece",)) == 5  # type: ignore[arg-type]


def test_a_closed_engine_ends_what_waits() -> None:
    script = LookingScript()
    script.piece, script.num_pieces = 0.01, 10_000
    engine = Engine(script)
    layers = engine.read_layers(FED)
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        layers.result(20)
    with pytest.raises(EngineError, match="closed"):
        engine.read_layers(FED)


def test_a_backend_that_cannot_look_says_so() -> None:
    with Engine(Script()) as engine, pytest.raises(RequestError, match="own process"):
        engine.read_layers(FED)


def test_few_of_one_owner_and_few_in_all_wait() -> None:
    script = LookingScript(start=threading.Event())
    with Engine(script) as engine:
        layers: list[Future[Layers]] = [engine.read_layers(FED, "a") for _ in range(MAX_OF_OWNER)]
        with pytest.raises(EngineBusy, match=r"again in a moment\.$"):
            engine.read_layers(FED, "a")
        layers += [
            engine.read_layers(FED, str(number)) for number in range(MAX_WAITING - MAX_OF_OWNER)
        ]
        with pytest.raises(EngineBusy):
            engine.read_layers(FED, "b")
        layers[0].cancel()
        layers.append(engine.read_layers(FED, "a"))
        script.start.set()
        assert [layer.result(20) for layer in layers[1:]] == [FOUND] * MAX_WAITING
