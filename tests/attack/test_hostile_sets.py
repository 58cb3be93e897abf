"""Sets of strangers: archives that unpack to much, folders with links, pipes and other files."""

from __future__ import annotations

import lzma
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.review.library import Library
from mars_runtime.outputs import OutputError
from mars_runtime.review.methods import read_methods
from mars_runtime.review.sets import MAX_ENTRIES, ReviewSet, SetDescription, SetError, unpack
from tests.attack.attacked import LIMITED, ROOT, printed

STUDY = ROOT / "assets/review/study.tar.xz"
SECRET = "the review key of this page"
MEMORY, MUCH = 500_000_000, 400_000_000  # bytes
OPEN = f"""{LIMITED}
from pathlib import Path
from mars_runtime.review.sets import unpack
try:
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
except ValueError as error:
    print("refused:", error)
"""


def unpacked(archive: Path) -> str:
    """Return the sentence of a process with little memory that unpacks an archive; it writes next
    to nothing."""
    folder = archive.with_name("in")
    folder.mkdir()
    said = printed(OPEN, archive, folder, MEMORY)
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 10_000_000
    assert len(list(folder.rglob("*"))) < MAX_ENTRIES
    return said


def packed(path: Path, pieces: Iterator[bytes]) -> Path:
    with lzma.open(path, "wb", preset=0) as file:
        for piece in pieces:
            file.write(piece)
    assert path.stat().st_size < 1_000_000
    return path


def large_header(kind: bytes) -> Iterator[bytes]:
    """A header that belongs to a file and holds ``MUCH`` bytes."""
    begin = f"{MUCH} comment=".encode() if kind == tarfile.XHDTYPE else b""
    entry = tarfile.TarInfo("set.json")
    entry.type, entry.size = kind, MUCH
    yield entry.tobuf(tarfile.USTAR_FORMAT) + begin
    left = MUCH - len(begin) - 1
    while left:
        yield b"a" * min(left, 1 << 20)
        left -= min(left, 1 << 20)
    yield b"\n" + bytes(-MUCH % 512)
    yield tarfile.TarInfo("set.json").tobuf(tarfile.USTAR_FORMAT) + bytes(1024)


def many(name: str, number: int, kind: bytes = tarfile.REGTYPE) -> Iterator[bytes]:
    for n in range(number):
        entry = tarfile.TarInfo(name.format(n))
        entry.type = kind
        yield entry.tobuf(tarfile.USTAR_FORMAT)


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (lambda: large_header(tarfile.XHDTYPE), "headers that are too large"),
        (lambda: large_header(tarfile.XGLTYPE), "headers that are too large"),
        (lambda: large_header(tarfile.GNUTYPE_LONGNAME), "headers that are too large"),
        (lambda: many("answers", MAX_ENTRIES + 1, tarfile.DIRTYPE), "too large"),
        (lambda: many("answers/0001-0.jsonl", 100_000), ""),
        (lambda: many("answers/{:06}.jsonl", 100_000), ""),
    ],
    ids=["extended", "global", "long name", "folders", "one file", "files"],
)
def test_everything_in_an_archive_is_counted(
    tmp_path: Path, pieces: Callable[[], Iterator[bytes]], said: str
) -> None:
    assert unpacked(packed(tmp_path / "a.tar.xz", pieces())).startswith(f"refused: {said}")


def test_a_dictionary_of_gigabytes_is_not_made(tmp_path: Path) -> None:
    content = bytearray(lzma.compress(tarfile.TarInfo("set.json").tobuf(), preset=0))
    size = 4 * (content[12] + 1)  # of the header of the first block, which ends in its checksum
    at = content.index(b"\x21\x01", 12, 12 + size)  # LZMA2, which has one byte of properties
    content[at + 2] = 39  # 3 GiB
    content[8 + size : 12 + size] = zlib.crc32(content[12 : 8 + size]).to_bytes(4, "little")
    (tmp_path / "a.tar.xz").write_bytes(content)
    assert unpacked(tmp_path / "a.tar.xz") == "refused: no archive\n"


def test_a_file_larger_than_all_that_may_be_unpacked_is_refused(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("set.json")
    entry.size = 2**31
    archive = tmp_path / "a.tar.xz"
    archive.write_bytes(lzma.compress(entry.tobuf(tarfile.USTAR_FORMAT) + bytes(1 << 20)))
    with pytest.raises(ValueError, match="too large"):
        unpack(archive, tmp_path)


def test_an_archive_made_by_hand_opens(tmp_path: Path) -> None:
    """As ``tar cJf`` makes it, with a folder first and ``./`` before each name."""
    unpack(STUDY, tmp_path / "study")
    with tarfile.open(tmp_path / "b.tar.xz", "w:xz", preset=0) as file:
        file.add(tmp_path / "study", arcname=".")
    assert ReviewSet.open(tmp_path / "b.tar.xz").id == ReviewSet.open(STUDY).id


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The study as a folder among an owner's sets."""
    folder = tmp_path / "data" / "review" / "theirs"
    unpack(STUDY, folder)
    (tmp_path / "secret").write_text('{"text": "' + SECRET + '"}\n')
    return folder


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(str(tmp_path / "data"))


def link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def hard(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.hardlink_to(target)


def through_folder(path: Path, target: Path) -> None:
    """The file's whole folder is a link to another one."""
    away = target.parent / "away"
    shutil.move(path.parent, away)
    shutil.copy(target, away / path.name)
    path.parent.symlink_to(away)


def other_text(path: Path, target: Path) -> None:
    """No link, but a file that is not a trace."""
    shutil.copy(target, path)


def pipe(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def published(read: Callable[[], object]) -> str:
    """Return what is read of a set, or the sentence that refuses it."""
    try:
        return str(read())
    except SetError as error:
        return str(error)


KINDS: list[Callable[[Path, Path], None]] = [
    link, hard, through_folder, other_text, pipe,
]  # fmt: skip


@pytest.mark.parametrize("put", KINDS)
def test_a_trace_from_elsewhere_is_not_published(
    folder: Path, library: Library, tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    put(folder / "answers" / "0001-0.jsonl", tmp_path / "secret")
    actual = published(lambda: library.find("theirs").trace(0, 0))
    assert actual == "[]" or actual.startswith("The answer answers/0001-0 is damaged")
    assert str(tmp_path) not in actual
    ReviewSet.open(folder).pack(tmp_path / "packed.tar.xz", 0)
    unpack(tmp_path / "packed.tar.xz", tmp_path / "unpacked")
    is_own = put is other_text
    assert (tmp_path / "unpacked" / "answers" / "0001-0.jsonl").exists() == is_own


@pytest.mark.parametrize("name", ["set.json", "prompts.jsonl", "summary.jsonl"])
@pytest.mark.parametrize("put", [link, pipe])
def test_a_set_whose_own_files_are_elsewhere_is_refused(
    folder: Path, library: Library, tmp_path: Path, name: str, put: Callable[[Path, Path], None]
) -> None:
    """The summary can be made again from the traces."""
    away = tmp_path / "away"
    away.write_text((folder / name).read_text().replace('"text":"', f'"text":"{SECRET}'))
    put(folder / name, away)
    if name == "summary.jsonl":
        answer = library.find("theirs").review.answer(0, 0)
        assert answer is not None
        assert SECRET not in answer.text
        return
    with pytest.raises(SetError) as raised:
        library.find("theirs")
    assert str(tmp_path) not in str(raised.value)


def test_a_file_replaced_after_the_check_is_not_published(
    folder: Path, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "summary.jsonl").unlink()
    (folder / "answers" / "0001-0.jsonl").unlink()
    file, resolve = folder / "answers" / "0001-0.json", Path.resolve
    file.write_text('{"text": "its own"}\n')

    def replaced(path: Path, strict: bool = False) -> Path:
        actual = resolve(path, strict)
        if path == file:
            link(file, tmp_path / "secret")
        return actual

    monkeypatch.setattr(Path, "resolve", replaced)
    assert SECRET not in published(lambda: library.find("theirs").review.answer(0, 0))
    assert file.is_symlink()


def test_no_answer_is_written_through_a_link(tmp_path: Path) -> None:
    folder, outside = tmp_path / "set", tmp_path / "outside"
    review = ReviewSet.create(
        folder, SetDescription("a", read_methods(["ar", "tau=0"], "tiny"), 0, {}), []
    )
    (folder / "answers").mkdir()
    link(folder / "answers" / "0001-0.json", outside)
    link(folder / "summary.jsonl", outside)
    for write in (lambda: review.add_text(0, 0, "text"), review.summarize):
        with pytest.raises(OutputError):
            write()
    assert not outside.exists()
