"""Sets on disk: prompts, methods, and one answer for each prompt and method.

A set is a folder, or an archive (.tar.xz) of the same files:

set.json: name, methods, index of the reference method, provenance
prompts.jsonl: one prompt per line (prompts.py)
answers/0001-0.jsonl: the trace of prompt 1 with method 0 (trace.py); .json for text without a trace
summary.jsonl: all answers without their traces, so that a set opens fast

Files are written atomically, so decoding of a set can be interrupted and continued. All files are
untrusted.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import json
import logging
import lzma
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

from mars_runtime.inputs import check_regular, read_bytes, read_text
from mars_runtime.json_values import as_list, as_mapping, as_text, is_text
from mars_runtime.machine import cache_folder
from mars_runtime.outputs import OutputError, check_folder, only_writer, write_text
from mars_runtime.review.answers import Answer, answer_of, answer_of_json, verdict
from mars_runtime.review.methods import MAX_METHODS, ReviewMethod, method_of_json
from mars_runtime.review.prompts import MAX_PROMPTS, Item, as_jsonl, read_prompts
from mars_runtime.settings import SettingsError
from mars_runtime.trace import Trace, TraceError, read_trace

VERSION = 1
MAX_NAME = 80
ABOUT, PROMPTS, SUMMARY = "set.json", "prompts.jsonl", "summary.jsonl"
MAX_PACKED, MAX_UNPACKED = 2**28, 2**30
"""Maximum size of an archive and of its unpacked content, in bytes."""
MAX_HEADER = 2**16
"""Maximum size of the headers before each file of an archive, in bytes."""
MAX_DICTIONARY = 2**27
"""Memory limit of decompression, in bytes; archives of the strongest xz preset need half of it."""
MAX_ENTRIES = MAX_PROMPTS * MAX_METHODS + 16
DIGITS = 6
"""Decimals of seconds in an archive. Further digits are noise, which compresses badly."""
NO_SET = "{} is not a set. Name a folder or an archive that `review make` or `review pack` wrote."
log = logging.getLogger(__name__)


class SetError(ValueError):
    """A set cannot be created or read; the message explains what to do."""


@dataclass(frozen=True, slots=True)
class SetDescription:
    """Name, methods and provenance of a set.

    reference: index of the method that the others are compared with. made: hardware, versions and
    fingerprints of the weights, as JSON values (``provenance.provenance``).
    """

    name: str
    methods: tuple[ReviewMethod, ...]
    reference: int
    made: Mapping[str, Any]

    @property
    def others(self) -> list[int]:
        """Return the indices of all methods except the reference."""
        return [number for number in range(len(self.methods)) if number != self.reference]

    def as_json(self) -> dict[str, Any]:
        """Return the content of set.json."""
        methods = [method.as_json() for method in self.methods]
        values = {
            "name": self.name,
            "reference": self.reference,
            "ways": methods,
            "made": self.made,
        }
        return {"version": VERSION, **values}


class ReviewSet:
    """An open set. Answers can be added only to a set in a folder, not in an archive."""

    def __init__(self, folder: Path, about: SetDescription, items: Sequence[Item]) -> None:
        self._folder = folder
        self.about = about
        self.items = tuple(items)
        self._answers: dict[tuple[int, int], Answer] = {}

    @classmethod
    def create(cls, folder: Path, about: SetDescription, items: Sequence[Item]) -> ReviewSet:
        """Create a set in a folder, or open the set that the folder contains.

        Raises SetError if that set has other prompts, methods or weights, and OutputError if the
        folder cannot be written.
        """
        check_folder(folder)
        if not all(map(is_text, (about.name, *(method.name for method in about.methods)))):
            raise SetError(
                "The name of the set or of a method contains an incomplete character (a lone "
                "surrogate). Choose another name."
            )
        if (folder / ABOUT).exists():
            existing = cls.open(folder)
            requested = (about.methods, about.reference, tuple(items))
            if (existing.about.methods, existing.about.reference, existing.items) != requested:
                raise SetError(
                    f"{folder} contains a set with other prompts or methods. Choose another folder."
                )
            if existing.weights != _weights(about.made):
                raise SetError(
                    f"The set in {folder} was decoded with other weights. Choose another folder."
                )
            return existing
        created = cls(folder, about, items)
        created._write(PROMPTS, as_jsonl(items))
        created._write(ABOUT, json.dumps(about.as_json(), ensure_ascii=False, indent=1) + "\n")
        return created

    @classmethod
    def open(cls, path: Path) -> ReviewSet:
        """Open the set in a folder or an archive.

        Raises SetError, or OutputError if the archive cannot be unpacked.
        """
        try:
            folder = path if path.is_dir() else unpacked(path)
        except OutputError:
            raise
        except UNREADABLE as error:
            raise SetError(NO_SET.format(path)) from error
        try:
            values = as_mapping(json.loads(_read(folder, ABOUT)))
            about = _about(values)
            prompts = read_prompts(_read(folder, PROMPTS), "json")
        except SettingsError as error:
            raise SetError(f"{path} contains a set with an invalid method: {error}") from error
        except UNREADABLE as error:
            raise SetError(NO_SET.format(path)) from error
        if prompts.faults:
            raise SetError(f"{path}: {prompts.faults[0]}")
        opened = cls(folder, about, prompts.items)
        opened._read_summary()
        return opened

    @cached_property
    def id(self) -> str:
        """Hash of the prompts and methods, equal on all machines."""
        about = self.about
        parts = [
            [method.as_json() for method in about.methods],
            about.reference,
            as_jsonl(self.items),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    @property
    def weights(self) -> Any:
        """Return the fingerprints of the weights of each checkpoint."""
        return _weights(self.about.made)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield the indices (item, method) of all answers, item by item."""
        return product(range(len(self.items)), range(len(self.about.methods)))

    def missing(self) -> list[tuple[int, int]]:
        """Return the indices (item, method) of the answers that are not stored."""
        return [pair for pair in self.pairs() if not self.has(*pair)]

    def has(self, item: int, method: int) -> bool:
        """Return whether the answer to prompt ``item`` with ``method`` is stored."""
        return (item, method) in self._answers or self._file(item, method) is not None

    def add_trace(self, item: int, method: int, lines: Iterable[str]) -> None:
        """Write an answer's trace to the folder. Raises OutputError."""
        self._write(f"{_stem(item, method)}.jsonl", "".join(f"{line}\n" for line in lines))

    def add_text(self, item: int, method: int, text: str) -> None:
        """Write an answer without a trace to the folder. Raises OutputError."""
        self._write(f"{_stem(item, method)}.json", _line({"text": text}))

    def _write(self, name: str, text: str) -> None:
        """Write a file of the set. Raises OutputError, also if the file or its folder is a link."""
        file = self._folder / name
        if file.is_symlink() or file.parent.is_symlink():
            raise OutputError(f"{file} is a link. Remove it, or choose another folder.")
        write_text(file, text)

    def lines(self, item: int, method: int) -> list[str]:
        """Return the validated lines of an answer's trace; [] without a trace. Raises SetError."""
        file = self._file(item, method)
        if file is None or not file.name.endswith(".jsonl"):
            return []
        return list(self.trace(item, method).lines())

    def trace(self, item: int, method: int) -> Trace:
        """Read the trace of an answer. Raises SetError."""
        name = f"{_stem(item, method)}.jsonl"
        try:
            return read_trace(_read(self._folder, name).removesuffix("\n").split("\n"))
        except TraceError as error:
            raise SetError(f"The answer {_stem(item, method)} is damaged: {error}") from error
        except (OSError, ValueError) as error:
            raise SetError(
                f"The answer {_stem(item, method)} is damaged. Create it again."
            ) from error

    def answer(self, item: int, method: int) -> Answer | None:
        """Return an answer; None if it is not stored. Raises SetError if it is damaged."""
        cached = self._answers.get((item, method))
        if cached is not None:
            return cached
        file = self._file(item, method)
        if file is None:
            return None
        if file.name.endswith(".json"):
            text = _text(self._folder, file)
            answer = Answer(text, is_right=verdict(self.items[item], text))
        else:
            answer = answer_of(self.trace(item, method), self.items[item])
        self._answers[item, method] = answer
        return answer

    def _file(self, item: int, method: int) -> Path | None:
        for ending in (".jsonl", ".json"):
            file = self._folder / f"{_stem(item, method)}{ending}"
            if _is_own(self._folder, file):
                return file
        return None

    def summarize(self) -> None:
        """Write summary.jsonl with all stored answers. Raises SetError, OutputError."""
        lines = []
        for item, method in self.pairs():
            if (answer := self.answer(item, method)) is not None:
                lines.append(_line({"item": item, "way": method, **answer.as_json()}))
        self._write(SUMMARY, "".join(lines))

    def _read_summary(self) -> None:
        """Read the answers in summary.jsonl. The traces replace invalid or missing lines later."""
        try:
            text = _read(self._folder, SUMMARY)
        except (OSError, ValueError):
            return
        for line in text.split("\n"):
            try:
                values = json.loads(line)
                item, method = values.pop("item"), values.pop("way")
                self._answers[item, method] = answer_of_json(values)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                continue

    @contextmanager
    def only_writer(self) -> Iterator[None]:
        """Hold the lock for writing to the set. Raises OutputError if another process has it."""
        with only_writer(self._folder):
            yield

    def pack(self, path: Path, preset: int = lzma.PRESET_EXTREME | 9) -> None:
        """Write the set as an archive. preset: the compression level of xz, 0 to 9. Raises
        OutputError.
        """
        partial = path.with_name(path.name + ".partial")
        files = [self._folder / name for name in (ABOUT, PROMPTS, SUMMARY)]
        files += filter(None, (self._file(*pair) for pair in self.pairs()))
        files = [file for file in files if _is_own(self._folder, file)]
        try:
            with (
                lzma.open(partial, "wb", preset=preset) as file_out,
                tarfile.open(fileobj=file_out, mode="w") as archive,
            ):
                for file in files:
                    name = file.relative_to(self._folder).as_posix()
                    entry = tarfile.TarInfo(name)
                    text = SECONDS.sub(_rounded, _read(self._folder, name)).encode()
                    entry.size = len(text)
                    archive.addfile(entry, io.BytesIO(text))
            partial.replace(path)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise OutputError(
                f"{path} cannot be written ({reason}). Choose another path."
            ) from error
        finally:
            partial.unlink(missing_ok=True)


def _is_own(folder: Path, file: Path) -> bool:
    """Return whether a file is a regular file that is inside the set's folder after links are
    resolved.

    A file with several hard links is rejected, because it may belong to another folder.
    """
    try:
        check_regular(file)
        is_inside = file.resolve().is_relative_to(folder.resolve())
        return is_inside and file.stat().st_nlink == 1
    except (OSError, RuntimeError):  # missing, not a regular file, or a cycle of links
        return False


def _read(folder: Path, name: str) -> str:
    """Read a text file of a set. Raises OSError, also for a file outside ``folder``, and
    UnicodeDecodeError.
    """
    return read_text(folder / name, MAX_UNPACKED, folder)


SECONDS = re.compile(r'"seconds":([0-9.e-]+)')


def _rounded(match: re.Match[str]) -> str:
    return f'"seconds":{round(float(match[1]), DIGITS)}'


def unpacked(path: Path) -> Path:
    """Unpack an archive and return the folder, which is in the cache or a temporary folder.

    An archive with the same content is unpacked only once. Raises OSError if the archive cannot be
    read, ValueError if it is not a set, and OutputError if neither folder can be written.
    """
    name = hashlib.sha256(read_bytes(path, MAX_PACKED)).hexdigest()[:16]
    try:
        return _unpacked(path, cache_folder() / "sets" / name)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        log.warning("cannot unpack a set into the cache (%s); using a temporary folder", reason)
    try:
        return _unpacked(path, _temporary() / name)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OutputError(
            f"{path} cannot be unpacked ({reason}). Free some space for temporary files."
        ) from error


@cache
def _temporary() -> Path:
    """Create a folder that is deleted when the process ends. Raises OSError."""
    folder = tempfile.mkdtemp(prefix="mars-sets-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _unpacked(path: Path, folder: Path) -> Path:
    """Unpack an archive atomically, unless ``folder`` exists. Raises OSError, ValueError."""
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        unpack(path, partial)
        partial.rename(folder)
    except OSError:
        if not folder.is_dir():  # another process may have finished first
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def unpack(path: Path, folder: Path) -> None:
    """Unpack the files of a set from an archive. Raises OSError, or ValueError for other content.

    Only names that a set uses are accepted. The number of decompressed bytes, including headers, is
    limited while the archive is read.
    """
    num_bytes = 0
    try:
        with path.open("rb") as packed:
            stream = _Unpacked(packed)
            with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]
                for number, entry in enumerate(archive):
                    num_bytes += entry.size
                    if num_bytes > MAX_UNPACKED or number >= MAX_ENTRIES:
                        raise ValueError("too large")
                    if not entry.isdir():
                        stream.left = entry.size + MAX_HEADER
                        _write(archive, entry, folder)
                    stream.left = MAX_HEADER
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise ValueError("no archive") from error


def _write(archive: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path) -> None:
    name = entry.name.removeprefix("./")
    content = archive.extractfile(entry) if entry.isfile() and _FILE.fullmatch(name) else None
    if content is None:
        raise ValueError("entries that are not files of a set")
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(content, file)


class _Unpacked:
    """Readable stream of the content of an xz file. left: maximum number of bytes still to read."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_DICTIONARY)
        self.left = MAX_HEADER

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes; b"" at the end of the file.

        Raises LZMAError for invalid data, EOFError for a truncated file, and ValueError after
        ``left`` bytes.
        """
        content = b""
        while not content and not self._decompressor.eof:
            more = self._packed.read(2**16) if self._decompressor.needs_input else b""
            if self._decompressor.needs_input and not more:
                raise EOFError
            content = self._decompressor.decompress(more, size)
        self.left -= len(content)
        if self.left < 0:
            raise ValueError("headers that are too large")
        return content


_FILE = re.compile(r"set\.json|(prompts|summary)\.jsonl|answers/[0-9]{4}-[0-9]\.jsonl?")


UNREADABLE = (OSError, ValueError, KeyError, TypeError, RecursionError)


def _stem(item: int, method: int) -> str:
    return f"answers/{item + 1:04d}-{method}"


def _line(values: Mapping[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")) + "\n"


def _text(folder: Path, file: Path) -> str:
    """Return the text of an answer without a trace. Raises SetError if the file is damaged."""
    try:
        value = json.loads(_read(folder, file.relative_to(folder).as_posix()))
        text = as_text(as_mapping(value)["text"])
        text.encode()  # raises for lone surrogates
        return text
    except (OSError, ValueError, KeyError, RecursionError) as error:
        raise SetError(f"The answer {file.name} is damaged. Create it again.") from error


def _weights(made: Mapping[str, Any]) -> Any:
    return made.get("weights")


def _about(values: Mapping[str, Any]) -> SetDescription:
    """Parse the content of set.json. Raises KeyError, TypeError, ValueError or SettingsError."""
    methods = tuple(
        method_of_json(as_mapping(method_values)) for method_values in as_list(values["ways"])
    )
    reference = values["reference"]
    if values["version"] != VERSION or not 1 <= len(methods) <= MAX_METHODS:
        raise ValueError("a set of another kind")
    if type(reference) is not int or not 0 <= reference < len(methods):
        raise ValueError("no reference")
    return SetDescription(
        as_text(values["name"])[:MAX_NAME], methods, reference, as_mapping(values["made"])
    )
