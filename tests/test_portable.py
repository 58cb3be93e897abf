"""Nothing outside guarded places needs a function or module that Windows lacks."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mars_runtime import machine

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
            owner = ast.unparse(node.value)
            names = [f"{owner}.{node.attr}"] if node.attr in MISSING.get(owner, ()) else []
        if not any(map(checks, guards)):
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


def test_on_windows_files_are_cached_with_other_local_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MARS_CACHE", raising=False)
    monkeypatch.setattr(machine.sys, "platform", "win32")  # type: ignore[attr-defined]
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "Büro 1"))
    assert machine.cache_folder() == tmp_path / "Büro 1" / "mars-live"


def test_without_user_ids_a_temporary_folder_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "getuid")
    actual = machine._private_folder(tmp_path / "own")
    assert actual.is_dir()


def test_a_narrow_console_gets_what_it_can_show() -> None:
    """Code page 1252 of a Windows console has no block, arrow or CJK characters."""
    prompt = "Say → ▁ 火星"
    command = [sys.executable, "-m", "mars_runtime", "generate", "--checkpoint", "mars-tiny"]
    done = subprocess.run(
        [*command, "--prompt", prompt, "--max-new-tokens", "8"],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode("cp1252", "replace")
    assert b"tokens" in done.stdout
