"""Tasks that ask for a small Python function, in the style of HumanEval; the checker calls it in
the sandbox, never in this process. Placeholders of python_functions.json: {x} and {y} numbers, {t}
list of numbers, {s} string, {w} list of strings, {k} and {m} small and larger constants, {c}
letter, {p} punctuation mark."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any

from .base import Family, Split, Task, phrase, read_data
from .sandbox import Case, passes

_DATA = read_data("python_functions")
_FENCE = re.compile(r"```(?:[ \t]*(?:python|py))?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)


def _fields(rng: random.Random) -> dict[str, str]:
    fields = {kind: rng.choice(names) for kind, names in _DATA["variables"].items()}
    small = rng.randint(2, 9)
    return fields | {
        "k": str(small),
        "m": str(rng.randint(10, 50)),
        "c": rng.choice("abcdelmnorstw"),
        "p": rng.choice(("-", "+", " ", "/", "_", "*")),
    }


def _argument(kind: str, rng: random.Random, fields: dict[str, str]) -> object:
    if kind == "s":
        plain, first, last = (rng.choice(_DATA["strings"]) for _ in range(3))
        return rng.choice([plain, fields["c"] + first, last + fields["c"]])
    if kind == "w":
        return rng.sample(_DATA["strings"], rng.randint(2, 4))
    if kind == "t":
        return [rng.randint(-3, 15) for _ in range(rng.randint(2, 6))]
    return rng.randint(0, 12)


def _calls(
    spec: Mapping[str, Any], rng: random.Random, fields: dict[str, str]
) -> list[list[object]]:
    kind = spec["kind"]
    calls = [[_argument(kind, rng, fields) for kind in spec["args"]] for _ in range(6)]
    if kind in ("absolute", "sign", "clamp", "bigger_than"):
        calls += [[-4], [0], [int(fields["m"]) + 3], [int(fields["m"])]]
    if kind in ("is_even", "is_odd", "divisible", "remainder"):
        calls += [[int(fields["k"]) * 3], [7], [8]]
    if kind in ("contains", "above", "count_above"):
        calls += [[[int(fields["k"]), 20, 1]], [[1, 1]]]
    if kind == "palindrome":
        calls += [["level"], ["noon"], ["tree"]]
    return calls


def _results(source: str, name: str, calls: list[list[object]]) -> list[Case]:
    """Run ``source`` in this process: a reference of this repository, never a model's."""
    space: dict[str, object] = {}
    exec(compile(source, "reference", "exec"), space)
    function = space[name]
    assert callable(function)
    return [(call, function(*call)) for call in calls]


def extract_code(text: str) -> str:
    blocks = [block for block in _FENCE.findall(text) if "def " in block]
    if blocks:
        return str(blocks[-1])
    start = re.search(r"^def ", text, re.MULTILINE)
    return text[start.start() :].split("```")[0] if start else ""


class PythonFunctions(Family):
    name = "python_functions"

    def draft(self, rng: random.Random, split: Split) -> Task:
        spec = rng.choice(_DATA["specs"])
        fields = _fields(rng)
        name = rng.choice(spec["names"]).format(**fields)
        signature = f"{name}({', '.join(fields[arg] for arg in spec['args'])})"
        does = rng.choice(spec["does"]).format(**fields)
        prompt = phrase(rng, split, _DATA["frames"]).format(sig=signature, does=does)
        body = "\n".join("    " + line.format(**fields) for line in spec["lines"])
        source = f"def {signature}:\n{body}\n"
        cases = _results(source, name, _calls(spec, rng, fields))
        expected = json.dumps({"name": name, "cases": cases})
        return Task(self.name, spec["kind"], prompt, f"```python\n{source}```", expected)

    def is_right(self, task: Task, text: str, is_cut: bool) -> bool:
        num_fences = text.count("```")
        if is_cut and (num_fences == 0 or num_fences % 2):
            return False
        expected = json.loads(task.expected)
        return passes(extract_code(text), expected["name"], expected["cases"])
