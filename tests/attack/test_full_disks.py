"""Folders that cannot be written and disks that are full, as shared runs meet them."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.live.shared_runs import FULL as NO_ROOM
from tests.attack.attacked import printed

FULL = """
import resource, sys
from pathlib import Path
from app.live.shared_runs import SharedRuns
from app.ui.recordings import load
from mars_runtime.files.outputs import OutputError, write_text
task, folder = sys.argv[1], Path(sys.argv[2])
run = load()[0].value
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
tasks = {
    "text": lambda: write_text(folder / "a.json", "text"),
    "run": lambda: print(SharedRuns(folder, 10**6).store(run, "a")),
}
try:
    tasks[task]()
except (OSError, OutputError) as error:
    print("refused:", error)
"""
"""A process that can create files but not write to them, as on a full disk."""


@pytest.mark.parametrize("task", ["text", "run"])
def test_nothing_begun_is_left(tmp_path: Path, task: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    said = printed(FULL, task, folder)
    assert said.startswith(str({"error": NO_ROOM}) if task == "run" else "refused:")
    assert list(folder.iterdir()) == []
