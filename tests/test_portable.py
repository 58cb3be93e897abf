"""Nothing outside guarded places needs a function or module that Windows lacks."""

from __future__ import annotations

import ast
import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mars_runtime.files.outputs import OutputError, write_text

ROOT = Path(__file__).resolve().parent.parent
GUARD = re.compile("hasattr|platform|ImportError|AttributeError")
MISSING = {
    *("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"),
    *("os.chown", "os.fork", "os.geteuid", "os.getloadavg", "os.getuid", "os.killpg", "os.mkfifo"),
    *("os.nice", "os.register_at_fork", "os.sched_getaffinity", "os.setsid", "os.statvfs"),
    *("os.sysconf", "os.uname", "os.O_NONBLOCK", "os.O_NOFOLLOW", "signal.SIGALRM"),
    *("signal.SIGCHLD", "signal.SIGHUP", "signal.SIGKILL", "signal.SIGUSR1", "signal.setitimer"),
    *("mmap.MAP_ANONYMOUS", "mmap.MAP_PRIVATE", "mmap.MADV_HUGEPAGE", "socket.AF_UNIX"),
}
"""What Python documents as not available on Windows, as far as programs like this one use it."""


def uses(tree: ast.AST, guard: str = "") -> Iterator[tuple[int, str]]:
    """Yield line and name of each use outside an ``if`` or ``try`` that checks for it."""
    for node in ast.iter_child_nodes(tree):
        within = guard
        if isinstance(node, ast.If | ast.IfExp):
            within += ast.unparse(node.test)
        elif isinstance(node, ast.BoolOp):
            within += ast.unparse(node.values[0])
        elif isinstance(node, ast.Try):
            within += " ".join(ast.unparse(item.type) for item in node.handlers if item.type)
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [getattr(node, "module", ""), *(alias.name for alias in node.names)]
        else:
            names = [ast.unparse(node)] if isinstance(node, ast.Attribute) else []
        if not GUARD.search(guard):
            yield from ((node.lineno, name) for name in names if name in MISSING)
        yield from uses(node, within)


def test_nothing_that_windows_lacks_is_used_without_a_check() -> None:
    packages = (path for name in ("app", "mars_runtime") for path in (ROOT / name).rglob("*.py"))
    actual = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in [ROOT / "app.py", *packages]
        for line, name in uses(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not actual, "\n".join(actual)


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str, encoding: str) -> None:
        path.write_bytes(text.encode(encoding)[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    path, old = tmp_path / "out", tmp_path / "old"
    path.write_text("old")
    os.link(path, old)
    write_text(path, "new")  # replaces the file instead of writing over it
    assert (path.read_text(), old.read_text()) == ("new", "old")
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OutputError, match="No space left"):
        write_text(path, "newer")
    assert (len([*tmp_path.iterdir()]), path.read_text()) == (2, "new")


NARROW = r"""
import sys
from mars_runtime import __main__ as command

def run(arguments):
    print("\u00e9 \u2192 \u2581")
    print("\u706b\u661f")
    return 0

command._run = run
sys.exit(command.main())
"""


def test_output_loses_no_character_and_one_warning_says_how_it_is_written() -> None:
    """Code page 1252 of a Windows console has no block, arrow or CJK characters."""
    variables, command = os.environ | {"PYTHONIOENCODING": "cp1252"}, [sys.executable, "-c", NARROW]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True)
    assert done.returncode == 0, done.stderr
    lines = ["é \\u2192 \\u2581", "\\u706b\\u661f"]
    assert done.stdout.decode("cp1252").splitlines() == lines
    assert len(done.stderr.splitlines()) == 1
