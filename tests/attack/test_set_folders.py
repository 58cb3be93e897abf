"""Sets that are folders of strangers, with links, pipes and files of other kinds in them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from app.review.library import Library
from mars_runtime.outputs import OutputError
from mars_runtime.review.sets import About, ReviewSet, SetError, unpack
from mars_runtime.review.ways import read_ways

ROOT = Path(__file__).parents[2]
SECRET = "the review key of this page"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The study as a folder among an owner's sets."""
    folder = tmp_path / "data" / "review" / "theirs"
    unpack(ROOT / "assets/review/study.tar.xz", folder)
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    return folder


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(str(tmp_path / "data"))


def link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def relative(path: Path, target: Path) -> None:
    link(path, Path(os.path.relpath(target, path.parent)))


def hard(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.hardlink_to(target)


def chained(path: Path, target: Path) -> None:
    link(path.with_name("chain"), target)
    link(path, Path("chain"))


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
    path.unlink()
    os.mkfifo(path)


def published(library: Library) -> str:
    """What a visitor gets of an answer: its lines, or a sentence."""
    try:
        return "".join(library.find("theirs").trace(0, 0))
    except SetError as error:
        return str(error)


KINDS: list[Callable[[Path, Path], None]] = [
    link, hard, relative, chained, through_folder, other_text, pipe,
]  # fmt: skip


@pytest.mark.parametrize("put", KINDS)
def test_a_trace_from_elsewhere_is_not_published(
    folder: Path, library: Library, tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    put(folder / "answers" / "0001-0.jsonl", tmp_path / "secret")
    found = published(library)
    assert SECRET not in found
    assert str(tmp_path) not in found
    assert not found or found.startswith("The answer answers/0001-0 is damaged")


def test_the_environment_of_the_process_is_not_published(folder: Path, library: Library) -> None:
    link(folder / "answers" / "0001-0.jsonl", Path("/proc/self/environ"))
    assert library.find("theirs").trace(0, 0) == []


@pytest.mark.parametrize("put", [link, hard])
def test_an_answer_behind_a_link_is_missing(
    folder: Path, library: Library, tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    (tmp_path / "text").write_text('{"text": "' + SECRET + '"}\n')
    (folder / "summary.jsonl").unlink()
    (folder / "answers" / "0001-0.jsonl").unlink()
    put(folder / "answers" / "0001-0.json", tmp_path / "text")
    review = library.find("theirs").review
    assert review.answer(0, 0) is None
    assert (0, 0) in review.missing()


@pytest.mark.parametrize("name", ["set.json", "prompts.jsonl", "summary.jsonl"])
@pytest.mark.parametrize("is_pipe", [False, True])
def test_a_set_whose_own_files_are_elsewhere_is_refused(
    folder: Path, library: Library, tmp_path: Path, name: str, is_pipe: bool
) -> None:
    """The summary can be made again from the traces."""
    path, away = folder / name, tmp_path / "away"
    shutil.move(path, away)
    if is_pipe:
        os.mkfifo(path)
    else:
        path.symlink_to(away)
    if name == "summary.jsonl":
        assert not library.find("theirs").review._answers
        return
    with pytest.raises(SetError) as raised:
        library.find("theirs")
    assert str(tmp_path) not in str(raised.value)


def test_a_file_replaced_after_the_check_is_not_published(
    folder: Path, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text('{"text": "' + SECRET + '"}\n')
    (folder / "summary.jsonl").unlink()
    (folder / "answers" / "0001-0.jsonl").unlink()
    answer = folder / "answers" / "0001-0.json"
    answer.write_text('{"text": "its own"}\n')
    review = library.find("theirs").review
    review._answers.clear()
    resolve = Path.resolve

    def replaced(path: Path, strict: bool = False) -> Path:
        found = resolve(path, strict)
        if path == answer:
            link(answer, tmp_path / "text")
        return found

    monkeypatch.setattr(Path, "resolve", replaced)
    with suppress(SetError):
        found = review.answer(0, 0)
        assert found is None or SECRET not in found.text
    assert answer.is_symlink()


def test_links_inside_the_folder_work(folder: Path, library: Library) -> None:
    before = library.find("theirs").trace(0, 0)
    shutil.move(folder / "answers" / "0001-0.jsonl", folder / "first")
    link(folder / "answers" / "0001-0.jsonl", Path("../first"))
    library.forget("theirs")
    assert library.find("theirs").trace(0, 0) == before
    assert before


def test_no_answer_is_written_through_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    review = ReviewSet.create(folder, About("a", read_ways(["ar", "tau=0"], "tiny"), 0, {}), [])
    (folder / "answers").mkdir()
    outside = tmp_path / "outside"
    link(folder / "answers" / "0001-0.json", outside)
    with pytest.raises(OutputError):
        review.add_text(0, 0, "text")
    link(folder / "summary.jsonl", outside)
    with pytest.raises(OutputError):
        review.summarize()
    assert not outside.exists()


def test_what_is_elsewhere_is_not_packed(folder: Path, tmp_path: Path) -> None:
    link(folder / "answers" / "0001-0.jsonl", tmp_path / "secret")
    ReviewSet.open(folder).pack(tmp_path / "packed.tar.xz", 0)
    unpack(tmp_path / "packed.tar.xz", tmp_path / "unpacked")
    assert not (tmp_path / "unpacked" / "answers" / "0001-0.jsonl").exists()
    assert (tmp_path / "unpacked" / "answers" / "0001-1.jsonl").exists()
