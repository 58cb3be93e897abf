"""Load checkpoints in the background, with one engine for each. If the memory is too small for
another checkpoint, an idle one is unloaded first. Only the loading threads import torch.
"""

from __future__ import annotations

import gc
import json
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.engines.limits import Limits, RefusalError
from app.settings import AppSettings, AppSettingsError
from mars_runtime.engine.backend import where
from mars_runtime.engine.engine import DEAD, BaseEngine, Engine
from mars_runtime.model.config import CheckpointError, MemoryShortError, memory_for
from mars_runtime.model.fetch import Progress, download, is_offline
from mars_runtime.model.files import chosen_weights
from mars_runtime.model.registry import REGISTRY, Entry, registry, unlisted_entry
from mars_runtime.model.source import Source, resolve
from mars_runtime.serving.metrics import Metrics
from mars_runtime.system.machine import free_memory, return_freed_memory

if TYPE_CHECKING:
    import torch

    from mars_runtime.model.load import Checkpoint

ALL = "all"
MAX_REPLACED = 3  # maximum number of replaced engines; a hung engine keeps its memory
UNLISTED = "Choose a model from the list."
KEEPS_DYING = (
    "This model keeps failing. Choose another one, or ask the operator to restart the server."
)
IDLE_SECONDS = 5.0  # that a requested checkpoint stays loaded, since a run may be about to start
MAX_WAIT_SECONDS = 120.0  # maximum seconds that loading waits for other checkpoints to become idle
CHECK_SECONDS = 0.2
WAITING = "{} is waiting for memory until runs with other models end…"
LOADING = "load "  # prefix of the names of loading threads
FOLDERS = re.compile(r"(?<![\w.:/])/(?:[^\s/]+/)+")  # in front of a file name, not for visitors
FAULT = "The model could not be loaded because of an error in the app. Choose another one."
# Required memory divided by the size of the weights; decoding and other processes need memory too.
MEMORY_FACTOR = 1.3
BYTES = {"fp32": 4.0, "float32": 4.0, "bf16": 2.0, "bfloat16": 2.0, "int8": 1.25, "int4": 1.25}
GGUF_BYTES = 0.6  # bytes per weight in a file with four bits per weight
MAX_HEAD = 100_000_000
GIGABYTE = 1e9
log = logging.getLogger(__name__)


class UnavailableError(RuntimeError):
    """A checkpoint cannot be served. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    entry: Entry
    checkpoint: Checkpoint
    engine: BaseEngine

    @property
    def advice(self) -> str:
        """A warning if a missing compiler makes this checkpoint slow, otherwise ""."""
        if self.is_bitwise:
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
        return self.checkpoint.model.is_bitwise


class State(Enum):
    """The state of a checkpoint. A checkpoint that was unloaded is known."""

    KNOWN = "known"
    DOWNLOADING = "downloading"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


class CheckpointLoad:
    """One attempt to load a checkpoint, which starts at once. Its daemon thread cannot block the
    exit of the process. bring: downloads and loads, and calls ``finish``.
    """

    def __init__(
        self, name: str, bring: Callable[[CheckpointLoad], None], has_thread: bool = True
    ) -> None:
        self.situation = f"Loading {name}…"
        self.is_downloading = False
        self._bring = bring
        self._future: Future[LoadedModel] = Future()
        if has_thread:
            threading.Thread(target=self._run, name=LOADING + name, daemon=True).start()
        else:
            self._run()

    @property
    def state(self) -> State:
        if self._future.done():
            return State.FAILED if self._future.exception() else State.READY
        return State.DOWNLOADING if self.is_downloading else State.LOADING

    @property
    def served(self) -> LoadedModel | None:
        return self._future.result() if self.state is State.READY else None

    @property
    def is_dead(self) -> bool:
        return self.served is not None and not self.served.engine.is_alive

    @property
    def failure(self) -> str:
        if self.state is not State.FAILED:
            return ""
        error = self._future.exception()
        return FOLDERS.sub("", str(error)) if isinstance(error, CheckpointError) else FAULT

    @property
    def trouble(self) -> str:
        if self.served is None:
            return self.failure or self.situation
        return DEAD if self.is_dead else ""

    def wait(self, timeout: float | None = None) -> LoadedModel | None:
        """Return None after ``timeout`` seconds. Raises UnavailableError if loading failed."""
        try:
            return self._future.result(timeout)
        except NotYet:
            return None
        except Exception as error:
            raise UnavailableError(self.failure) from error

    def say(self, situation: str) -> None:
        self.situation = situation

    def finish(self, served: LoadedModel) -> None:
        self._future.set_result(served)

    def _run(self) -> None:
        try:
            self._bring(self)
        except Exception as error:
            if isinstance(error, CheckpointError):
                log.error("%s", error)
            else:
                log.error("a checkpoint failed to load\n%s", where(error))
            self._future.set_exception(error)


@dataclass(slots=True)
class CheckpointRecord:
    """load: the latest attempt; None if there is none or it was unloaded. requested: when it was
    last requested or loaded. num_users: of active ``kept`` blocks. was_absent: whether its files
    were missing when the app started, for a candidate, or the native library was.
    """

    entry: Entry
    load: CheckpointLoad | None = None
    requested: float = 0.0
    num_users: int = 0
    was_absent: bool = False
    was_loaded: bool = False

    @property
    def state(self) -> State:
        return State.KNOWN if self.load is None else self.load.state

    @property
    def is_usable(self) -> bool:
        """Whether loading has not failed, and it is not downloaded now."""
        return self.state is not State.FAILED and (not self.was_absent or self.was_loaded)

    @property
    def can_be_unloaded(self) -> bool:
        is_old = time.monotonic() - self.requested > IDLE_SECONDS
        return is_old and self.load is not None and not self.num_users and _is_idle(self.load)


class Engines:
    def __init__(self, settings: AppSettings, entries: dict[str, Entry] | None = None) -> None:
        """entries: the checkpoints that visitors may choose, with the default first."""
        self.settings = settings
        self.metrics = Metrics()
        if entries is None:
            entries = read_entries(settings.checkpoint, settings.offered, settings.offline)
        self._records = {name: CheckpointRecord(entry) for name, entry in entries.items()}
        self._num_replaced = 0
        self._lock = threading.Lock()
        self._memory = threading.Lock()  # checkpoints are loaded one at a time
        for record in self._candidates:
            record.was_absent = self._is_absent(record.entry)

    @property
    def entries(self) -> dict[str, Entry]:
        return {name: record.entry for name, record in self._records.items()}

    @property
    def wanted(self) -> str:
        """The configured default checkpoint."""
        return next(iter(self._records))

    @property
    def default(self) -> str:
        """The configured default, or a substitute while that is downloaded or unavailable."""
        usable = [record for record in self._candidates if record.is_usable]
        return (usable or self._candidates[-1:])[0].entry.name

    @property
    def _candidates(self) -> list[CheckpointRecord]:
        """In order of preference: the configured default, a chat model if that is on the Hub, and a
        bundled checkpoint.
        """
        wanted, *others = self._records.values()
        is_on_hub = wanted.entry.hub is not None
        chat = [record for record in others if record.entry.gguf is not None and is_on_hub]
        bundled = [record for record in others if record.entry.path is not None]
        return [wanted, *chat[:1], *bundled[:1]]

    def entry(self, checkpoint: object) -> Entry:
        """Raises RefusalError if it is not listed."""
        if not isinstance(checkpoint, str) or checkpoint not in self._records:
            raise RefusalError("checkpoint", UNLISTED)
        return self._records[checkpoint].entry

    def entry_or_default(self, checkpoint: object) -> Entry:
        is_listed = isinstance(checkpoint, str) and checkpoint in self.entries
        return self.entry(checkpoint if is_listed else self.default)

    def limits(self, checkpoint: object) -> Limits:
        """Raises RefusalError."""
        settings, entry = self.settings, self.entry(checkpoint)
        return Limits(settings.max_prompt_chars, settings.max_new_tokens, entry.block_size)

    def open(self) -> None:
        """Start loading the default, and downloading the candidates that are preferred to it."""
        candidates = [record.entry.name for record in self._candidates]
        for name in reversed(candidates[: candidates.index(self.default) + 1]):
            self.begin(name)

    def arrival(self) -> CheckpointLoad | None:
        """Return the load of the configured default while visitors get a substitute."""
        record = self._records[self.wanted]
        return record.load if record.was_absent or record.state is State.FAILED else None

    def latest(self, name: object) -> CheckpointLoad | None:
        record = self._records.get(name) if isinstance(name, str) else None
        return None if record is None else record.load

    def begin(self, name: str) -> CheckpointLoad:
        """Start to load a checkpoint if necessary. A failed load is repeated, and a failed engine
        is replaced. Raises UnavailableError if it is not listed or keeps failing.
        """
        record = self._record(name)
        with self._lock:
            record.requested = time.monotonic()
            load = record.load
            if load is not None and load.is_dead:
                if self._num_replaced >= MAX_REPLACED:
                    raise UnavailableError(KEEPS_DYING)
                self._num_replaced += 1
            elif load is not None and load.state is not State.FAILED:
                return load
            record.load = CheckpointLoad(name, partial(self._bring, record))
            return record.load

    def _record(self, name: str) -> CheckpointRecord:
        if name not in self._records:
            raise UnavailableError(UNLISTED)
        return self._records[name]

    def get(self, name: str, timeout: float | None = None) -> LoadedModel | None:
        return self.begin(name).wait(timeout)

    @contextmanager
    def kept(self, name: str) -> Iterator[None]:
        """Prevent a checkpoint from being unloaded meanwhile."""
        record = self._record(name)
        with self._lock:
            record.num_users += 1
        try:
            yield
        finally:
            with self._lock:
                record.num_users -= 1
                record.requested = time.monotonic()

    def trouble(self, name: str) -> str:
        """Return why a checkpoint cannot decode now. Empty if it can, or if it was unloaded and
        loads again on request.
        """
        record = self._records.get(name)
        if record is not None and record.load is not None:
            return record.load.trouble
        return "" if record is not None and record.was_loaded else f"{name} is not loaded."

    def before_serving(self) -> None:
        """Called just before the page is served."""

    def close(self) -> None:
        """Does not wait for checkpoints that still load."""
        for record in self._records.values():
            _close(record.load)

    def _resolve(self, entry: Entry) -> Source:
        return resolve(entry.name)

    def _download(self, source: Source, progress: Progress) -> Source:
        return download(source, progress, offline=self.settings.offline)

    def _is_absent(self, entry: Entry) -> bool:
        try:
            return bool(self._resolve(entry).missing)
        except CheckpointError:  # loading reports the error
            return False

    def _bring(self, record: CheckpointRecord, load: CheckpointLoad) -> None:
        source = self._resolve(record.entry)
        if source.missing:
            load.is_downloading = True
            source = self._download(source, load.say)
            load.is_downloading = False
            load.say(f"Loading {record.entry.name}…")
        self._compile(source, record, load)
        with self._memory:
            served = self._load_when_it_fits(record.entry, source, load.say)
            if served.engine.max_running:
                self.metrics.watch(record.entry.name, served.engine)
            record.requested, record.was_loaded = time.monotonic(), True
            # Do this while holding the lock, so that the next load can unload this checkpoint.
            load.finish(served)

    def _compile(self, source: Source, record: CheckpointRecord, load: CheckpointLoad) -> None:
        """Visitors get a substitute while the native library is compiled."""
        from mars_runtime.model.build import COMPILING, has_native, must_compile
        from mars_runtime.model.load import choose_device, chosen_dtype

        device = choose_device(self.settings.device)
        if must_compile(device, chosen_dtype(source, device, self.settings.dtype)):
            record.was_absent = True
            self.open()
            load.say(COMPILING)
            has_native()
            load.say(f"Loading {record.entry.name}…")

    def _load_when_it_fits(self, entry: Entry, source: Source, progress: Progress) -> LoadedModel:
        """If memory is short, unload an idle checkpoint, or wait until one is idle."""
        until = time.monotonic() + MAX_WAIT_SECONDS
        while True:
            try:
                return self._load(entry, source, progress)
            except MemoryShortError:
                if self._free_one():
                    progress(f"Loading {entry.name}…")
                    continue
                others = [item for item in self._records.values() if item.entry is not entry]
                is_alone = all(other.state is not State.READY for other in others)
                if is_alone or time.monotonic() > until:
                    raise
                progress(WAITING.format(entry.name))
                time.sleep(CHECK_SECONDS)

    def _free_one(self) -> bool:
        """Unload the least recently requested idle checkpoint, if there is one."""
        with self._lock:
            idle = [record for record in self._records.values() if record.can_be_unloaded]
            if not idle:
                return False
            record = min(idle, key=lambda record: record.requested)
            freed, record.load = record.load, None
        self.metrics.forget(record.entry.name)
        _close(freed)
        del freed
        _collect()
        log.info("unloaded %s to free memory for another checkpoint", record.entry.name)
        return True

    def _load(self, entry: Entry, source: Source, progress: Progress) -> LoadedModel:
        from mars_runtime.model.load import load_checkpoint

        settings = self.settings
        check_memory(source, settings.device, settings.dtype)
        with memory_for(entry.name):
            checkpoint = load_checkpoint(
                source, device=settings.device, dtype=settings.dtype, progress=progress
            )
            engine = Engine(
                checkpoint, max_runs=settings.max_runs, max_waiting=settings.max_waiting
            )
        return LoadedModel(entry, checkpoint, engine)


def read_entries(chosen: str, offered: str = "", offline: bool = False) -> dict[str, Entry]:
    """Return the entries that visitors may load: ``chosen`` first, then ``offered``
    (``AppSettings``). Raises AppSettingsError.
    """
    known = registry()
    first = known.pop(chosen, None) or unlisted_entry(chosen)
    names = {name.strip() for name in offered.split(",")} - {"", ALL, chosen}
    if unknown := names - known.keys():
        raise AppSettingsError(
            f"MARS_OFFERED names an unknown checkpoint, {min(unknown)}. "
            f"Choose from {', '.join(known)}."
        )
    if offered.strip() == ALL:
        names = set(known)
    for name in (first.name, *sorted(names)):
        entry = known.get(name, first)
        if entry.hub is not None and entry.revision is None:
            log.warning(
                "%s follows the branch main of %s; pin its revision in %s",
                *(name, entry.hub, REGISTRY.name),
            )
    if not offered.strip():
        has_hub = not offline and not is_offline()
        names = {n for n, it in known.items() if it.hub is None or (it.is_small_enough and has_hub)}
    return {first.name: first, **{name: known[name] for name in known if name in names}}


def _collect() -> None:
    """Return the memory of closed engines to the operating system."""
    gc.unfreeze()  # undo the ``gc.freeze`` with which engines exclude their models
    gc.collect()
    gc.freeze()
    return_freed_memory()


def _close(load: CheckpointLoad | None) -> None:
    if load is not None and load.served is not None:
        load.served.engine.close()


def _is_idle(load: CheckpointLoad) -> bool:
    if load.served is None:
        return False
    engine = load.served.engine
    return not engine.num_running and not engine.num_waiting


def check_memory(source: Source, device: str, dtype: str) -> None:
    """Raise MemoryShortError if a checkpoint does not fit into the free memory."""
    from mars_runtime.model.build import has_native
    from mars_runtime.model.load import choose_device, chosen_dtype

    where = choose_device(device)
    free = _free_on_gpu(where) if where.type == "cuda" else free_memory()
    dtype = chosen_dtype(source, where, dtype)
    if dtype == "auto":
        dtype = "bf16" if where.type == "cuda" else "int8" if has_native() else "fp32"
    needed = MEMORY_FACTOR * num_weights(source.path) * BYTES.get(dtype, 4.0)
    if free is not None and needed > free:
        raise MemoryShortError(
            f"{source.name} needs about {needed / GIGABYTE:.1f} GB of memory, but only "
            f"{free / GIGABYTE:.1f} GB are free. Choose a smaller model."
        )


def num_weights(path: Path) -> int:
    """Return 0 for a damaged file."""
    if path.is_file():
        return round(path.stat().st_size / GGUF_BYTES)
    return sum(map(_in_safetensors, chosen_weights(path)))


def _in_safetensors(path: Path) -> int:
    try:
        with path.open("rb") as file:
            head = json.loads(file.read(min(MAX_HEAD, int.from_bytes(file.read(8), "little"))))
        return sum(math.prod(tensor["shape"]) for name, tensor in head.items() if name[0] != "_")
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return 0


def _free_on_gpu(device: torch.device) -> int:
    import torch

    return int(torch.cuda.mem_get_info(device)[0])
