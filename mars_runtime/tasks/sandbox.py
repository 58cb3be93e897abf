"""Judge an untrusted Python function of a small subset of Python, in a process with limits of time
and memory that can open neither files nor sockets. Windows has no such limits; there nothing
runs."""

from __future__ import annotations

import ast
import importlib.util
import json
import logging
import subprocess
import sys
import threading
from functools import cache

from .base import read_data

MAX_SOURCE = 4000
MAX_OUTPUT = 100_000  # characters
WALL_SECONDS = 30.0
NO_LIMITS = (
    "Generated Python code cannot be judged on this system: it has no Python module `resource`, "
    "which limits the memory and file access of the code. Use Linux or macOS to judge it."
)
log = logging.getLogger(__name__)

_DATA = read_data("sandbox")
ALLOWED_CALLS: list[str] = _DATA["calls"]
ALLOWED_METHODS = frozenset(_DATA["methods"])
ALLOWED_NODES: tuple[type[ast.AST], ...] = tuple(getattr(ast, name) for name in _DATA["nodes"])
"""All other nodes are rejected, including those that later versions of Python add."""

# The child process sets its limits first; with RLIMIT_NOFILE 0 it can open neither files nor
# sockets. It then runs the untrusted code with a short list of builtins. The child receives the
# arguments but never the expected results, so the code cannot copy them.
CHILD = """
import sys, json, builtins, os, resource
os.nice(19)
job = json.load(sys.stdin)
max_output = job["max_output"]
for limit, value in ((resource.RLIMIT_CPU, 2), (resource.RLIMIT_AS, 512 << 20),
                     (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0),
                     (resource.RLIMIT_NPROC, 0), (resource.RLIMIT_NOFILE, 0)):
    resource.setrlimit(limit, (value, value))

allowed = {name: getattr(builtins, name) for name in job["builtins"]}
allowed["print"] = lambda *words, **options: None
space = {"__builtins__": allowed, "__name__": "task"}
exec(compile(job["source"], "task", "exec"), space)
function = space[job["name"]]
results = [json.dumps(function(*arguments), sort_keys=True) for arguments in job["calls"]]
output = json.dumps(results)
sys.stdout.write(output if len(output) <= max_output else "")
"""
_one_at_a_time = threading.Lock()

Case = tuple[list[object], object]


@cache
def is_available() -> bool:
    """If it cannot, log a warning once."""
    has_limits = importlib.util.find_spec("resource") is not None
    if not has_limits:
        log.warning(NO_LIMITS)
    return has_limits


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ALLOWED_METHODS
    return isinstance(node, ALLOWED_NODES) and not _has_hidden_name(node)


def _has_hidden_name(node: ast.AST) -> bool:
    names = [getattr(node, field, None) for field in ("id", "name", "arg", "asname")]
    return any(isinstance(name, str) and name.startswith("__") for name in names)


def is_harmless(source: str) -> bool:
    if len(source) > MAX_SOURCE:
        return False
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(_is_allowed(node) for node in ast.walk(tree))


def passes(source: str, name: str, cases: list[Case]) -> bool:
    """False if the child fails or exceeds a limit, and on a system without limits. Only one child
    runs at a time."""
    if not (is_available() and is_harmless(source)):
        return False
    expected = [json.dumps(result, sort_keys=True) for _, result in cases]
    job = {"builtins": ALLOWED_CALLS, "max_output": MAX_OUTPUT, "source": source, "name": name}
    calls = [arguments for arguments, _ in cases]
    try:
        with _one_at_a_time:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", CHILD],
                input=json.dumps({**job, "calls": calls}),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # discarded, because its length is unlimited
                text=True,
                timeout=WALL_SECONDS,
                env={},
                cwd="/",
            )
        return bool(done.returncode == 0 and json.loads(done.stdout) == expected)
    except (subprocess.SubprocessError, OSError, ValueError):
        return False
