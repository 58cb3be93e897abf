"""A disk that is full."""

from __future__ import annotations

from pathlib import Path

from tests.attack.attacked import printed

FULL = """
import resource, sys
from pathlib import Path
from mars_runtime.files.outputs import OutputError, write_text
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    write_text(Path(sys.argv[1]) / "a.json", "text")
except (OSError, OutputError) as error:
    print("refused:", error)
"""
"""A process that can create files but not write to them, as on a full disk."""


def test_nothing_begun_is_left(tmp_path: Path) -> None:
    assert printed(FULL, tmp_path).startswith("refused:")
    assert list(tmp_path.iterdir()) == []
