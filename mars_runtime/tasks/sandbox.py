"""Run a small Python function that nobody has read, bounded in time, memory and reach.

Knows no task: source, name and cases in, one verdict out. A syntax walk lets a small language
through, without underscored names and unknown methods, before a separate process with resource
limits, without files and without network, runs it.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping

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
MAX_TOLD = 100_000  # characters
_one_at_a_time = threading.Lock()

Case = tuple[list[object], object]


def is_harmless(source: str, is_allowed: Callable[[ast.AST], bool] | None = None) -> bool:
    """Say whether the source parses and every node ``is_allowed``: by default, whether it keeps to
    the small language of the tasks."""
    allows = is_allowed or _is_allowed
    if len(source) > MAX_SOURCE:
        return False
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(allows(node) for node in ast.walk(tree))


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ALLOWED_METHODS
    return isinstance(node, ALLOWED_NODES) and not has_hidden_name(node)


def has_hidden_name(node: ast.AST) -> bool:
    """Whether a node names something that Python keeps for itself."""
    names = [getattr(node, field, None) for field in ("id", "name", "arg", "asname")]
    return any(isinstance(name, str) and name.startswith("__") for name in names)


def passes(source: str, name: str, cases: list[Case]) -> bool:
    """Say whether the function `name` of this source gives every case's result.

    One at a time: who asks meanwhile waits.
    """
    if not is_harmless(source):
        return False
    wanted = [json.dumps(want, sort_keys=True) for _, want in cases]
    calls = [given for given, _ in cases]
    return told_by(CHILD, {"source": source, "name": name, "calls": calls}) == wanted


def told_by(child: str, job: Mapping[str, object]) -> object:
    """What a child process writes about a job, read as JSON; None where it does not come to its
    end. One at a time: who asks meanwhile waits."""
    with _one_at_a_time:
        return _told_by(child, {"builtins": ALLOWED_CALLS, "most": MAX_TOLD, **job})


def _told_by(child: str, job: Mapping[str, object]) -> object:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", child],
            input=json.dumps(job),
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
