"""Run a program that nobody has read against a test that is known, as benchmarks of code ask.

The program may say more than the tasks' own functions may (``sandbox.py``): exceptions, and a few
harmless names of a few modules. The test is the benchmark's and trusted; both run in the sandbox's
child process, without files, network and time. Knows no benchmark.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from .base import word_list
from .sandbox import (
    ALLOWED_CALLS,
    ALLOWED_METHODS,
    ALLOWED_NODES,
    LIMITS,
    has_hidden_name,
    is_harmless,
    told_by,
)

MODULES: Mapping[str, tuple[str, ...]] = {
    "math": word_list(
        "pi e inf sqrt ceil floor gcd log log2 log10 pow exp sin cos tan atan fabs factorial "
        "trunc prod isqrt comb perm hypot degrees radians fsum isclose lcm"
    ),
    "typing": word_list("List Dict Tuple Set Any Optional Union Iterable Callable Sequence"),
    "collections": word_list("Counter defaultdict deque OrderedDict"),
    "itertools": word_list(
        "permutations combinations product accumulate chain groupby count islice zip_longest"
    ),
    "functools": word_list("reduce"),
    "string": word_list("ascii_lowercase ascii_uppercase ascii_letters digits punctuation"),
    "re": word_list("sub findall split match fullmatch"),
    "hashlib": word_list("md5"),
}
"""Names that a program may import, by module."""

METHODS = ALLOWED_METHODS | frozenset(
    word_list(
        "most_common elements appendleft popleft rotate setdefault isupper isnumeric isdecimal "
        "rindex rfind rsplit rjust ljust zfill center casefold encode hexdigest is_integer "
        "issubset issuperset symmetric_difference partition rpartition istitle group from_iterable"
    )
)
CALLS = (
    *ALLOWED_CALLS,
    *word_list(
        "bin hex oct iter next frozenset complex hash bytes Exception ValueError TypeError "
        "IndexError KeyError ZeroDivisionError StopIteration AssertionError"
    ),
)
NODES = (
    *ALLOWED_NODES, ast.Import, ast.ImportFrom, ast.alias, ast.Raise, ast.Try, ast.ExceptHandler,
    ast.Assert, ast.NamedExpr, ast.Delete, ast.Nonlocal, ast.Yield,
)  # fmt: skip

# The test's modules come first, for nothing can be opened behind the limits. The program has no
# way to write, to reach the test, or to get from a name it may use to one it may not: of a module
# it gets those names alone, in a namespace of its own, and it sets no attribute of anything. The
# test sees the program's functions, but none in place of one of Python's own.
CHILD = (
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


def passes_test(source: str, name: str, test: str) -> bool:
    """Say whether ``check`` of the ``test`` accepts the function ``name`` of this source. One at a
    time: who asks meanwhile waits."""
    if not is_harmless(source, _is_allowed):
        return False
    job = {"source": source, "name": name, "test": test}
    return told_by(CHILD, {**job, "builtins": CALLS, "modules": dict(MODULES)}) is True


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        is_known = node.attr in METHODS or any(node.attr in names for names in MODULES.values())
        return is_known and isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Import):
        return all(alias.name in MODULES for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        names = MODULES.get(node.module or "", ())
        return not node.level and all(alias.name in names for alias in node.names)
    return isinstance(node, NODES) and not has_hidden_name(node)
