"""Small Python functions, judged by running them on a few calls.

Knows the specifications and the sandbox; it never runs foreign code in this process.
"""

from __future__ import annotations

import json
import random
import re

from .base import Family, Split, Task, phrase
from .python_specs import NUMBER_SPECS, Spec
from .python_specs_lists import LIST_SPECS
from .python_specs_text import STRING_SPECS
from .sandbox import Case, passes

SPECS = NUMBER_SPECS + STRING_SPECS + LIST_SPECS
FRAMES = (
    "Write a Python function `{sig}` that {does}.",
    "Define `{sig}` in Python. It {does}.",
    "Please write `{sig}`, a Python function that {does}.",
    "I need a Python function `{sig}` that {does}.",
    "Code a Python function `{sig}` which {does}.",
    "Give me Python code for `{sig}`. The function {does}.",
    "Python: implement `{sig}`. It {does}.",
)
HELD_OUT_FRAMES = (
    "Can you write a Python function `{sig}` that {does}?",
    "Implement a Python function `{sig}` that {does}.",
)
VARIABLES = {
    "x": ("x", "n", "num", "value"),
    "y": ("y", "other", "second"),
    "t": ("items", "values", "nums", "data"),
    "s": ("text", "s", "word", "string"),
    "w": ("words", "names", "parts"),
}
STRINGS = ("banana", "level", "a red apple", "tree", "sun and sea", "noon", "cat", "oak-tree")
_FENCE = re.compile(r"```(?:[ \t]*(?:python|py))?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)


def _fields(rng: random.Random) -> dict[str, str]:
    fields = {kind: rng.choice(names) for kind, names in VARIABLES.items()}
    small = rng.randint(2, 9)
    return fields | {
        "k": str(small),
        "m": str(rng.randint(10, 50)),
        "c": rng.choice("abcdelmnorstw"),
        "p": rng.choice(("-", "+", " ", "/", "_", "*")),
    }


def _argument(kind: str, rng: random.Random, fields: dict[str, str]) -> object:
    if kind == "s":
        pieces = [rng.choice(STRINGS), fields["c"] + rng.choice(STRINGS)]
        return rng.choice([*pieces, rng.choice(STRINGS) + fields["c"]])
    if kind == "w":
        return rng.sample(STRINGS, rng.randint(2, 4))
    if kind == "t":
        return [rng.randint(-3, 15) for _ in range(rng.randint(2, 6))]
    return rng.randint(0, 12)


def _calls(spec: Spec, rng: random.Random, fields: dict[str, str]) -> list[list[object]]:
    kinds = spec.args.split()
    calls = [[_argument(kind, rng, fields) for kind in kinds] for _ in range(6)]
    if kinds == ["x"] and spec.kind in ("absolute", "sign", "clamp", "bigger_than"):
        calls += [[-4], [0], [int(fields["m"]) + 3], [int(fields["m"])]]
    if kinds == ["x"] and spec.kind in ("is_even", "is_odd", "divisible", "remainder"):
        calls += [[int(fields["k"]) * 3], [7], [8]]
    if spec.kind in ("contains", "above", "count_above"):
        calls += [[[int(fields["k"]), 20, 1]], [[1, 1]]]
    if spec.kind == "palindrome":
        calls += [["level"], ["noon"], ["tree"]]
    return calls


def _results(source: str, name: str, calls: list[list[object]]) -> list[Case]:
    """Run our own reference source, and only that, in this process."""
    space: dict[str, object] = {}
    exec(compile(source, "reference", "exec"), space)
    function = space[name]
    assert callable(function)
    return [(call, function(*call)) for call in calls]


def extract_code(text: str) -> str:
    """The last fenced block that defines a function, or the text from its first `def` on."""
    blocks = [block for block in _FENCE.findall(text) if "def " in block]
    if blocks:
        return str(blocks[-1])
    start = re.search(r"^def ", text, re.MULTILINE)
    return text[start.start() :].split("```")[0] if start else ""


class PythonFunctions(Family):
    """Functions of one to five lines."""

    name = "python_functions"
    title = "Python functions"
    benchmark = "HumanEval"

    def draft(self, rng: random.Random, split: Split) -> Task:
        spec = rng.choice(SPECS)
        fields = _fields(rng)
        name = rng.choice(spec.names).format(**fields)
        signature = f"{name}({', '.join(fields[arg] for arg in spec.args.split())})"
        does = rng.choice(spec.does).format(**fields)
        prompt = phrase(rng, split, FRAMES, HELD_OUT_FRAMES).format(sig=signature, does=does)
        body = "\n".join("    " + line for line in spec.lines.format(**fields).split("\n"))
        source = f"def {signature}:\n{body}\n"
        cases = _results(source, name, _calls(spec, rng, fields))
        expected = json.dumps({"name": name, "cases": cases})
        return Task(self.name, spec.kind, prompt, f"```python\n{source}```", expected)

    def judge(self, task: Task, text: str) -> bool:
        expected = json.loads(task.expected)
        return passes(extract_code(text), expected["name"], expected["cases"])
