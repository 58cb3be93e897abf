"""Checkpoints on their way: the wanted one is fetched behind a bundled one, as the network lets."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_source import NO_NETWORK, FakeHub, make_handlers
from scripted_page import ScriptedBackend, controls, make_served, source_of

from app.api.runs import awaited
from app.engines import engines as module
from app.engines.engines import (
    Engines,
    LoadedModel,
    MemoryShortError,
    State,
    UnavailableError,
    read_entries,
)
from app.handlers import Handlers
from app.settings import AppSettings
from app.ui.checkpoints import INSTEAD_TASKS
from mars_runtime.engine import Request
from mars_runtime.model import build
from mars_runtime.model.fetch import Progress
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.registry import Entry
from mars_runtime.model.source import Source
from mars_runtime.settings import DecodeSettings
from tests.engine.scripted import eventually


@pytest.fixture(autouse=True)
def _all_that_was_imported_stays_frozen(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a quarter of a second is spent on it whenever a checkpoint is freed."""
    if request.function is not test_a_freed_checkpoint_leaves_nothing_behind:
        monkeypatch.setattr(gc, "unfreeze", lambda: None)


@pytest.fixture
def source() -> Iterator[FakeHub]:
    made = FakeHub()
    yield made
    made.go.set()


@pytest.fixture
def handlers(tmp_path: Path, source: FakeHub) -> Iterator[Handlers]:
    made, _ = make_handlers(tmp_path, source)
    yield made
    made.engines.close()


def test_a_bundled_checkpoint_comes_first(handlers: Handlers, source: FakeHub) -> None:
    engines = handlers.engines
    assert engines.default == "tiny"
    assert eventually(lambda: "43" in handlers.checkpoints.arrival("a").sentence)
    assert handlers.checkpoints.arrival("a").sentence == "Downloading chat, 94 MB: 43 %"
    assert not handlers.checkpoints.arrival("a").is_over
    assert engines.begin("chat").state is State.DOWNLOADING
    source.go.set()
    assert engines.get("chat", timeout=20)
    assert engines.begin("chat").state is State.READY
    assert engines.default == "chat"
    assert source.calls == [False]


def test_who_chose_a_checkpoint_keeps_it(handlers: Handlers, source: FakeHub) -> None:
    source.go.set()
    assert handlers.engines.get("chat", timeout=20)
    handlers.checkpoints.settle("b")
    fresh, settled = handlers.checkpoints.arrival("a"), handlers.checkpoints.arrival("b")
    assert (fresh.checkpoint, fresh.sentence, fresh.is_over) == ("chat", "", True)
    assert (settled.checkpoint, settled.is_over) == (None, True)
    assert settled.sentence == "chat is ready. Select it as the model."
    list(handlers.live.run("a", controls(checkpoint="tiny", max_new_tokens=4)))
    assert handlers.checkpoints.arrival("a").checkpoint is None
    handlers.checkpoints.leave("a")
    assert handlers.checkpoints.arrival("a").checkpoint == "chat"


def test_without_a_network(handlers: Handlers, source: FakeHub) -> None:
    source.failure = NO_NETWORK
    source.go.set()
    assert eventually(lambda: handlers.checkpoints.arrival("a").is_over)
    arrival = handlers.checkpoints.arrival("a")
    assert arrival.checkpoint is None
    assert arrival.sentence == f"{NO_NETWORK} {INSTEAD_TASKS.format('tiny')}"
    assert handlers.engines.default == "tiny"
    *_, last = handlers.live.run("a", controls(checkpoint="tiny"))
    assert '"reason":"limit"' in last
    *_, refused = handlers.live.run("a", controls(checkpoint="chat"))
    assert NO_NETWORK in refused
    failed = handlers.engines._records["chat"].load
    source.failure = ""
    source.go.clear()
    handlers.checkpoints.choose("chat")  # which tries again
    retry = handlers.engines.begin("chat")
    with pytest.raises(UnavailableError, match="could not be fetched"):
        failed.wait()  # by a late reader, who does not discard the new one
    assert handlers.engines.begin("chat") is retry is not failed
    source.go.set()
    assert eventually(lambda: handlers.checkpoints.state("chat").is_over)
    chosen = handlers.checkpoints.state("chat")
    assert chosen.notice.startswith("135 M parameters. It answers everyday")
    assert chosen.notice.endswith("A chat model.")
    assert handlers.engines.default == "chat"


def test_what_is_on_the_disk_is_loaded(tmp_path: Path) -> None:
    source = FakeHub(is_present=True)
    made, _ = make_handlers(tmp_path, source)
    assert made.engines.arrival() is None
    assert made.engines.get("chat", timeout=20)
    assert source.calls == []
    made.engines.close()
    source = FakeHub(failure="Fetching is switched off.")
    source.go.set()
    made, _ = make_handlers(tmp_path, source, offline=True)
    assert eventually(lambda: made.checkpoints.arrival("a").is_over)
    assert source.calls == [True]
    made.engines.close()


def test_while_the_native_library_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_compiled = threading.Event()
    monkeypatch.setattr(
        build, "must_compile", lambda _, dtype: dtype == "auto" and not is_compiled.is_set()
    )
    monkeypatch.setattr(build, "has_native", lambda: is_compiled.wait(60))
    made, _ = make_handlers(tmp_path, FakeHub(is_present=True))
    assert eventually(lambda: made.engines.begin("chat").situation == build.COMPILING)
    assert made.engines.default == "tiny"
    assert made.engines.get("tiny", timeout=20)
    is_compiled.set()
    assert made.engines.get("chat", timeout=20)
    assert made.engines.default == "chat"
    made.engines.close()


def test_a_run_that_waits_can_be_stopped(handlers: Handlers, source: FakeHub) -> None:
    stream = handlers.live.run("a", controls(checkpoint="chat"))
    assert "Downloading chat" in next(stream)
    handlers.live.stop("a")
    *_, last = stream
    assert last.count('"reason":"cancelled"') == 2
    assert len(handlers.live.runs) == 0
    again = handlers.live.run("a", controls(checkpoint="chat", max_new_tokens=4))
    next(again)
    source.go.set()
    *_, last = again
    assert last.count('"reason":"limit"') == 2


def test_the_chat_model_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARS_CACHE", str(tmp_path))
    assert Engines(AppSettings()).wanted == "mars-smollm2"
    assert Engines(AppSettings()).default == "mars-tiny"
    assert Engines(AppSettings(checkpoint="ar-tiny")).default == "ar-tiny"


NAMES = ("a", "b", "c", "d", "e")
SHORT = Request([1, 2, 3], DecodeSettings("ar", max_new_tokens=8))


class SmallMachine(Engines):
    """Two of the five fit; each is created again when it is loaded."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.made: dict[str, list[LoadedModel]] = {name: [] for name in NAMES}
        entries = {name: Entry(name, 8, path=name) for name in NAMES}
        super().__init__(AppSettings(checkpoint="a"), entries)

    @property
    def alive(self) -> list[str]:
        return [n for n, all_made in self.made.items() if any(s.engine.is_alive for s in all_made)]

    def _resolve(self, entry: Entry) -> Source:
        return source_of(entry)

    def _load(self, entry: Entry, source: Source, progress: Progress) -> LoadedModel:
        name = entry.name
        if len(self.alive) >= 2:
            raise MemoryShortError(f"{name} needs some 2.0 GB of memory and 1.0 GB are free.")
        backend = ScriptedBackend("I write. " * 40, forward_seconds=0.002)
        served = make_served(self._folder / name, entry, backend, self.settings)
        self.made[name].append(served)
        return served


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallMachine]:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.02)
    made = SmallMachine(tmp_path)
    yield made
    made.close()


def get(engines: Engines, name: str) -> LoadedModel:
    actual = engines.get(name, timeout=30)
    assert actual is not None
    return actual


def test_the_one_that_was_asked_for_longest_ago_makes_room(engines: SmallMachine) -> None:
    for name in NAMES:
        get(engines, name)
    assert engines.alive == ["d", "e"]
    get(engines, "d")
    get(engines, "a")
    assert engines.alive == ["a", "d"]
    assert len(engines.made["a"]) == 2
    assert engines.trouble("e") == ""  # what was freed is no trouble
    assert engines.begin("e").situation.startswith("Loading e")


def test_one_that_is_at_work_is_waited_for(engines: SmallMachine) -> None:
    runs = [get(engines, name).engine.submit(SHORT, pace=20) for name in ("a", "b")]
    load = engines.begin("c")
    assert eventually(lambda: "is waiting for memory" in load.situation)
    assert sorted(engines.alive) == ["a", "b"]
    assert load.wait(30) is not None
    assert any(run.wait(30) for run in runs)
    for run in runs:
        assert list(run)[-1].reason == "limit"


def test_one_that_is_kept_is_not_freed(
    engines: SmallMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAIT_SECONDS", 0.3)
    get(engines, "a")
    get(engines, "b")
    full = pytest.raises(UnavailableError, match="GB are free")
    with engines.kept("a"), engines.kept("b"), full:
        get(engines, "c")
    assert sorted(engines.alive) == ["a", "b"]
    get(engines, "c")


def test_one_that_warms_up_for_a_caller_is_not_freed(engines: SmallMachine) -> None:
    """A caller of a typed endpoint waits for it, and nothing runs there in the meantime."""
    is_asked, is_warm = threading.Event(), threading.Event()

    def is_ready(timeout: float) -> bool:
        is_asked.set()
        return is_warm.wait(timeout)

    get(engines, "b")
    served = get(engines, "a")
    served.engine.is_ready = is_ready
    waiting = awaited(engines, "a", str)
    hearing = threading.Thread(target=lambda: [None for _ in waiting])
    hearing.start()
    assert is_asked.wait(20)
    get(engines, "c")
    get(engines, "d")
    assert "a" in engines.alive
    is_warm.set()
    hearing.join(20)


def test_a_freed_checkpoint_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Including objects that were frozen when the engine was ready."""
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    engines = Engines(AppSettings(checkpoint="mars-tiny"))
    served = get(engines, "mars-tiny")
    assert served.engine.costs() is not None
    model, threads = weakref.ref(served.checkpoint.model), threading.active_count()
    del served
    assert engines._free_one()
    assert eventually(lambda: threading.active_count() < threads)
    gc.collect()
    assert model() is None
    engines.close()
    assert load_checkpoint("mars-tiny").model is not None


@pytest.mark.parametrize("settings", [{}, {"offline": True}, {"offered": "ar-tiny"}])
def test_small_published_checkpoints_are_offered_unless_offline(settings: dict[str, Any]) -> None:
    entries = read_entries("mars-tiny", **settings)
    small = {"mars-0.5b-blk4", "mars-0.5b-blk8", "mars-0.5b-blk16"}
    assert {name for name in entries if "b-blk" in name} == (set() if settings else small)
