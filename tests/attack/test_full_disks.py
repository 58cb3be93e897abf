"""Folders that cannot be written and disks that are full, as Review and shared runs meet them."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from app.live.shared_runs import SharedRuns
from app.review.library import Library
from mars_runtime.review.masked import NUM_BYTES, secret_in
from mars_runtime.review.sets import ReviewSet, unpack

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "assets/review/study.tar.xz"
FULL = """
import resource, sys
from pathlib import Path
from app.live.shared_runs import SharedRuns
from mars_runtime.outputs import OutputError, write_text
from mars_runtime.review.masked import secret_in
from mars_runtime.review.sets import ReviewSet
task, folder, other = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
review = ReviewSet.open(other) if task == "pack" else None
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
tasks = {
    "secret": lambda: secret_in(folder),
    "text": lambda: write_text(folder / "a.json", "text"),
    "run": lambda: SharedRuns(folder, 1000)._write(folder, "a", b"a run"),
    "pack": lambda: review.pack(folder / "a.tar.xz", 0),
}
try:
    tasks[task]()
except (OSError, OutputError) as error:
    print("refused:", error)
"""
"""A process whose files cannot grow, as on a full disk: they are made and stay empty."""


def on_a_full_disk(task: str, folder: Path, other: Path = STUDY) -> str:
    words = [sys.executable, "-c", FULL, task, str(folder), str(other)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-1000:]
    return done.stdout


@pytest.mark.parametrize("task", ["secret", "text", "run", "pack"])
def test_nothing_begun_is_left(tmp_path: Path, task: str) -> None:
    folder, other = tmp_path / "out", tmp_path / "study"
    folder.mkdir()
    if task == "pack":
        unpack(STUDY, other)
    assert on_a_full_disk(task, folder, other).startswith("refused:")
    assert list(folder.iterdir()) == []


def test_the_secret_is_made_once_the_disk_has_room(tmp_path: Path) -> None:
    on_a_full_disk("secret", tmp_path)
    made = secret_in(tmp_path)
    assert len(made) == NUM_BYTES
    assert secret_in(tmp_path) == made


@pytest.mark.parametrize("num_bytes", [0, NUM_BYTES - 1])
def test_a_secret_that_was_begun_is_replaced(tmp_path: Path, num_bytes: int) -> None:
    (tmp_path / "review.secret").write_bytes(bytes(num_bytes))
    made = secret_in(tmp_path)
    assert len(made) == NUM_BYTES
    assert (tmp_path / "review.secret").read_bytes() == made
    assert (tmp_path / "review.secret").stat().st_mode & 0o077 == 0


def test_all_who_make_the_secret_at_once_have_the_same(tmp_path: Path) -> None:
    made: list[bytes] = []
    barrier = threading.Barrier(8)

    def make() -> None:
        barrier.wait()
        made.append(secret_in(tmp_path))

    makers = [threading.Thread(target=make) for _ in range(8)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert len(made) == len(makers)
    assert len(set(made)) == 1


@pytest.fixture
def blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache below a file: nothing can be made in it, not even by an administrator."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("MARS_CACHE", str(tmp_path / "file" / "cache"))
    return tmp_path / "file"


def test_the_study_opens_without_a_cache(blocked: Path) -> None:
    library = Library("")
    assert len(library.find("study").review.items) > 1
    assert ReviewSet.open(STUDY).id == library.find("study").review.id


def test_masked_pairs_are_shown_where_no_secret_can_be_stored(blocked: Path) -> None:
    library = Library(str(blocked))
    shown = library.masked_item("study", (0, 1), 0)
    sides = library.reveal("study", [shown["sealed"]])
    assert shown == library.masked_item("study", (0, 1), 0) | {"sealed": shown["sealed"]}
    assert set(sides[0]) == {"left", "right"}


def test_a_run_that_could_not_be_kept_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.run.gz").mkdir()  # renaming fails
    with pytest.raises(OSError, match="directory"):
        SharedRuns(tmp_path, 1000)._write(tmp_path, "a", b"a run")
    assert [path.name for path in tmp_path.iterdir()] == ["a.run.gz"]


def test_a_set_that_could_not_be_unpacked_can_be_brought_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(str(tmp_path / "data"))
    name, folder = library.place()
    unpack(STUDY, folder)
    sealed = library.sealed(name)
    after = Library(str(tmp_path / "data"))  # the server was restarted

    def fail(*given: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("app.review.library.unpack", fail)
        with pytest.raises(OSError, match="No space"):
            after.bring(sealed)
    assert after.bring(sealed) == name
    assert after.find(name).review.id == library.find(name).review.id
