"""Run a small Python function that nobody has read, bounded in time, memory and reach.

Knows no task: source, name and cases in, one verdict out. A syntax walk refuses imports, classes,
underscored names and unknown methods before a separate process with resource limits runs the rest.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys

from .base import word_list

MAX_SOURCE = 4000
WALL_SECONDS = 30.0

ALLOWED_CALLS = word_list(
    "abs all any bool dict divmod enumerate filter float int isinstance len list map max "
    "min pow print range reversed round set sorted str sum tuple zip ord chr"
)
ALLOWED_METHODS = frozenset(
    word_list(
        "add append clear copy count discard endswith extend find get index insert isalpha "
        "isdigit islower isspace isupper items join keys lower lstrip pop remove replace "
        "reverse rstrip setdefault sort split splitlines startswith strip swapcase title "
        "union update upper values capitalize isalnum intersection difference"
    )
)
REFUSED = (
    ast.Import,
    ast.ImportFrom,
    ast.ClassDef,
    ast.Global,
    ast.Nonlocal,
    ast.With,
    ast.Try,
    ast.Raise,
    ast.Await,
    ast.AsyncFunctionDef,
    ast.AsyncFor,
    ast.AsyncWith,
)

# Runs in the child: limits first, then the stranger's code with a short list of builtins.
CHILD = """
import sys, json, builtins, resource
for limit, value in ((resource.RLIMIT_CPU, 2), (resource.RLIMIT_AS, 512 << 20),
                     (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0),
                     (resource.RLIMIT_NPROC, 0)):
    resource.setrlimit(limit, (value, value))
job = json.load(sys.stdin)
def canonical(value):
    return json.dumps(value, sort_keys=True)
allowed = {name: getattr(builtins, name) for name in job["builtins"]}
allowed["print"] = lambda *words, **options: None
space = {"__builtins__": allowed, "__name__": "task"}
exec(compile(job["source"], "task", "exec"), space)
function = space[job["name"]]
passed = all(canonical(function(*args)) == canonical(want) for args, want in job["cases"])
sys.stdout.write("passed" if passed else "failed")
"""

Case = tuple[list[object], object]


def is_harmless(source: str) -> bool:
    """Say whether the source parses and keeps to the small language of the tasks."""
    if len(source) > MAX_SOURCE:
        return False
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(_is_allowed(node) for node in ast.walk(tree))


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, REFUSED):
        return False
    if isinstance(node, ast.Attribute):
        return node.attr in ALLOWED_METHODS
    names = [getattr(node, field, None) for field in ("id", "name", "arg")]
    return not any(isinstance(name, str) and name.startswith("__") for name in names)


def passes(source: str, name: str, cases: list[Case]) -> bool:
    """Say whether the function `name` of this source gives every case's result."""
    if not is_harmless(source):
        return False
    job = {"source": source, "name": name, "cases": cases, "builtins": ALLOWED_CALLS}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", CHILD],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            timeout=WALL_SECONDS,
            env={},
            cwd="/",
        )
    except (subprocess.SubprocessError, OSError, UnicodeError):
        return False
    return done.returncode == 0 and done.stdout == "passed"
