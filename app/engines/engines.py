"""Load checkpoints in the background, with one engine for each. If the memory is too small for
another checkpoint, an idle one is unloaded first.

The loading threads import torch, so that the page can be served before the first checkpoint is
loaded.
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
from mars_runtime.machine import free_memory, return_freed_memory
from mars_runtime.model import fetch
from mars_runtime.model.config import CheckpointError, MemoryShortError, memory_for
from mars_runtime.model.files import files_of
from mars_runtime.model.registry import REGISTRY, Entry, registry, unlisted_entry
from mars_runtime.serving.metrics import Metrics

if TYPE_CHECKING:
    import torch

    from mars_runtime.model.load import Checkpoint

ALL = "all"
MAX_REPLACED = 3  # maximum number of replaced engines; a hung engine keeps its memory
UNLISTED = "Choose a model from the list."
KEEPS_DYING = (
    "This model keeps failing. Choose another one, or ask the operator to restart the server."
)
# A requested checkpoint stays loaded for at least this time, because the visitor who requested it
# may be about to start a run.
IDLE_SECONDS = 5.0
PATIENCE = 120.0  # maximum seconds that loading waits for other checkpoints to become idle
CHECK_SECONDS = 0.2
WAITING = "{} is waiting for memory until runs with other models end…"
LOADING = "load "  # prefix of the names of loading threads
MEGABYTE = 1_000_000
HUB_SECONDS = 2.0  # maximum time to wait for the Hub before rendering the page without it
FOLDERS = re.compile(r"(?<![\w.:/])/(?:[^\s/]+/)+")
"""Matches the folders in front of a file name. Visitors see only the file name; the log has the
whole path.
"""
FAULT = "The model could not be loaded because of an error in the app. Choose another one."
# Required memory divided by the size of the weights; decoding and other processes need memory too.
SPARE = 1.3
BYTES = {"fp32": 4.0, "float32": 4.0, "bf16": 2.0, "bfloat16": 2.0, "int8": 1.25, "int4": 1.25}
GGUF_BYTES = 0.6  # bytes per weight in a file with four bits per weight
MAX_HEAD = 100_000_000
GIGABYTE = 1e9
Tell = Callable[[str], None]
log = logging.getLogger(__name__)


class UnavailableError(RuntimeError):
    """A checkpoint cannot be served. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Served:
    """A loaded checkpoint and its engine."""

    entry: Entry
    checkpoint: Checkpoint
    engine: BaseEngine

    @property
    def advice(self) -> str:
        """Return a warning if a missing compiler makes this checkpoint slow, otherwise ""."""
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
        """Whether the result for a token is bitwise independent of the other positions in its
        forward pass.
        """
        return self.checkpoint.model.is_bitwise


class Load:
    """Starts at once to load one checkpoint, in a daemon thread. A hanging network therefore cannot
    block the exit of the process.

    bring: downloads and loads the checkpoint; calls its argument with progress messages.
    situation: the latest progress message.
    """

    def __init__(self, name: str, bring: Callable[[Tell], Served]) -> None:
        self.situation = f"Loading {name}…"
        self._bring = bring
        self._future: Future[Served] = Future()
        threading.Thread(target=self._run, name=LOADING + name, daemon=True).start()

    @property
    def served(self) -> Served | None:
        is_loaded = self._future.done() and self._future.exception() is None
        return self._future.result() if is_loaded else None

    @property
    def is_dead(self) -> bool:
        """Whether the checkpoint was loaded and its engine has failed since."""
        return self.served is not None and not self.served.engine.is_alive

    @property
    def failure(self) -> str:
        """Return why loading failed, in one sentence; empty if it has not failed."""
        error = self._future.exception() if self._future.done() else None
        if error is None:
            return ""
        return FOLDERS.sub("", str(error)) if isinstance(error, CheckpointError) else FAULT

    @property
    def trouble(self) -> str:
        """Return why the checkpoint cannot decode now, in one sentence; empty if it can."""
        if self.failure or self.served is None:
            return self.failure or self.situation
        return DEAD if self.is_dead else ""

    def wait(self, timeout: float | None = None) -> Served | None:
        """Return the loaded checkpoint, or None if loading takes longer than ``timeout`` seconds.

        Raises UnavailableError if loading failed.
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
    """Finds or downloads the files of a checkpoint. The module ``mars_runtime.model.fetch``
    implements it.
    """

    def is_present(self, entry: Entry) -> bool: ...
    def fetch(
        self, entry: Entry, progress: Callable[[int, int], None], offline: bool = False
    ) -> Path: ...


class Engines:
    """Loads engines on demand, by checkpoint name, and unloads idle ones when another engine needs
    the memory.
    """

    def __init__(
        self,
        settings: AppSettings,
        entries: dict[str, Entry] | None = None,
        source: Source = fetch,
    ) -> None:
        """Create the engines without loading them. entries: the checkpoints that visitors may
        choose, with the default first.
        """
        self.settings = settings
        self.metrics = Metrics()
        listed = read_entries(settings.checkpoint, settings.offered) if entries is None else entries
        self.entries = listed
        self.wanted = next(iter(self.entries))
        self._source = source
        self._loads: dict[str, Load] = {}
        self._requested: dict[str, float] = {}  # when each checkpoint was last requested or loaded
        # For each checkpoint, the number of active ``with self.kept(name)`` blocks.
        self._kept: Counter[str] = Counter()
        self._num_replaced = 0
        self._lock = threading.Lock()
        self._memory = threading.Lock()  # checkpoints are loaded one at a time
        self._candidates = _candidates(self.entries)
        self._downloading = {
            name for name in self._candidates if self._is_absent(self.entries[name])
        }
        self._was_loaded: set[str] = set()
        self._loaded: set[str] = set()  # checkpoints that are in memory
        self._provisional: set[str] = set()  # loaded before the native library was ready
        self._asks_hub = entries is None and not settings.offered.strip() and not settings.offline
        self._asking: threading.Thread | None = None

    @property
    def default(self) -> str:
        """The checkpoint for visitors who have not chosen one: the configured default, or a
        substitute while the configured default is being downloaded or if it is unavailable.
        """
        return next(
            (name for name in self._candidates if self._is_usable(name)), self._candidates[-1]
        )

    def _is_usable(self, name: str) -> bool:
        """Whether a visitor can get this checkpoint: loading has not failed, and it is not being
        downloaded.
        """
        load = self._loads.get(name)
        is_lost = load is not None and bool(load.failure)
        return not is_lost and (name not in self._downloading or name in self._was_loaded)

    def offered(self) -> list[str]:
        """Return the names of the checkpoints that visitors may choose. Waits at most HUB_SECONDS
        for the Hub to respond.
        """
        if self._asking is not None:
            self._asking.join(HUB_SECONDS)
        return list(self.entries)

    def entry(self, checkpoint: object) -> Entry:
        """Return the registry entry of a checkpoint. Raises RefusalError if the checkpoint is not
        listed.
        """
        entry = self.entries.get(checkpoint) if isinstance(checkpoint, str) else None
        if entry is None:
            raise RefusalError("checkpoint", UNLISTED)
        return entry

    def entry_or_default(self, checkpoint: object) -> Entry:
        is_listed = isinstance(checkpoint, str) and checkpoint in self.entries
        return self.entry(checkpoint if is_listed else self.default)

    def limits(self, checkpoint: object) -> Limits:
        """Return the limits of requests to a checkpoint. Raises RefusalError if it is not
        listed.
        """
        settings, entry = self.settings, self.entry(checkpoint)
        return Limits(settings.max_prompt_chars, settings.max_new_tokens, entry.block_size)

    def open(self) -> None:
        """Start loading the checkpoint that visitors get first, and start downloading the
        candidates that are preferred to it. If the Hub may offer more checkpoints, check in a
        thread whether it responds.
        """
        if self._asks_hub:
            self._asking = threading.Thread(target=self._offer_published, daemon=True)
            self._asking.start()
        opens_with = self.default
        for name in reversed(self._candidates[: self._candidates.index(opens_with) + 1]):
            self.begin(name)

    def _offer_published(self) -> None:
        """If the Hub responds, add its small checkpoints to those that visitors may choose."""
        small = {name: entry for name, entry in registry().items() if entry.is_small_enough}
        if small.keys() - self.entries.keys() and fetch.hub_answers(HUB_SECONDS):
            # Replace the dictionary instead of changing it: other threads may iterate over it.
            self.entries = {**self.entries, **small}

    def arrival(self) -> Load | None:
        """Return the ``Load`` of the configured default checkpoint while visitors get a substitute,
        otherwise None.
        """
        load = self._loads.get(self.wanted)
        was_absent = self.wanted in self._downloading
        return load if load is not None and (was_absent or load.failure) else None

    def begin(self, name: str) -> Load:
        """Return the load of a checkpoint, after starting it if necessary. A failed load is
        repeated, and a failed engine is replaced.

        Raises UnavailableError if the checkpoint is not listed or keeps failing.
        """
        if name not in self.entries:
            raise UnavailableError(UNLISTED)
        with self._lock:
            self._requested[name] = time.monotonic()
            current = self._loads.get(name)
            if current is not None and not current.failure and not current.is_dead:
                return current
            if current is not None and current.is_dead:
                if self._num_replaced >= MAX_REPLACED:
                    raise UnavailableError(KEEPS_DYING)
                self._num_replaced += 1
            load = self._loads[name] = Load(name, lambda tell: self._bring(name, tell))
            return load

    def get(self, name: str, timeout: float | None = None) -> Served | None:
        """Return a loaded checkpoint, or None if loading takes longer than ``timeout`` seconds.
        Raises UnavailableError.
        """
        return self.begin(name).wait(timeout)

    @contextmanager
    def kept(self, name: str) -> Iterator[None]:
        """Prevent a checkpoint from being unloaded inside the ``with`` block."""
        with self._lock:
            self._kept[name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._kept -= Counter([name])
                self._requested[name] = time.monotonic()

    def trouble(self, name: str) -> str:
        """Return why a checkpoint cannot decode now, in one sentence. Empty if it can, or if it was
        unloaded and loads again on request.
        """
        load = self._loads.get(name)
        if load is None and name in self._was_loaded:
            return ""
        return f"{name} is not loaded." if load is None else load.trouble

    def before_serving(self) -> None:
        """Hook that is called once, just before the page is served. Subclasses may override it."""

    def close(self) -> None:
        """Close all engines and their runs. Does not wait for checkpoints that are still
        loading.
        """
        self.metrics.close()
        for load in list(self._loads.values()):
            if load.served is not None:
                load.served.engine.close()

    def _is_absent(self, entry: Entry) -> bool:
        is_fetched = entry.gguf is not None or entry.hub is not None
        return is_fetched and not self._source.is_present(entry)

    def _bring(self, name: str, tell: Tell) -> Served:
        """Download the checkpoint if necessary, then load it. Raises CheckpointError."""
        entry = self.entries[name]
        if self._is_absent(entry):
            tell(fetching(name, 0, 0))
            self._source.fetch(
                entry, lambda *sizes: tell(fetching(name, *sizes)), offline=self.settings.offline
            )
            tell(f"Loading {name}…")
        with self._memory:
            served = self._load_when_it_fits(name, tell)
            # Do this while holding the lock, so that the next load can unload this checkpoint.
            self._was_loaded.add(name)
            self._loaded.add(name)
        if served.engine.max_running:
            self.metrics.watch(name, served.engine)
        self._requested[name] = time.monotonic()
        return served

    def _load_when_it_fits(self, name: str, tell: Tell) -> Served:
        """Load a checkpoint. If memory is short, unload the least recently used idle checkpoint, or
        wait until one is idle. Raises CheckpointError.
        """
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
                time.sleep(CHECK_SECONDS)

    def _free_one(self) -> bool:
        """Unload the least recently requested idle checkpoint; it is loaded again on request.
        Return False if no checkpoint is idle.
        """
        with self._lock:
            now = time.monotonic()
            idle = [
                name
                for name, load in self._loads.items()
                if _is_idle(load)
                and not self._kept[name]
                and now - self._requested[name] > IDLE_SECONDS
            ]
            if not idle:
                return False
            name = min(idle, key=self._requested.__getitem__)
            freed = self._loads.pop(name)
            self._loaded.discard(name)
        self.metrics.forget(name)
        self._close(freed)
        del freed
        _collect()
        log.info("unloaded %s to free memory for another checkpoint", name)
        return True

    def _close(self, load: Load) -> None:
        assert load.served is not None, "an idle checkpoint has an engine"
        load.served.engine.close()

    def _use_native(self) -> None:
        """Reload the checkpoints that were loaded before the native library was compiled."""
        with self._memory:
            names, self._provisional = sorted(self._provisional), set()
        for name in names:
            old = self._loads.get(name)
            if old is not None:
                self._replace(name, old)
                del old
                _collect()

    def _replace(self, name: str, old: Load) -> None:
        """Load a checkpoint a second time for new runs, and close the first engine when its runs
        have ended. If the second load fails, the first engine stays.
        """
        new = Load(name, lambda tell: self._bring(name, tell))
        try:
            old.wait()
            new.wait()
        except UnavailableError:
            return
        with self._lock:
            self._loads[name] = new
        log.info("%s now uses the native forward pass", name)
        # A visitor may be about to start a run on the first engine.
        time.sleep(IDLE_SECONDS)
        while not old.is_dead and (self._kept[name] or not _is_idle(old)):
            time.sleep(CHECK_SECONDS)
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


def _candidates(entries: Mapping[str, Entry]) -> list[str]:
    """Return the names of the candidates for the default checkpoint in order of preference: the
    configured default, a chat model if the configured default is on the Hub, and a bundled
    checkpoint.
    """
    wanted, *others = entries.values()
    chat = [entry.name for entry in others if entry.gguf is not None and wanted.hub is not None]
    bundled = [entry.name for entry in others if entry.path is not None]
    return [wanted.name, *chat[:1], *bundled[:1]]


def read_entries(chosen: str, offered: str = "") -> dict[str, Entry]:
    """Return the entries of the checkpoints that visitors may load, by name: ``chosen`` first, then
    ``offered`` (``AppSettings``). A folder or a Hub repository that is not in the registry gets a
    new entry. Raises AppSettingsError.
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
    elif not offered.strip():
        names = {name for name, entry in known.items() if entry.hub is None}
    entries = {first.name: first, **{name: known[name] for name in known if name in names}}
    for entry in entries.values():
        if entry.hub is not None and entry.revision is None:
            log.warning(
                "%s follows the branch main of %s; pin its revision in %s",
                *(entry.name, entry.hub, REGISTRY.name),
            )
    return entries


def _collect() -> None:
    """Return the memory of closed engines to the operating system."""
    gc.unfreeze()  # undo the ``gc.freeze`` with which engines exclude their models
    gc.collect()
    gc.freeze()
    return_freed_memory()


def _is_idle(load: Load) -> bool:
    """Whether the checkpoint is loaded and has no running or waiting runs."""
    if load.served is None:
        return False
    engine = load.served.engine
    return not engine.num_running and not engine.num_waiting


def fetching(name: str, num_bytes: int, num_in_all: int) -> str:
    """Return the progress of a download, such as "Downloading mars-smollm2, 94 MB: 43 %"."""
    if num_in_all <= 0:
        return f"Downloading {name}…"
    percent = min(100, 100 * num_bytes // num_in_all)
    return f"Downloading {name}, {num_in_all / MEGABYTE:.0f} MB: {percent} %"


def check_memory(name: str, path: Path, device: str, dtype: str) -> None:
    """Raise MemoryShortError if the checkpoint at ``path``, a folder or a GGUF file, does not fit
    into the free memory of the device. Does nothing if the free memory is unknown.
    """
    from mars_runtime.model.build import has_native
    from mars_runtime.model.load import choose_device

    where = choose_device(device)
    free = _free_on_gpu(where) if where.type == "cuda" else free_memory()
    default = "bf16" if where.type == "cuda" else "int8" if has_native() else "fp32"
    needed = SPARE * num_weights(path) * BYTES.get(dtype, BYTES[default])
    if free is not None and needed > free:
        raise MemoryShortError(
            f"{name} needs about {needed / GIGABYTE:.1f} GB of memory, but only "
            f"{free / GIGABYTE:.1f} GB are free. Choose a smaller model."
        )


def num_weights(path: Path) -> int:
    """Return the number of weights of a checkpoint, or 0 for a damaged file, which loading will
    reject.

    Raises CheckpointError if there are no weights or they cannot be decompressed.
    """
    from mars_runtime.model.load import chosen_weights

    if path.is_file():
        parts = [part for part in files_of(path) if part.is_file()]
        return round(sum(part.stat().st_size for part in parts) / GGUF_BYTES)
    return sum(map(_in_safetensors, chosen_weights(path)))


def _in_safetensors(path: Path) -> int:
    """Return the number of weights in a safetensors file. The file starts with the length of its
    JSON header in eight bytes, then the header.
    """
    try:
        with path.open("rb") as file:
            head = json.loads(file.read(min(MAX_HEAD, int.from_bytes(file.read(8), "little"))))
        return sum(math.prod(tensor["shape"]) for name, tensor in head.items() if name[0] != "_")
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return 0


def _free_on_gpu(device: torch.device) -> int:
    import torch

    return int(torch.cuda.mem_get_info(device)[0])
