"""Nothing outside guarded places needs a function or module that Windows lacks."""

from __future__ import annotations

import ast
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mars_runtime.files.outputs import OutputError, write_text

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [
    ROOT / "app.py",
    *sorted((ROOT / "app").rglob("*.py")),
    *sorted((ROOT / "mars_runtime").rglob("*.py")),
]
MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
MISSING = {
    "os": {
        *("chown", "fork", "getegid", "geteuid", "getgid", "getloadavg", "getpgid", "getuid"),
        *("killpg", "mkfifo", "nice", "register_at_fork", "sched_getaffinity", "sched_yield"),
        *("setsid", "statvfs", "sysconf", "uname", "O_NONBLOCK", "O_NOFOLLOW", "WIFEXITED"),
    },
    "signal": {"SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "setitimer"},
    "mmap": {"MAP_ANONYMOUS", "MAP_PRIVATE", "MADV_HUGEPAGE"},
    "socket": {"AF_UNIX"},
    "time": {"tzset"},
}
"""What Python documents as not available on Windows, as far as programs like this one use it."""


def uses(tree: ast.AST, guards: tuple[ast.AST, ...] = ()) -> Iterator[tuple[int, str]]:
    """Yield line and name of each use outside an ``if`` or ``try`` that checks for it."""
    for node in ast.iter_child_nodes(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name in MODULES]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module in MODULES else []
        elif isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            names = [f"{owner}.{node.attr}"] if node.attr in MISSING.get(owner, ()) else []
        if names and not any(map(checks, guards)):
            yield from ((getattr(node, "lineno", 0), name) for name in names)
        yield from uses(node, (*guards, node))


def checks(guard: ast.AST) -> bool:
    """Return whether a statement or expression runs its parts only where they exist."""
    if isinstance(guard, ast.If | ast.IfExp):
        return any(word in ast.unparse(guard.test) for word in ("hasattr", "platform"))
    if isinstance(guard, ast.BoolOp):
        return "hasattr" in ast.unparse(guard.values[0])
    if isinstance(guard, ast.Try):
        caught = " ".join(ast.unparse(handler.type) for handler in guard.handlers if handler.type)
        return "ImportError" in caught or "AttributeError" in caught
    return False


def test_nothing_that_windows_lacks_is_used_without_a_check() -> None:
    actual = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in SOURCES
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
REDIRECTED = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    ("environment", "encoding", "expected"),
    [
        ({"PYTHONIOENCODING": "cp1252"}, "cp1252", ["é \\u2192 \\u2581", "\\u706b\\u661f"]),
        (REDIRECTED, "utf-8", ["é → ▁", "火星"]),
    ],
)
def test_output_loses_no_character_and_one_warning_says_how_it_is_written(
    environment: dict[str, str], encoding: str, expected: list[str]
) -> None:
    """Code page 1252 of a Windows console has no block, arrow or CJK characters."""
    variables = {name: text for name, text in os.environ.items() if name != "PYTHONIOENCODING"}
    done = subprocess.run(
        [sys.executable, "-c", NARROW],
        cwd=ROOT,
        env=variables | environment,
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode(encoding).splitlines() == expected
    assert len(done.stderr.splitlines()) == 1
