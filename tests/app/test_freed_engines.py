"""Checkpoints come and go as memory allows: no run is lost, and nobody hears that none fit."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripted_page import ScriptedBackend, make_served

from app.api.runs import awaited
from app.serving import engines as module
from app.serving.engines import Engines, MemoryShortError, Served, UnavailableError
from app.serving.settings import AppSettings
from mars_runtime.engine import Request
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.registry import Entry
from mars_runtime.serving.runs import Job
from mars_runtime.settings import DecodeSettings
from tests.serving.scripted_server import NAME, Oracle, serving

NAMES = ("a", "b", "c", "d", "e")
SHORT = Request([1, 2, 3], DecodeSettings("ar", max_new_tokens=8))


class SmallMachine(Engines):
    """Two of the five fit; each is made anew when it is loaded."""

    def __init__(self, folder: Path, fit: int = 2) -> None:
        self._folder, self._fit = folder, fit
        self.made: dict[str, list[Served]] = {name: [] for name in NAMES}
        self.failing: set[str] = set()
        entries = {name: Entry(name, 8, path=name) for name in NAMES}
        super().__init__(AppSettings(checkpoint="a"), entries)

    @property
    def alive(self) -> list[str]:
        return [n for n, all_made in self.made.items() if any(s.engine.is_alive for s in all_made)]

    def _load(self, name: str) -> Served:
        if name in self.failing:
            raise RuntimeError("no such file")
        if len(self.alive) >= self._fit:
            raise MemoryShortError(f"{name} needs some 2.0 GB of memory and 1.0 GB are free.")
        backend = ScriptedBackend("I write. " * 40, forward_seconds=0.002)
        served = make_served(self._folder / name, self.entries[name], backend, self.settings)
        self.made[name].append(served)
        return served


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallMachine]:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)
    made = SmallMachine(tmp_path)
    yield made
    made.close()


def get(engines: Engines, name: str) -> Served:
    found = engines.get(name, timeout=30)
    assert found is not None
    return found


def until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_one_that_was_asked_for_longest_ago_makes_room(engines: SmallMachine) -> None:
    for name in NAMES:
        time.sleep(0.06)
        get(engines, name)
    assert engines.alive == ["d", "e"]
    time.sleep(0.06)
    get(engines, "d")
    get(engines, "a")
    assert engines.alive == ["a", "d"]
    assert len(engines.made["a"]) == 2


def test_one_that_is_at_work_is_waited_for(engines: SmallMachine) -> None:
    runs = [get(engines, name).engine.submit(SHORT, pace=20) for name in ("a", "b")]
    load = engines.begin("c")
    until(lambda: "waits for memory" in load.situation)
    assert sorted(engines.alive) == ["a", "b"]
    assert load.wait(30) is not None
    assert any(run.wait(30) for run in runs)
    for run in runs:
        assert list(run)[-1].reason == "limit"  # type: ignore[union-attr]


def test_one_that_is_kept_is_not_freed_between_two_runs(
    engines: SmallMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.3)
    get(engines, "a")
    get(engines, "b")
    time.sleep(0.06)
    full = pytest.raises(UnavailableError, match="GB are free")
    with engines.kept("a"), engines.kept("b"), full:
        get(engines, "c")
    assert sorted(engines.alive) == ["a", "b"]
    get(engines, "c")


def test_one_that_warms_up_for_a_caller_is_not_freed(engines: SmallMachine) -> None:
    """A caller of a typed endpoint waits for it, and nothing runs there meanwhile."""
    is_warm = threading.Event()
    get(engines, "b")
    served = get(engines, "a")
    served.engine.is_ready = is_warm.wait  # type: ignore[method-assign]
    waiting = awaited(engines, "a", str)
    hearing = threading.Thread(target=lambda: [None for _ in waiting])
    hearing.start()
    time.sleep(0.2)
    get(engines, "c")
    get(engines, "d")
    assert "a" in engines.alive
    is_warm.set()
    hearing.join(20)


def test_loads_that_failed_take_no_place(engines: SmallMachine) -> None:
    engines.failing = {"a", "b", "c"}
    for name in "abc":
        with pytest.raises(UnavailableError):
            get(engines, name)
    for name in "de":
        get(engines, name)
    assert sorted(engines.alive) == ["d", "e"]


def test_what_was_freed_is_no_trouble_and_loads_again(engines: SmallMachine) -> None:
    for name in "abc":
        get(engines, name)
        time.sleep(0.06)
    assert "a" not in engines.alive
    assert engines.trouble("a") == ""
    assert engines.default == "a"
    load = engines.begin("a")
    assert load.situation.startswith("Loading a")
    assert load.wait(30) is not None


def test_many_visitors_of_five_checkpoints_all_get_their_runs(engines: SmallMachine) -> None:
    failures: list[BaseException] = []

    def visit(seed: int) -> None:
        try:
            for turn in range(5):
                name = NAMES[(seed + turn) % len(NAMES)]
                with engines.kept(name):
                    run = get(engines, name).engine.submit(SHORT)
                    assert run.wait(30)
                    assert list(run)[-1].reason == "limit"  # type: ignore[union-attr]
        except BaseException as error:
            failures.append(error)

    visitors = [threading.Thread(target=visit, args=(seed,)) for seed in range(4)]
    for one in visitors:
        one.start()
    for one in visitors:
        one.join(120)
    assert not failures
    assert len(engines.alive) <= 2


def test_a_freed_checkpoint_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model of a real one is gone, whatever was frozen when its engine was ready."""
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    engines = Engines(AppSettings(checkpoint="mars-tiny"))
    served = get(engines, "mars-tiny")
    assert served.engine.costs() is not None
    model, threads = weakref.ref(served.checkpoint.model), threading.active_count()  # type: ignore[union-attr]
    del served
    assert engines._free_one()
    until(lambda: threading.active_count() < threads)
    gc.collect()
    assert model() is None
    engines.close()
    assert load_checkpoint("mars-tiny").model is not None


def test_runs_of_programs_that_are_over_keep_no_model(tmp_path: Path) -> None:
    """The endpoint remembers the latest runs until the next one begins."""
    with serving(tmp_path, Oracle()) as place:
        told = {"model": NAME, "messages": [{"role": "user", "content": "Say hello."}]}
        assert place.http.post("/v1/chat/completions", json=told).status_code == 200
        held = [each for each in gc.get_objects() if isinstance(each, Job)]
        assert held
        names = {type(getattr(each, name)).__name__ for each in held for name in Job.__slots__}
        assert names == {"int", "tuple"}
