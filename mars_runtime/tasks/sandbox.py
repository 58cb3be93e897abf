"""Run Python that nobody has read, bounded in time, memory and reach.

Source in, one verdict out: of a small function by the results that it should give (``passes``), of
a benchmark's program by a test that is known and trusted (``passes_test``). A syntax walk lets a
small language through, without underscored names and unknown methods, before a separate process
with resource limits, without files and without network, runs it. A program may say more than a
function of our own tasks: exceptions, and a few harmless names of a few modules. Knows no task and
no benchmark.
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
"""The whole language: what is not here is refused, so nothing that Python may learn gets in."""

# Runs in the child, niced: limits first, then the stranger's code with a short list of builtins.
# Once no file can be opened any more, no socket can be either. It gets arguments and never hears
# what is expected of it.
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

# The test's modules come first, for nothing can be opened behind the limits. The program has no
# way to write, to reach the test, or to get from a name it may use to one it may not: of a module
# it gets those names alone, in a namespace of its own, and it sets no attribute of anything. The
# test sees the program's functions, but none in place of one of Python's own.
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
    """Whether a node names something that Python keeps for itself."""
    names = [getattr(node, field, None) for field in ("id", "name", "arg", "asname")]
    return any(isinstance(name, str) and name.startswith("__") for name in names)


def is_harmless(source: str, is_allowed: Callable[[ast.AST], bool] = _is_allowed) -> bool:
    """Say whether the source parses and every node ``is_allowed``: by default, whether it keeps to
    the small language of the tasks."""
    if len(source) > MAX_SOURCE:
        return False
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(is_allowed(node) for node in ast.walk(tree))


def passes(source: str, name: str, cases: list[Case]) -> bool:
    """Say whether the function `name` of this source gives every case's result.

    One at a time: who asks meanwhile waits.
    """
    if not is_harmless(source):
        return False
    wanted = [json.dumps(want, sort_keys=True) for _, want in cases]
    calls = [given for given, _ in cases]
    return _told_by(CHILD, {"source": source, "name": name, "calls": calls}) == wanted


def passes_test(source: str, name: str, test: str) -> bool:
    """Say whether ``check`` of the ``test`` accepts the function ``name`` of this source. One at a
    time: who asks meanwhile waits."""
    if not is_harmless(source, _is_allowed_in_program):
        return False
    job = {"source": source, "name": name, "test": test}
    names = {"builtins": PROGRAM_CALLS, "modules": PROGRAM_MODULES}
    return _told_by(PROGRAM_CHILD, {**job, **names}) is True


def _told_by(child: str, job: Mapping[str, object]) -> object:
    """What a child process writes about a job, read as JSON; None where it does not come to its
    end."""
    given = json.dumps({"builtins": ALLOWED_CALLS, "most": MAX_TOLD, **job})
    try:
        with _one_at_a_time:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", child],
                input=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # the words of an exception may be without end
                text=True,
                timeout=WALL_SECONDS,
                env={},
                cwd="/",
            )
        return json.loads(done.stdout) if done.returncode == 0 else None
    except (subprocess.SubprocessError, OSError, ValueError):
        return None
