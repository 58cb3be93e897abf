"""A set as files: prompts, methods, and one answer for each pair of them.

set.json: name, methods, index of the reference, and how it was made
prompts.jsonl: one item per line (prompts.py)
answers/0001-0.jsonl: the trace of prompt 1 with method 0 (trace.py); .json for text without a trace
summary.jsonl: the answers without their traces, so that a set opens fast

Files are written atomically, so an interrupted set can be continued. An archive holds the same
files. All files are untrusted.
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
"""Largest size of an archive and of its unpacked content, in bytes."""
MAX_HEADER = 2**16
"""Largest size of the headers before each file of an archive, in bytes."""
MAX_DICTIONARY = 2**27
"""Memory limit of decompression in bytes; the strongest preset needs half of it."""
MAX_ENTRIES = MAX_PROMPTS * MAX_METHODS + 16
DIGITS = 6
"""Decimal digits of seconds in an archive; more digits are noise that does not compress."""
NO_SET = "{} is not a set. Give a folder or an archive that `review make` wrote."
log = logging.getLogger(__name__)


class SetError(ValueError):
    """A set cannot be made or read; the message is one sentence with the remedy."""


@dataclass(frozen=True, slots=True)
class SetDescription:
    """Description of a set.

    reference: index of the method that the others are compared with. made: machine, versions and
    weights (``provenance.provenance``), as JSON values.
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
        """Return its values for JSON."""
        methods = [method.as_json() for method in self.methods]
        values = {
            "name": self.name,
            "reference": self.reference,
            "ways": methods,
            "made": self.made,
        }
        return {"version": VERSION, **values}


class ReviewSet:
    """A set in a folder or an archive; answers can be added only in a folder."""

    def __init__(self, folder: Path, about: SetDescription, items: Sequence[Item]) -> None:
        self._folder = folder
        self.about = about
        self.items = tuple(items)
        self._answers: dict[tuple[int, int], Answer] = {}

    @classmethod
    def create(cls, folder: Path, about: SetDescription, items: Sequence[Item]) -> ReviewSet:
        """Create a set in a new folder, or open an existing one with the same prompts and methods.

        Raises SetError, OutputError.
        """
        check_folder(folder)
        if not all(map(is_text, (about.name, *(method.name for method in about.methods)))):
            raise SetError(
                "The name of the set or of a method contains half of a character (a lone "
                "surrogate). Choose another name."
            )
        if (folder / ABOUT).exists():
            existing = cls.open(folder)
            fresh = (about.methods, about.reference, tuple(items))
            if (existing.about.methods, existing.about.reference, existing.items) != fresh:
                raise SetError(
                    f"{folder} has a set with other prompts or methods. Choose another folder."
                )
            if existing.weights != _weights(about.made):
                raise SetError(f"{folder} was started with other weights. Choose another folder.")
            return existing
        made = cls(folder, about, items)
        made._keep(PROMPTS, as_jsonl(items))
        made._keep(ABOUT, json.dumps(about.as_json(), ensure_ascii=False, indent=1) + "\n")
        return made

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
            raise SetError(f"{path} has a set with an invalid method: {error}") from error
        except UNREADABLE as error:
            raise SetError(NO_SET.format(path)) from error
        if prompts.faults:
            raise SetError(f"{path}: {prompts.faults[0]}")
        opened = cls(folder, about, prompts.items)
        opened._read_summary()
        return opened

    @cached_property
    def id(self) -> str:
        """Hash of the prompts and methods; the same on every machine."""
        about = self.about
        parts = [
            [method.as_json() for method in about.methods],
            about.reference,
            as_jsonl(self.items),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    @property
    def weights(self) -> Any:
        """Return the recorded fingerprints of the weights."""
        return _weights(self.about.made)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield (item, method) of every answer, item by item."""
        return product(range(len(self.items)), range(len(self.about.methods)))

    def missing(self) -> list[tuple[int, int]]:
        """Return the pairs without an answer."""
        return [pair for pair in self.pairs() if not self.has(*pair)]

    def has(self, item: int, method: int) -> bool:
        """Return whether the answer is stored."""
        return (item, method) in self._answers or self._file(item, method) is not None

    def add_trace(self, item: int, method: int, lines: Iterable[str]) -> None:
        """Store the trace of an answer; it is on disk on return. Raises OutputError."""
        self._keep(f"{_stem(item, method)}.jsonl", "".join(f"{line}\n" for line in lines))

    def add_text(self, item: int, method: int, text: str) -> None:
        """Store an answer without a trace. Raises OutputError."""
        self._keep(f"{_stem(item, method)}.json", _line({"text": text}))

    def _keep(self, name: str, text: str) -> None:
        """Write a file of the set. Raises OutputError, also for a link that leads elsewhere."""
        file = self._folder / name
        if file.is_symlink() or file.parent.is_symlink():
            raise OutputError(f"{file} is a link. Remove it, or choose another folder.")
        write_text(file, text)

    def lines(self, item: int, method: int) -> list[str]:
        """Return the parsed lines of an answer's trace, empty without a trace. Raises SetError."""
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
        """Return an answer, None if it is missing. Raises SetError."""
        known = self._answers.get((item, method))
        if known is not None:
            return known
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
        """Write the summary file once all answers are stored. Raises SetError, OutputError."""
        lines = []
        for item, method in self.pairs():
            if (answer := self.answer(item, method)) is not None:
                lines.append(_line({"item": item, "way": method, **answer.as_json()}))
        self._keep(SUMMARY, "".join(lines))

    def _read_summary(self) -> None:
        """Load the summary; damaged entries are computed from the traces again."""
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
        """Lock the set for writing. Raises OutputError if another process has the lock."""
        with only_writer(self._folder):
            yield

    def pack(self, path: Path, preset: int = lzma.PRESET_EXTREME | 9) -> None:
        """Write the set as one archive. Raises OutputError."""
        partial = path.with_name(path.name + ".partial")
        files = [self._folder / name for name in (ABOUT, PROMPTS, SUMMARY)]
        files += filter(None, (self._file(*pair) for pair in self.pairs()))
        files = [file for file in files if _is_own(self._folder, file)]  # the summary comes last
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
    """Whether a file lies inside the set's folder with links resolved, is a regular file, and has
    no hard links, which may lead elsewhere.
    """
    try:
        check_regular(file)
        is_inside = file.resolve().is_relative_to(folder.resolve())
        return is_inside and file.stat().st_nlink == 1
    except (OSError, RuntimeError):  # missing, of another kind, or a cycle of links
        return False


def _read(folder: Path, name: str) -> str:
    """Read a text file of a set, which must lie inside its folder. Raises OSError,
    UnicodeDecodeError."""
    return read_text(folder / name, MAX_UNPACKED, folder)


SECONDS = re.compile(r'"seconds":([0-9.e-]+)')


def _rounded(match: re.Match[str]) -> str:
    return f'"seconds":{round(float(match[1]), DIGITS)}'


def unpacked(path: Path) -> Path:
    """Unpack a set into the cache, or into a temporary folder if the cache cannot be written.

    Raises OSError if the archive cannot be read, ValueError if it is not a set, OutputError if
    neither folder has space.
    """
    name = hashlib.sha256(read_bytes(path, MAX_PACKED)).hexdigest()[:16]
    try:
        return _unpacked(path, cache_folder() / "sets" / name)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        log.warning(
            "a set cannot be unpacked into the cache (%s); using a temporary folder", reason
        )
    try:
        return _unpacked(path, _temporary() / name)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OutputError(
            f"{path} cannot be unpacked ({reason}). Free some space for temporary files."
        ) from error


@cache
def _temporary() -> Path:
    """Make a folder that is removed when the process ends. Raises OSError."""
    folder = tempfile.mkdtemp(prefix="mars-sets-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _unpacked(path: Path, folder: Path) -> Path:
    """Unpack into a temporary folder and rename it to ``folder``, unless that exists. Raises
    OSError, ValueError.
    """
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
    """Unpack the files of a set into a folder. Raises OSError, or ValueError if it is not a packed
    set.

    Only files that a set has are written. The unpacked bytes, headers included, are counted and
    limited during decompression.
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
    """Reads an xz file, decompressed on demand. left: how many more bytes may be read."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_DICTIONARY)
        self.left = MAX_HEADER

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes, none at the end. Raises LZMAError, EOFError or
        ValueError.
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
    """Read an answer without a trace. Raises SetError."""
    try:
        value = json.loads(_read(folder, file.relative_to(folder).as_posix()))
        text = as_text(as_mapping(value)["text"])
        text.encode()  # no lone surrogate
        return text
    except (OSError, ValueError, KeyError, RecursionError) as error:
        raise SetError(f"The answer {file.name} is damaged. Create it again.") from error


def _weights(made: Mapping[str, Any]) -> Any:
    return made.get("weights")


def _about(values: Mapping[str, Any]) -> SetDescription:
    """Parse the description of a set. Raises KeyError, TypeError, ValueError or SettingsError."""
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
