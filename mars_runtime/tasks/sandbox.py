"""Run untrusted Python with limits on time, memory and access.

``passes`` judges a small function by its results, ``passes_test`` a benchmark's program by a
trusted test. First a syntax walk rejects everything outside a small language: names with
underscores, unknown methods. Then a separate process without files and network, with resource
limits, runs the source. A program may use more than a function of our tasks: exceptions, and a few
harmless names of a few modules.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping

from .base import read_data

MAX_SOURCE = 4000
MAX_TOLD = 100_000  # characters
WALL_SECONDS = 30.0

_DATA = read_data("sandbox")
ALLOWED_CALLS: list[str] = _DATA["calls"]
ALLOWED_METHODS = frozenset(_DATA["methods"])
ALLOWED_NODES = (
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Lambda, ast.Return, ast.Pass,
    ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If, ast.For, ast.While, ast.Break,
    ast.Continue, ast.IfExp, ast.Call, ast.keyword, ast.Name, ast.Constant, ast.Attribute,
    ast.Subscript, ast.Slice, ast.Starred, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp,
    ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension, ast.BoolOp, ast.BinOp,
    ast.UnaryOp, ast.Compare, ast.JoinedStr, ast.FormattedValue, ast.expr_context, ast.boolop,
    ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip
"""The syntax nodes of the allowed language. Anything else is rejected, including nodes that Python
may add later.
"""

# Runs in the child process: first the limits, then the untrusted code with a short list of
# builtins. No file can be opened any more, and so no socket. The code gets arguments and never the
# expected results.
LIMITS = """
import sys, json, builtins, os, resource
os.nice(19)
job = json.load(sys.stdin)
most = job["most"]
for limit, value in ((resource.RLIMIT_CPU, 2), (resource.RLIMIT_AS, 512 << 20),
                     (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0),
                     (resource.RLIMIT_NPROC, 0), (resource.RLIMIT_NOFILE, 0)):
    resource.setrlimit(limit, (value, value))
"""
CHILD = (
    LIMITS
    + """
allowed = {name: getattr(builtins, name) for name in job["builtins"]}
allowed["print"] = lambda *words, **options: None
space = {"__builtins__": allowed, "__name__": "task"}
exec(compile(job["source"], "task", "exec"), space)
function = space[job["name"]]
told = json.dumps([json.dumps(function(*given), sort_keys=True) for given in job["calls"]])
sys.stdout.write(told if len(told) <= most else "")
"""
)
PROGRAM_MODULES: dict[str, list[str]] = _DATA["program"]["modules"]
"""Names that a program may import, by module."""
PROGRAM_CALLS = [*ALLOWED_CALLS, *_DATA["program"]["calls"]]
PROGRAM_METHODS = ALLOWED_METHODS.union(_DATA["program"]["methods"])
PROGRAM_NODES = (
    *ALLOWED_NODES, ast.Import, ast.ImportFrom, ast.alias, ast.Raise, ast.Try, ast.ExceptHandler,
    ast.Assert, ast.NamedExpr, ast.Delete, ast.Nonlocal, ast.Yield,
)  # fmt: skip

# The test's modules are imported first, because nothing can be opened once the limits are set. The
# program cannot write, reach the test, or get from an allowed name to another one: a module is a
# namespace with the allowed names only, and attributes cannot be set. The test sees the program's
# functions, but none that would replace a builtin.
PROGRAM_CHILD = (
    "import collections, copy, functools, hashlib, itertools, math, random, re, string, types\n"
    "import typing\n"
    + LIMITS
    + """
modules = {
    name: types.SimpleNamespace(**{one: getattr(sys.modules[name], one) for one in names})
    for name, names in job["modules"].items()
}
def only_these(name, *given, **more):
    return modules[name]
allowed = {name: getattr(builtins, name) for name in job["builtins"]}
allowed |= {"print": lambda *words, **options: None, "__import__": only_these}
space = {"__builtins__": allowed, "__name__": "program"}
exec(compile(job["source"], "program", "exec"), space)
trusted = {name: what for name, what in space.items() if not hasattr(builtins, name)}
trusted |= {"__name__": "test", "__builtins__": builtins, "print": allowed["print"]}
exec(compile(job["test"], "test", "exec"), trusted)
trusted["check"](space[job["name"]])
sys.stdout.write("true")
"""
)
_one_at_a_time = threading.Lock()

Case = tuple[list[object], object]


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ALLOWED_METHODS
    return isinstance(node, ALLOWED_NODES) and not _has_hidden_name(node)


def _is_allowed_in_program(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        is_known = node.attr in PROGRAM_METHODS.union(*PROGRAM_MODULES.values())
        return is_known and isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Import):
        return all(alias.name in PROGRAM_MODULES for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        names = PROGRAM_MODULES.get(node.module or "", ())
        return not node.level and all(alias.name in names for alias in node.names)
    return isinstance(node, PROGRAM_NODES) and not _has_hidden_name(node)


def _has_hidden_name(node: ast.AST) -> bool:
    """Whether a node uses a name that Python reserves for itself."""
    names = [getattr(node, field, None) for field in ("id", "name", "arg", "asname")]
    return any(isinstance(name, str) and name.startswith("__") for name in names)


def is_harmless(source: str, is_allowed: Callable[[ast.AST], bool] = _is_allowed) -> bool:
    """Return whether the source parses and every node ``is_allowed``: by default, whether it stays
    within the small language of the tasks.
    """
    if len(source) > MAX_SOURCE:
        return False
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(is_allowed(node) for node in ast.walk(tree))


def passes(source: str, name: str, cases: list[Case]) -> bool:
    """Return whether the function `name` of this source gives the expected result for every case.

    Runs one at a time; other callers wait.
    """
    if not is_harmless(source):
        return False
    wanted = [json.dumps(want, sort_keys=True) for _, want in cases]
    calls = [arguments for arguments, _ in cases]
    return _told_by(CHILD, {"source": source, "name": name, "calls": calls}) == wanted


def passes_test(source: str, name: str, test: str) -> bool:
    """Return whether ``check`` of the ``test`` accepts the function ``name`` of this source. Runs
    one at a time; other callers wait.
    """
    if not is_harmless(source, _is_allowed_in_program):
        return False
    job = {"source": source, "name": name, "test": test}
    names = {"builtins": PROGRAM_CALLS, "modules": PROGRAM_MODULES}
    return _told_by(PROGRAM_CHILD, {**job, **names}) is True


def _told_by(child: str, job: Mapping[str, object]) -> object:
    """Return what a child process writes about a job, parsed from JSON; None if it fails or is
    killed.
    """
    job_json = json.dumps({"builtins": ALLOWED_CALLS, "most": MAX_TOLD, **job})
    try:
        with _one_at_a_time:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", child],
                input=job_json,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # an exception's message may be endless
                text=True,
                timeout=WALL_SECONDS,
                env={},
                cwd="/",
            )
        return json.loads(done.stdout) if done.returncode == 0 else None
    except (subprocess.SubprocessError, OSError, ValueError):
        return None
