"""The page with a leased device: processes forked by the test replace ZeroGPU's."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gradio as gr
import httpx
import pytest
from live_page import begun, lane_trace
from scripted_page import (
    TEXT,
    ReadyEngines,
    ScriptedBackend,
    controls,
    make_served,
    page_served,
)

from app.api.runs import batch
from app.engines import zerogpu
from app.engines.engines import KEEPS_DYING, MAX_REPLACED, LoadedModel, UnavailableError
from app.engines.zerogpu import TOO_LATE, LeasedEngines
from app.handlers import Handlers
from app.handlers import make_handlers as handlers_over
from app.settings import AppSettings, AppSettingsError
from mars_runtime.engine.engine import DEAD, Engine
from mars_runtime.engine.leased.engine import LOST
from mars_runtime.engine.leased.worker import Call, Decode, Lease, LeaseError, News
from mars_runtime.engine.request import Request
from mars_runtime.model.fetch import Progress
from mars_runtime.model.registry import Entry
from mars_runtime.model.source import Source
from mars_runtime.runs.events import End, Event, Step
from mars_runtime.settings import DecodeSettings
from tests.engine.forked_worker import ForkedWorkers

FORWARD = 0.01


class Space:
    """Engines as of a Space, over a scripted model; ``workers`` are its processes."""

    def __init__(self, folder: Path, is_scripted: bool = True, **caps: Any) -> None:
        backend = ScriptedBackend(TEXT, FORWARD)
        space = self

        class Scripted(LeasedEngines):
            def _load(self, entry: Entry, source: Source, progress: Progress) -> LoadedModel:
                served = super()._load(entry, source, progress)
                scripted = make_served(folder, served.entry, backend, self.settings)
                scripted.engine.close()
                return LoadedModel(served.entry, scripted.checkpoint, served.engine)

            def _open_backend(self, name: str) -> Any:
                return backend

        def lend(decode: Decode) -> Lease:
            space.workers = ForkedWorkers(decode, 2)
            return space.workers.lease

        engines = Scripted if is_scripted else LeasedEngines
        self.handlers: Handlers = handlers_over(engines(settings_of("mars-tiny", **caps), lend))

    def close(self) -> None:
        self.handlers.engines.close()
        self.workers.end()


def settings_of(offered: str, **caps: Any) -> AppSettings:
    return AppSettings(checkpoint="mars-tiny", device="cpu", offered=offered, **caps)


def values(**changes: object) -> dict[str, object]:
    return controls(**{"checkpoint": "mars-tiny", "max_new_tokens": 300, **changes})


def test_a_race_runs_on_a_lent_device_and_obeys_the_sliders(tmp_path: Path) -> None:
    with closing(Space(tmp_path)) as space:
        stream = begun(space.handlers.live.run("a", values(tau=1, max_new_tokens=60)))
        space.handlers.live.steer("a", values(tau=0.5, max_new_tokens=60))
        whole = list(stream)[-1]
        mars, ar = (lane_trace(whole, lane) for lane in ("mars", "ar"))
        assert [trace.events[-1] for trace in (mars, ar)] == [End("limit")] * 2
        taus = [step.rows[0].settings.tau for step in mars.events if isinstance(step, Step)]
        assert taus == sorted(taus, reverse=True)
        assert set(taus) == {1.0, 0.5}


def test_a_batch_runs_there_too(tmp_path: Path) -> None:
    """Batches carry their decoder with them, which has to be one that can be sent."""
    with closing(Space(tmp_path, is_scripted=False)) as space:
        body = {"prompts": ["Say hello.", "Say goodbye."], "method": "mars", "batch_size": 2}
        *_, last = batch(space.handlers.engines, {**values(max_new_tokens=8), **body})
        assert (last["message"], len(last["results"])) == ("", 2)


def test_checkpoints_load_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def engines_of(offered: str) -> closing[LeasedEngines]:
        return closing(LeasedEngines(settings_of(offered, offline=True), lambda it: it))

    with engines_of("ar-tiny") as engines:
        assert [engines.get(name, 5) is not None for name in ("mars-tiny", "ar-tiny")] == [True] * 2
    with engines_of("mars-7b-blk4") as engines:
        assert engines.get("mars-tiny", 5) is not None
        with pytest.raises(UnavailableError) as refused:
            engines.get("mars-7b-blk4", 5)
        assert TOO_LATE not in str(refused.value)
    monkeypatch.setattr(zerogpu, "MAX_LOADED", 1)
    with engines_of("ar-tiny") as engines, pytest.raises(UnavailableError, match=TOO_LATE[:20]):
        engines.get("ar-tiny", 5)


@pytest.fixture
def spaces(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package like ``spaces`` on ZeroGPU; ``asked`` are the durations."""
    module: Any = ModuleType("spaces")
    config: Any = ModuleType("spaces.config")
    config.Config = SimpleNamespace(zero_gpu=True)
    module.config, module.asked = config, []
    module.error = None

    def gpu(duration: Callable[[Call], int]) -> Callable[[Decode], Lease]:
        def decorate(task: Decode) -> Lease:
            def wrapper(call: Call) -> Generator[News, None, None]:
                module.asked.append(duration(call))
                if module.error is not None:
                    raise module.error
                yield from task(call)

            return wrapper

        return decorate

    module.GPU = gpu
    module.__spec__ = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "spaces", module)
    monkeypatch.setitem(sys.modules, "spaces.config", config)
    monkeypatch.setattr(zerogpu, "find_spec", lambda name: SimpleNamespace())
    return module


def test_zerogpu_is_detected(monkeypatch: pytest.MonkeyPatch, spaces: Any) -> None:
    monkeypatch.delenv(zerogpu.VARIABLE, raising=False)
    assert not zerogpu.is_on_zerogpu()
    monkeypatch.setenv(zerogpu.VARIABLE, "true")
    assert zerogpu.is_on_zerogpu()
    spaces.config.Config.zero_gpu = False
    assert not zerogpu.is_on_zerogpu()
    monkeypatch.setattr(zerogpu, "find_spec", lambda name: None)
    with pytest.raises(AppSettingsError, match="upload the folder"):
        zerogpu.is_on_zerogpu()


def test_zerogpu_is_informed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``spaces`` hears of it: by the first launch of a Gradio app."""
    space = Space(tmp_path, port=0)
    launch, launched = gr.Blocks.launch, list[gr.Blocks]()

    def first_launch(blocks: gr.Blocks, **options: Any) -> Any:
        launched.append(blocks)
        gr.Blocks.launch = launch
        return blocks.launch(**options)

    monkeypatch.setattr(gr.Blocks, "launch", first_launch)
    with closing(space), page_served(space.handlers) as url:
        (empty,) = launched
        assert httpx.get(f"{url}config").json()["title"] == "MARS live"
        with pytest.raises(httpx.ConnectError):
            httpx.get(empty.local_url)


def decode(call: Call) -> Generator[News, None, None]:
    yield News()


@pytest.mark.parametrize(
    ("title", "message", "told"),
    [
        ("ZeroGPU worker error", "ZeroDivisionError", LOST),
        ("ZeroGPU queue timeout", "No GPU was available. [Sign up](https://x.y) to <b>wait</b>",
         "No GPU was available. Sign up to wait"),
    ],
)  # fmt: skip
def test_zerogpu_lends_for_the_time_of_the_call_or_refuses_in_a_sentence_of_plain_text(
    spaces: Any, title: str, message: str, told: str
) -> None:
    call: Any = SimpleNamespace(seconds=12.2)
    assert list(zerogpu.lend_by_zerogpu(decode)(call)) == [News()]
    assert spaces.asked == [13]
    spaces.error = gr.Error(message, title=title)
    with pytest.raises(LeaseError) as caught:
        list(zerogpu.lend_by_zerogpu(decode)(call))
    assert str(caught.value) == told


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
    settings = AppSettings(checkpoint="scripted")
    entry = Entry("scripted", 8, path="scripted", licence="Apache-2.0")
    served = make_served(tmp_path, entry, backend, settings)

    class Renewing(ReadyEngines):
        """Each time the checkpoint is loaded, it gets an engine of its own."""

        def _load(self, entry: Entry, source: Source, progress: Progress) -> LoadedModel:
            served = super()._load(entry, source, progress)
            return replace(served, engine=Engine(backend, max_turn_seconds=1.0))

    engines = Renewing(settings, served)
    yield handlers_over(engines)
    engines.close()


def last(handlers: Handlers) -> str:
    return list(handlers.live.run("a", controls()))[-1]


def test_a_dead_engine_is_replaced(handlers: Handlers, backend: Mortal) -> None:
    gate = backend.gate = threading.Event()
    assert last(handlers).count(DEAD) == 2  # also of the run that waits
    backend.gate = None
    assert '"reason":"eos"' in last(handlers)
    backend.is_ill = True
    for _ in range(MAX_REPLACED):
        assert DEAD in last(handlers)
    backend.is_ill = False
    for _ in range(2):
        assert KEEPS_DYING in last(handlers)
    gate.set()
