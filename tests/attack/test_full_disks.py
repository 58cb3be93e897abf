"""Folders that cannot be written and disks that are full, as Review and shared runs meet them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from app.live.shared_runs import FULL as NO_ROOM
from app.review.library import Library
from mars_runtime.review.masked import NUM_BYTES, secret_in
from mars_runtime.review.sets import unpack
from tests.attack.attacked import ROOT, printed

STUDY = ROOT / "assets/review/study.tar.xz"
FULL = """
import resource, sys
from pathlib import Path
from app.live.shared_runs import SharedRuns
from app.ui.recordings import load
from mars_runtime.outputs import OutputError, write_text
from mars_runtime.review.masked import secret_in
from mars_runtime.review.sets import ReviewSet
task, folder, other = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
review = ReviewSet.open(other) if task == "pack" else None
run = load()[0].value
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
tasks = {
    "secret": lambda: secret_in(folder),
    "text": lambda: write_text(folder / "a.json", "text"),
    "run": lambda: print(SharedRuns(folder, 10**6).keep(run, "a")),
    "pack": lambda: review.pack(folder / "a.tar.xz", 0),
}
try:
    tasks[task]()
except (OSError, OutputError) as error:
    print("refused:", error)
"""
"""A process that can create files but not write to them, as on a full disk."""


@pytest.mark.parametrize("task", ["secret", "text", "run", "pack"])
def test_nothing_begun_is_left(tmp_path: Path, task: str) -> None:
    folder, other = tmp_path / "out", tmp_path / "study"
    folder.mkdir()
    if task == "pack":
        unpack(STUDY, other)
    said = printed(FULL, task, folder, other)
    assert said.startswith(str({"error": NO_ROOM}) if task == "run" else "refused:")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("attempt", range(3))
@pytest.mark.parametrize("num_bytes", [None, 0, NUM_BYTES - 1])
def test_the_secret_is_made_once_after_any_interruption(
    tmp_path: Path, num_bytes: int | None, attempt: int
) -> None:
    """All threads that need it at once get the same one, which only the owner may read."""
    path, barrier = tmp_path / "review.secret", Barrier(8)
    if num_bytes is not None:
        path.write_bytes(bytes(num_bytes))

    def make(_: int) -> bytes:
        barrier.wait()
        return secret_in(tmp_path)

    with ThreadPoolExecutor(8) as pool:
        (made,) = set(pool.map(make, range(8)))
    assert len(made) == NUM_BYTES
    assert path.read_bytes() == made == secret_in(tmp_path)
    assert path.stat().st_mode & 0o077 == 0


def test_review_works_where_nothing_can_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache below a file: nothing can be made in it, not even by an administrator."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("MARS_CACHE", str(tmp_path / "file" / "cache"))
    library = Library("")
    assert len(library.find("study").review.items) > 1
    library = Library(str(tmp_path / "file"))
    shown = library.masked_item("study", (0, 1), 0)
    sides = library.reveal("study", [shown["sealed"]])
    assert shown == library.masked_item("study", (0, 1), 0) | {"sealed": shown["sealed"]}
    assert set(sides[0]) == {"left", "right"}


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
