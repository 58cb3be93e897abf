"""Checkpoints on their way: the wanted one is fetched behind a bundled one, as the network lets."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_source import NO_NETWORK, FakeSource, make_handlers
from scripted_page import controls

from app.handlers import Handlers
from app.serving.checkpoints import footer
from app.serving.engines import FAULT, Engines, Load, UnavailableError, fetching, read_entries
from app.serving.settings import AppSettings
from mars_runtime.model.config import CheckpointError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def source() -> Iterator[FakeSource]:
    made = FakeSource()
    yield made
    made.go.set()


@pytest.fixture
def handlers(tmp_path: Path, source: FakeSource) -> Iterator[Handlers]:
    made, _ = make_handlers(tmp_path, source)
    yield made
    made.engines.close()


def until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_bundled_checkpoint_stands_in_until_the_wanted_one_is_loaded(
    handlers: Handlers, source: FakeSource
) -> None:
    engines = handlers.engines
    assert engines.default == "tiny"
    until(lambda: "43" in handlers.checkpoints.arrival("a").sentence)
    assert handlers.checkpoints.arrival("a").sentence == "Fetching chat, 94 MB: 43 %"
    assert not handlers.checkpoints.arrival("a").is_over
    source.go.set()
    assert engines.get("chat", timeout=20)
    assert engines.default == "chat"
    assert source.calls == [False]


def test_who_chose_or_ran_something_keeps_it_and_is_told(
    handlers: Handlers, source: FakeSource
) -> None:
    source.go.set()
    assert handlers.engines.get("chat", timeout=20)
    handlers.checkpoints.settle("b")
    fresh, settled = handlers.checkpoints.arrival("a"), handlers.checkpoints.arrival("b")
    assert (fresh.checkpoint, fresh.sentence, fresh.is_over) == ("chat", "", True)
    assert (settled.checkpoint, settled.is_over) == (None, True)
    assert settled.sentence == "chat is here: choose it as the model."
    list(handlers.live.run("a", controls(checkpoint="tiny", max_new_tokens=4)))
    assert handlers.checkpoints.arrival("a").checkpoint is None
    handlers.checkpoints.leave("a")
    assert handlers.checkpoints.arrival("a").checkpoint == "chat"


def test_without_a_network_a_sentence_says_so_and_everything_else_works(
    handlers: Handlers, source: FakeSource
) -> None:
    source.failure = NO_NETWORK
    source.go.set()
    until(lambda: handlers.checkpoints.arrival("a").is_over)
    told = handlers.checkpoints.arrival("a")
    assert told.checkpoint is None
    assert told.sentence == f"{NO_NETWORK} Until then tiny, which knows only its tasks, answers."
    assert handlers.engines.default == "tiny"
    *_, last = handlers.live.run("a", controls(checkpoint="tiny"))
    assert '"reason":"limit"' in last
    *_, refused = handlers.live.run("a", controls(checkpoint="chat"))
    assert NO_NETWORK in refused


def test_choosing_it_again_tries_again(handlers: Handlers, source: FakeSource) -> None:
    source.failure = NO_NETWORK
    source.go.set()
    until(lambda: handlers.checkpoints.arrival("a").is_over)
    source.failure = ""
    *_, chosen = handlers.checkpoints.choose("chat")
    assert chosen.notice == (
        "135 M parameters, 98 MB to fetch. It answers everyday questions in English, writes and "
        "rewrites short texts. It often gets facts, sums and code wrong, knows nothing recent and "
        "is no adviser. A chat model."
    )
    assert handlers.engines.default == "chat"


def test_offline_nothing_is_fetched(tmp_path: Path) -> None:
    class Offline(FakeSource):
        def fetch(self, entry, progress, offline=False):
            assert offline
            raise CheckpointError("Fetching is switched off.")

    made, _ = make_handlers(tmp_path, Offline(), offline=True)
    until(lambda: made.checkpoints.arrival("a").is_over)
    assert made.checkpoints.arrival("a").sentence.startswith(
        "Fetching is switched off. Until then tiny"
    )
    made.engines.close()


def test_what_is_on_the_disk_is_loaded_at_once(tmp_path: Path) -> None:
    source = FakeSource(is_present=True)
    made, _ = make_handlers(tmp_path, source)
    assert made.engines.default == "chat"
    assert made.engines.arrival() is None
    assert made.engines.get("chat", timeout=20)
    assert source.calls == []
    made.engines.close()


def test_a_run_that_waits_for_it_says_how_far_it_is_and_can_be_stopped(
    handlers: Handlers, source: FakeSource
) -> None:
    stream = handlers.live.run("a", controls(checkpoint="chat"))
    assert "Fetching chat" in next(stream)
    handlers.live.stop("a")
    began = time.monotonic()
    *_, last = stream
    assert time.monotonic() - began < 5
    assert last.count('"reason":"cancelled"') == 2
    assert len(handlers.live.runs) == 0
    again = handlers.live.run("a", controls(checkpoint="chat", max_new_tokens=4))
    next(again)
    source.go.set()
    *_, last = again
    assert last.count('"reason":"limit"') == 2


def test_what_is_moved_while_it_loads_is_in_force_when_it_runs(
    handlers: Handlers, source: FakeSource
) -> None:
    stream = handlers.live.run("a", controls(checkpoint="chat", tau=1, view="mars"))
    next(stream)
    handlers.live.steer("a", controls(tau=0.5))
    source.go.set()
    *_, last = stream
    assert '"tau":0.5' in last
    assert '"tau":1' not in last


def test_a_late_reader_of_a_failed_load_does_not_discard_the_retry(
    handlers: Handlers, source: FakeSource
) -> None:
    engines = handlers.engines
    failed = engines.begin("chat")
    source.failure = NO_NETWORK
    source.go.set()
    until(lambda: failed.failure)
    source.go.clear()
    retry = engines.begin("chat")
    assert retry is not failed
    with pytest.raises(UnavailableError, match="could not be fetched"):
        failed.wait()
    assert engines.begin("chat") is retry


def test_a_fault_that_nobody_foresaw_is_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    load = Load("x", lambda tell: 1 / 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(UnavailableError, match=FAULT):
        load.wait(10)
    assert load.served is None


def test_how_far_a_fetch_is_in_words() -> None:
    assert fetching("small", 0, 0) == "Fetching small…"
    assert fetching("small", 0, 94_000_000) == "Fetching small, 94 MB: 0 %"
    assert fetching("small", 93_999_999, 94_000_000) == "Fetching small, 94 MB: 99 %"
    assert fetching("small", 95_000_000, 94_000_000) == "Fetching small, 94 MB: 100 %"


def test_the_chat_model_is_wanted_unless_another_is_asked_for() -> None:
    assert Engines(AppSettings(), source=FakeSource()).wanted == "mars-smollm2"
    assert Engines(AppSettings(), source=FakeSource()).default == "mars-tiny"
    assert Engines(AppSettings(checkpoint="ar-tiny"), source=FakeSource()).default == "ar-tiny"
    assert next(iter(read_entries("mars-tiny"))) == "mars-tiny"


HUNG = """
import sys
sys.path[:0] = [{root!r}, {tests!r}]
from fake_source import FakeSource, make_handlers
from pathlib import Path
from runpy import run_path
from app.serving import engines

entry = run_path({root!r} + "/app.py")
made, _ = make_handlers(Path({folder!r}), FakeSource(), port={port})
engines.Engines = lambda settings: made.engines
sys.argv[1:] = ["--port", "{port}"]
entry["main"]()
"""


def test_a_fetch_that_hangs_keeps_nobody_from_leaving(tmp_path: Path) -> None:
    from test_launch import free_port, wait_for

    port = free_port()
    script = HUNG.format(
        root=str(ROOT), tests=str(Path(__file__).parent), folder=str(tmp_path), port=port
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/", 120)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)
    finally:
        process.kill()


def test_threads_of_loads_are_daemons(handlers: Handlers) -> None:
    loads = [thread for thread in threading.enumerate() if thread.name.startswith("load ")]
    assert loads
    assert all(thread.daemon for thread in loads)


@pytest.mark.parametrize(
    ("is_bitwise", "words"),
    [(True, "lossless is bitwise"), (False, "lossless is exact up to near ties")],
)
def test_the_footer_says_how_exact_lossless_is(
    handlers: Handlers, is_bitwise: bool, words: str
) -> None:
    served = handlers.engines.get("tiny")
    assert served is not None
    served.checkpoint.model.is_bitwise = is_bitwise  # type: ignore[misc]
    assert words in footer(served)
