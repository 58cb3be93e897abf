"""Archives of sets that are small and unpack to much: refused within little memory and time."""

from __future__ import annotations

import lzma
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from mars_runtime.review.sets import MAX_ENTRIES, ReviewSet, unpack

ROOT = Path(__file__).parents[2]
MEMORY, SECONDS = 500_000_000, 120
OPEN = """
import resource, sys
from pathlib import Path
from mars_runtime.review.sets import unpack
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]), int(sys.argv[3])))
try:
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
except ValueError as error:
    print("refused:", error)
"""
MUCH = 400_000_000


def said(archive: Path) -> str:
    """What a process with little memory says of an archive; it writes next to nothing."""
    folder = archive.with_name("in")
    folder.mkdir()
    words = [sys.executable, "-c", OPEN, str(archive), str(folder), str(MEMORY)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-1000:]
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 10_000_000
    return done.stdout


def packed(path: Path, pieces: Iterator[bytes]) -> Path:
    with lzma.open(path, "wb", preset=0) as file:
        for piece in pieces:
            file.write(piece)
    assert path.stat().st_size < 1_000_000
    return path


def large_header(kind: bytes) -> Iterator[bytes]:
    """A header that belongs to a file and holds ``MUCH`` bytes."""
    begin = f"{MUCH} comment=".encode()
    entry = tarfile.TarInfo("set.json")
    entry.type, entry.size = kind, MUCH
    yield entry.tobuf(tarfile.USTAR_FORMAT)
    if kind == tarfile.XHDTYPE:
        yield begin
    left = MUCH - len(begin) * (kind == tarfile.XHDTYPE) - 1
    while left:
        yield b"a" * min(left, 1 << 20)
        left -= min(left, 1 << 20)
    yield b"\n" + bytes(-MUCH % 512)
    yield tarfile.TarInfo("set.json").tobuf(tarfile.USTAR_FORMAT) + bytes(1024)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_headers_are_counted(tmp_path: Path, kind: bytes) -> None:
    archive = packed(tmp_path / "a.tar.xz", large_header(kind))
    assert said(archive) == "refused: headers that are too large\n"


def test_many_folders_before_a_file_are_counted(tmp_path: Path) -> None:
    def folders() -> Iterator[bytes]:
        entry = tarfile.TarInfo("answers")
        entry.type = tarfile.DIRTYPE
        for _ in range(MAX_ENTRIES + 1):
            yield entry.tobuf(tarfile.USTAR_FORMAT)

    assert said(packed(tmp_path / "a.tar.xz", folders())) == "refused: too large\n"


@pytest.mark.parametrize("name", ["answers/0001-0.jsonl", "answers/{:06}.jsonl"])
def test_many_files_are_counted(tmp_path: Path, name: str) -> None:
    def files() -> Iterator[bytes]:
        for number in range(100_000):
            yield tarfile.TarInfo(name.format(number)).tobuf(tarfile.USTAR_FORMAT)

    assert said(packed(tmp_path / "a.tar.xz", files())).startswith("refused: ")
    assert len(list((tmp_path / "in").rglob("*"))) < MAX_ENTRIES


def test_a_dictionary_of_gigabytes_is_not_made(tmp_path: Path) -> None:
    content = bytearray(lzma.compress(tarfile.TarInfo("set.json").tobuf(), preset=0))
    size = 4 * (content[12] + 1)  # of the header of the first block, which ends in its checksum
    at = content.index(b"\x21\x01", 12, 12 + size)  # LZMA2, whose properties are one byte
    content[at + 2] = 39  # 3 GiB
    content[8 + size : 12 + size] = zlib.crc32(content[12 : 8 + size]).to_bytes(4, "little")
    (tmp_path / "a.tar.xz").write_bytes(content)
    assert said(tmp_path / "a.tar.xz") == "refused: no archive\n"


def test_an_archive_made_by_hand_opens(tmp_path: Path) -> None:
    """As ``tar cJf`` makes it, with a folder first and ``./`` before each name."""
    study = ROOT / "assets/review/study.tar.xz"
    folder = tmp_path / "study"
    unpack(study, folder)
    with tarfile.open(tmp_path / "b.tar.xz", "w:xz", preset=0) as file:
        file.add(folder, arcname=".")
    assert ReviewSet.open(tmp_path / "b.tar.xz").id == ReviewSet.open(study).id


def test_a_file_larger_than_all_that_may_be_unpacked_is_refused(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("set.json")
    entry.size = 2**31
    archive = tmp_path / "a.tar.xz"
    archive.write_bytes(lzma.compress(entry.tobuf(tarfile.USTAR_FORMAT) + bytes(1 << 20)))
    with pytest.raises(ValueError, match="too large"):
        unpack(archive, tmp_path)
