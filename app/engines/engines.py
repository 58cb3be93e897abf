"""Fetches and loads checkpoints in the background and keeps an engine for each, as long as memory
lasts: one that would not fit is loaded once an idle one was freed.

Torch is imported by a loading thread, so the page is up before the first checkpoint is. Knows no
gradio and no visitor.
"""

from __future__ import annotations

import gc
import json
import logging
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from app.engines.limits import Limits, RefusalError
from app.settings import AppSettings, AppSettingsError
from mars_runtime.engine.backend import where
from mars_runtime.engine.base import BaseEngine
from mars_runtime.engine.engine import DEAD, Engine
from mars_runtime.engine.header import Facts
from mars_runtime.machine import free_memory, return_freed_memory
from mars_runtime.model import fetch
from mars_runtime.model.config import CheckpointError, MemoryShortError, memory_for
from mars_runtime.model.files import files_of, weight_files
from mars_runtime.model.registry import REGISTRY, Entry, registry, unlisted_entry
from mars_runtime.serving.metrics import Metrics
from mars_runtime.serving.models import ModelDescription

if TYPE_CHECKING:
    import torch

    from mars_runtime.model.load import Checkpoint

ALL = "all"
MAX_REPLACED = 3  # engines that died or hang; what a hung one holds is not given back
KEEPS_DYING = "The engine keeps stopping: whoever runs this page has to start it again."
IDLE_SECONDS = 5.0  # since it was asked for last: who asked may be about to run something
PATIENCE = 120.0  # seconds that a checkpoint waits for others that are at work
LOOK_SECONDS = 0.2
WAITING = "{} waits for memory: other checkpoints are at work…"
LOADING = "load "  # how the names of its threads begin
MEGABYTE = 1_000_000
HUB_SECONDS = 2.0  # that the hub is waited for before the page is drawn without it
FOLDERS = re.compile(r"(?<![\w.:/])/(?:[^\s/]+/)+")
"""Folders in front of a name: visitors read the name, the log has the whole path."""
FAULT = "The checkpoint failed to load inside the app."
SPARE = 1.3  # times its weights: what decoding needs, and everybody else on the machine
BYTES = {"fp32": 4.0, "float32": 4.0, "bf16": 2.0, "bfloat16": 2.0, "int8": 1.25, "int4": 1.25}
GGUF_BYTES = 0.6  # of a weight in a file of four bits each
MAX_HEAD = 100_000_000
GIGABYTE = 1e9
Tell = Callable[[str], None]
log = logging.getLogger(__name__)


class UnavailableError(RuntimeError):
    """A checkpoint cannot be served; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Served:
    """A checkpoint and its engine; where that is another machine's, what is known of it here."""

    entry: Entry
    checkpoint: Checkpoint | ModelDescription
    engine: BaseEngine

    @property
    def about(self) -> Checkpoint | Facts:
        """For the head of a trace: what it runs on."""
        return (
            self.checkpoint.facts
            if isinstance(self.checkpoint, ModelDescription)
            else self.checkpoint
        )

    @property
    def is_elsewhere(self) -> bool:
        """Whether another machine decodes."""
        return isinstance(self.checkpoint, ModelDescription)

    @property
    def advice(self) -> str:
        """One sentence on a missing compiler that slows it down; empty if none is missing."""
        if isinstance(self.checkpoint, ModelDescription) or self.is_bitwise:
            return ""
        from mars_runtime.model.native.library import CompileError, find_compiler

        if self.checkpoint.model.device.type != "cpu":
            return ""
        try:
            find_compiler()
        except CompileError as error:
            return str(error)
        return ""

    @property
    def is_bitwise(self) -> bool:
        """Whether what a token gives depends on nothing else in a forward."""
        if isinstance(self.checkpoint, ModelDescription):
            return self.checkpoint.facts.is_bitwise
        return self.checkpoint.model.is_bitwise


class Load:
    """Begins at once, in a thread of its own, which keeps nobody from leaving: a network may hang.

    bring: fetches and loads, and tells its argument what it is doing.
    situation: what goes on, as a sentence; the last one once it is over.
    """

    def __init__(self, name: str, bring: Callable[[Tell], Served]) -> None:
        self.situation = f"Loading {name}…"
        self._bring = bring
        self._future: Future[Served] = Future()
        threading.Thread(target=self._run, name=LOADING + name, daemon=True).start()

    @property
    def served(self) -> Served | None:
        """What was loaded, None as long as nothing is."""
        is_loaded = self._future.done() and self._future.exception() is None
        return self._future.result() if is_loaded else None

    @property
    def is_dead(self) -> bool:
        """Whether it was loaded, and its engine serves nobody any more."""
        return self.served is not None and not self.served.engine.is_alive

    @property
    def failure(self) -> str:
        """Why it ended with nothing loaded, as a sentence; empty where it did not."""
        error = self._future.exception() if self._future.done() else None
        if error is None:
            return ""
        return FOLDERS.sub("", str(error)) if isinstance(error, CheckpointError) else FAULT

    @property
    def trouble(self) -> str:
        """Why it answers nobody now, as a sentence; empty where it does."""
        if self.failure or self.served is None:
            return self.failure or self.situation
        return DEAD if self.is_dead else ""

    def wait(self, timeout: float | None = None) -> Served | None:
        """What was loaded, or None if it is still on its way after ``timeout`` seconds.

        Raises UnavailableError.
        """
        try:
            return self._future.result(timeout)
        except NotYet:
            return None
        except Exception as error:
            raise UnavailableError(self.failure) from error

    def _run(self) -> None:
        try:
            self._future.set_result(self._bring(self._tell))
        except Exception as error:
            if isinstance(error, CheckpointError):
                log.error("%s", error)
            else:
                log.error("a checkpoint failed to load\n%s", where(error))
            self._future.set_exception(error)

    def _tell(self, situation: str) -> None:
        self.situation = situation


class Source(Protocol):
    """Where the files of checkpoints come from; ``mars_runtime.model.fetch`` is one."""

    def is_present(self, entry: Entry) -> bool: ...
    def fetch(
        self, entry: Entry, progress: Callable[[int, int], None], offline: bool = False
    ) -> Path: ...


class Engines:
    """Name -> engine, loaded on demand, away from the page's threads, and freed where another needs
    its memory."""

    def __init__(
        self,
        settings: AppSettings,
        entries: dict[str, Entry] | None = None,
        source: Source = fetch,
    ) -> None:
        """``entries``: those that may be chosen, the wanted one first."""
        self.settings = settings
        self.metrics = Metrics()
        listed = read_entries(settings.checkpoint, settings.offered) if entries is None else entries
        self.entries = listed
        self.wanted = next(iter(self.entries))
        self._source = source
        self._loads: dict[str, Load] = {}
        self._asked: dict[str, float] = {}  # when each was asked for or loaded last
        self._kept: Counter[str] = Counter()  # by those who are not done with it
        self._num_replaced = 0
        self._lock = threading.Lock()
        self._memory = threading.Lock()  # checkpoints are read one at a time
        self._turns = _turns(self.entries)
        self._awaited = {name for name in self._turns if self._is_absent(self.entries[name])}
        self._has_come: set[str] = set()
        self._loaded: set[str] = set()  # of those that have come, the ones not freed since
        self._provisional: set[str] = set()  # loaded while the native forward was being compiled
        self._asks_hub = entries is None and not settings.offered.strip() and not settings.offline
        self._asking: threading.Thread | None = None

    @property
    def default(self) -> str:
        """The checkpoint of visitors who chose none: the wanted one, or one that stands in for it
        as long as that is being fetched and where it cannot be had."""
        return next((name for name in self._turns if self._answers(name)), self._turns[-1])

    def _answers(self, name: str) -> bool:
        """Whether visitors may be given it, as far as is known."""
        load = self._loads.get(name)
        is_lost = load is not None and bool(load.failure)
        return not is_lost and (name not in self._awaited or name in self._has_come)

    def offered(self) -> list[str]:
        """The names that may be chosen, once the hub has answered or been waited for."""
        if self._asking is not None:
            self._asking.join(HUB_SECONDS)
        return list(self.entries)

    def entry(self, checkpoint: object) -> Entry:
        """What the registry says of a checkpoint. Raises RefusalError for one not listed."""
        found = self.entries.get(checkpoint) if isinstance(checkpoint, str) else None
        if found is None:
            raise RefusalError("checkpoint", "Choose a checkpoint from the list.")
        return found

    def entry_or_default(self, checkpoint: object) -> Entry:
        """The same; that of the default for one not listed."""
        is_listed = isinstance(checkpoint, str) and checkpoint in self.entries
        return self.entry(checkpoint if is_listed else self.default)

    def limits(self, checkpoint: object) -> Limits:
        """What may be asked of a checkpoint. Raises RefusalError for one not listed."""
        settings, entry = self.settings, self.entry(checkpoint)
        return Limits(settings.max_prompt_chars, settings.max_new_tokens, entry.block_size)

    def open(self) -> None:
        """Begin to load what the page opens with, and to fetch what it is to go on with; ask the
        hub whether it answers where that decides what is offered."""
        if self._asks_hub:
            self._asking = threading.Thread(target=self._offer_published, daemon=True)
            self._asking.start()
        opens_with = self.default
        for name in reversed(self._turns[: self._turns.index(opens_with) + 1]):
            self.begin(name)

    def _offer_published(self) -> None:
        """Offer what the hub holds and this machine can serve, if the hub answers."""
        found = {name: entry for name, entry in registry().items() if entry.is_small_enough}
        if found.keys() - self.entries.keys() and fetch.hub_answers(HUB_SECONDS):
            # In one step: others may be going through them.
            self.entries = {**self.entries, **found}

    def arrival(self) -> Load | None:
        """The wanted checkpoint on its way, where visitors get another meanwhile or instead."""
        load = self._loads.get(self.wanted)
        is_awaited = self.wanted in self._awaited
        return load if load is not None and (is_awaited or load.failure) else None

    def begin(self, name: str) -> Load:
        """What is loaded or on its way; begun anew if it failed, or its engine has died or hangs.

        Raises UnavailableError.
        """
        if name not in self.entries:
            raise UnavailableError("Choose a checkpoint from the list.")
        with self._lock:
            self._asked[name] = time.monotonic()
            found = self._loads.get(name)
            if found is not None and not found.failure and not found.is_dead:
                return found
            if found is not None and found.is_dead:
                if self._num_replaced >= MAX_REPLACED:
                    raise UnavailableError(KEEPS_DYING)
                self._num_replaced += 1
            load = self._loads[name] = Load(name, lambda tell: self._bring(name, tell))
            return load

    def get(self, name: str, timeout: float | None = None) -> Served | None:
        """The engine, or None if on its way after ``timeout`` seconds. Raises UnavailableError."""
        return self.begin(name).wait(timeout)

    @contextmanager
    def kept(self, name: str) -> Iterator[None]:
        """Meanwhile it is not freed, not even between two runs."""
        with self._lock:
            self._kept[name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._kept -= Counter([name])
                self._asked[name] = time.monotonic()

    def trouble(self, name: str) -> str:
        """Why a checkpoint answers nobody now, as a sentence; empty where it does, or would as soon
        as it is asked, having been freed for another."""
        load = self._loads.get(name)
        if load is None and name in self._has_come:
            return ""
        return f"{name} is not loaded." if load is None else load.trouble

    def before_serving(self) -> None:
        """Do what has to be done once, right before the page is served."""

    def close(self) -> None:
        """End every engine and what it runs; what is on its way is left alone."""
        self.metrics.close()
        for load in list(self._loads.values()):
            if load.served is not None:
                load.served.engine.close()

    def _is_absent(self, entry: Entry) -> bool:
        is_fetched = entry.gguf is not None or entry.hub is not None
        return is_fetched and not self._source.is_present(entry)

    def _bring(self, name: str, tell: Tell) -> Served:
        """Fetch where that is needed, then load. Raises CheckpointError."""
        entry = self.entries[name]
        if self._is_absent(entry):
            tell(fetching(name, 0, 0))
            self._source.fetch(
                entry, lambda *sizes: tell(fetching(name, *sizes)), offline=self.settings.offline
            )
            tell(f"Loading {name}…")
        with self._memory:
            served = self._load_when_it_fits(name, tell)
            # Before the next is read, which may have to wait for this one.
            self._has_come.add(name)
            self._loaded.add(name)
        if served.engine.max_running:
            self.metrics.watch(name, served.engine)
        self._asked[name] = time.monotonic()
        return served

    def _load_when_it_fits(self, name: str, tell: Tell) -> Served:
        """Load; where memory is short, free what was not used for longest, or wait until something
        is idle. Raises CheckpointError."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return self._load(name, tell)
            except MemoryShortError:
                if self._free_one():
                    tell(f"Loading {name}…")
                    continue
                if not self._loaded - {name} or time.monotonic() > until:
                    raise
                tell(WAITING.format(name))
                time.sleep(LOOK_SECONDS)

    def _free_one(self) -> bool:
        """Give back the memory of the idle checkpoint that was asked for longest ago; whoever comes
        back to it has it loaded again. False where none is idle."""
        with self._lock:
            now = time.monotonic()
            idle = [
                name
                for name, load in self._loads.items()
                if _is_idle(load)
                and not self._kept[name]
                and now - self._asked[name] > IDLE_SECONDS
            ]
            if not idle:
                return False
            name = min(idle, key=self._asked.__getitem__)
            freed = self._loads.pop(name)
            self._loaded.discard(name)
        self.metrics.forget(name)
        self._close(freed)
        del freed
        _collect()
        log.info("%s was freed for another checkpoint", name)
        return True

    def _close(self, load: Load) -> None:
        """Close the engine of a checkpoint that is loaded and idle."""
        assert load.served is not None, "what is idle is loaded"
        load.served.engine.close()

    def _use_native(self) -> None:
        """Load again what was loaded while the native forward was being compiled."""
        with self._memory:
            names, self._provisional = sorted(self._provisional), set()
        for name in names:
            old = self._loads.get(name)
            if old is not None:
                self._replace(name, old)
                del old
                _collect()

    def _replace(self, name: str, old: Load) -> None:
        """Load a checkpoint a second time, give that to new runs, and close the first when its runs
        have ended. If the second load fails, the first stays."""
        new = Load(name, lambda tell: self._bring(name, tell))
        try:
            old.wait()
            new.wait()
        except UnavailableError:
            return
        with self._lock:
            self._loads[name] = new
        log.info("%s is computed by the native forward from now on", name)
        time.sleep(IDLE_SECONDS)  # a visitor may have got the first and be about to run something
        while not old.is_dead and (self._kept[name] or not _is_idle(old)):
            time.sleep(LOOK_SECONDS)
        if not old.is_dead:
            self._close(old)

    def _load(self, name: str, tell: Tell) -> Served:
        from mars_runtime.model.build import compile_in_background
        from mars_runtime.model.load import choose_device, load_checkpoint

        settings = self.settings
        if choose_device(settings.device).type == "cpu" and compile_in_background(self._use_native):
            self._provisional.add(name)
        dtype = settings.dtype if settings.dtype != "auto" else self.entries[name].dtype or "auto"
        files = fetch.resolve_checkpoint(name, offline=settings.offline)
        check_memory(name, files.path, settings.device, dtype)
        with memory_for(name):
            checkpoint = load_checkpoint(
                files, device=settings.device, dtype=settings.dtype, tell=tell
            )
            engine = Engine(
                checkpoint, max_runs=settings.max_runs, max_waiting=settings.max_waiting
            )
        return Served(self.entries[name], checkpoint, engine)


def _turns(entries: Mapping[str, Entry]) -> list[str]:
    """What visitors are given, in this order as each can be had: the wanted one, the chat model
    where that is one of the hub, a bundled one."""
    wanted, *others = entries.values()
    chat = [one.name for one in others if one.gguf is not None and wanted.hub is not None]
    bundled = [one.name for one in others if one.path is not None]
    return [wanted.name, *chat[:1], *bundled[:1]]


def read_entries(chosen: str, offered: str = "") -> dict[str, Entry]:
    """What visitors may have loaded, by name: the chosen one first (a folder or a repository of the
    hub outside the registry gets an entry of its own), then ``offered`` (``AppSettings``). Raises
    AppSettingsError."""
    known = registry()
    first = known.pop(chosen, None) or unlisted_entry(chosen)
    names = {name.strip() for name in offered.split(",")} - {"", ALL, chosen}
    if unknown := names - known.keys():
        raise AppSettingsError(
            f"There is no checkpoint {min(unknown)} to offer: choose among {', '.join(known)}."
        )
    if offered.strip() == ALL:
        names = set(known)
    elif not offered.strip():
        names = {name for name, entry in known.items() if entry.hub is None}
    entries = {first.name: first, **{name: known[name] for name in known if name in names}}
    for entry in entries.values():
        if entry.hub is not None and entry.revision is None:
            log.warning(
                "%s is whatever the branch main of %s holds: pin its revision in %s.",
                *(entry.name, entry.hub, REGISTRY.name),
            )
    return entries


def _collect() -> None:
    """Return the memory of closed engines to the system."""
    gc.unfreeze()  # what an engine froze when it was ready, its own model among it
    gc.collect()
    gc.freeze()
    return_freed_memory()


def _is_idle(load: Load) -> bool:
    """Whether it is loaded and nobody's run goes or waits there."""
    if load.served is None:
        return False
    engine = load.served.engine
    return not engine.num_running and not engine.num_waiting


def fetching(name: str, num_bytes: int, num_in_all: int) -> str:
    """How far a fetch has come, such as: Fetching mars-smollm2, 94 MB: 43 %."""
    if num_in_all <= 0:
        return f"Fetching {name}…"
    percent = min(100, 100 * num_bytes // num_in_all)
    return f"Fetching {name}, {num_in_all / MEGABYTE:.0f} MB: {percent} %"


def check_memory(name: str, path: Path, device: str, dtype: str) -> None:
    """Raises MemoryShortError where the checkpoint in ``path``, a folder or a GGUF file, does not
    fit on the device; where neither can be told, nothing is refused."""
    from mars_runtime.model.build import has_native
    from mars_runtime.model.load import choose_device

    where = choose_device(device)
    free = _free_on_gpu(where) if where.type == "cuda" else free_memory()
    default = "bf16" if where.type == "cuda" else "int8" if has_native() else "fp32"
    needed = SPARE * num_weights(path) * BYTES.get(dtype, BYTES[default])
    if free is not None and needed > free:
        raise MemoryShortError(
            f"{name} needs some {needed / GIGABYTE:.1f} GB of memory and "
            f"{free / GIGABYTE:.1f} GB are free: choose a smaller one."
        )


def num_weights(path: Path) -> int:
    """Return how many weights a checkpoint has, 0 for a damaged file: loading rejects that later.

    Raises CheckpointError where compressed weights cannot be decompressed.
    """
    if path.is_file():
        parts = [part for part in files_of(path) if part.is_file()]
        return round(sum(part.stat().st_size for part in parts) / GGUF_BYTES)
    return sum(map(_in_safetensors, weight_files(path)))


def _in_safetensors(path: Path) -> int:
    """From the head of a file: eight bytes that hold its length, then JSON."""
    try:
        with path.open("rb") as file:
            head = json.loads(file.read(min(MAX_HEAD, int.from_bytes(file.read(8), "little"))))
        return sum(math.prod(each["shape"]) for name, each in head.items() if name[0] != "_")
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return 0


def _free_on_gpu(device: torch.device) -> int:
    import torch

    return int(torch.cuda.mem_get_info(device)[0])
