"""Programs of a benchmark pass by their test alone, and reach nothing else."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from mars_runtime.tasks.programs import passes_test

HUMANEVAL = Path(__file__).parents[3] / "shared" / "data" / "benchmarks" / "HumanEval.jsonl.gz"
TEST = "def check(candidate):\n    assert candidate(3) == 5\n"

HARMLESS = {
    "plain": "def f(x):\n    return x + 2",
    "modules": "import math\nfrom collections import Counter\ndef f(x):\n    "
    "return int(math.sqrt(4)) + sum(Counter([1] * x).values())",
    "exceptions": "def f(x):\n    try:\n        raise ValueError('no')\n"
    "    except ValueError:\n        return x + 2",
    "a helper the test knows": "def helper(x):\n    return x + 2\ndef f(x):\n    return helper(x)",
}
HOSTILE = {
    "os": "import os\ndef f(x):\n    return 5",
    "a module of a module": "import typing\ndef f(x):\n    return typing.sys.maxsize",
    "from a module": "from typing import sys\ndef f(x):\n    return 5",
    "everything": "from math import *\ndef f(x):\n    return 5",
    "relative": "from . import math\ndef f(x):\n    return 5",
    "import by name": "def f(x):\n    return __import__('os')",
    "import by alias": "import math as __builtins__\ndef f(x):\n    return 5",
    "traceback": "def f(x):\n    try:\n        x.nothing\n    except Exception as e:\n"
    "        return e.__traceback__",
    "class": "class Five:\n    pass\ndef f(x):\n    return 5",
    "says so itself": "print('true')",
    "open": "def f(x):\n    return open('/etc/hostname')",
    "endless": "def f(x):\n    while True:\n        x += 1",
    "wrong": "def f(x):\n    return x",
    "the test's own": "def check(candidate):\n    return True\ndef f(x):\n    return 0",
    "another abs": "def abs(x):\n    return 5\ndef f(x):\n    return 0",
}


@pytest.mark.parametrize("source", HARMLESS.values(), ids=HARMLESS.keys())
def test_a_right_program_passes(source: str) -> None:
    assert passes_test(source, "f", TEST)


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_wrong_or_hostile_program_does_not(source: str) -> None:
    test = TEST.replace("candidate(3) == 5", "abs(candidate(3) - 5) == 0")
    assert not passes_test(source, "f", test)


def test_the_test_sees_the_helpers_of_the_program() -> None:
    source = "def encode(x):\n    return x + 1\ndef f(x):\n    return x - 1"
    assert passes_test(source, "f", "def check(c):\n    assert c(encode(4)) == 4\n")


@pytest.mark.slow
def test_reference_solutions_pass_but_the_one_that_evaluates_text() -> None:
    if not HUMANEVAL.is_file():
        pytest.skip("HumanEval is not beside this repository")
    with gzip.open(HUMANEVAL, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    wrong = [
        row["task_id"]
        for row in rows
        if not passes_test(
            row["prompt"] + row["canonical_solution"], row["entry_point"], row["test"]
        )
    ]
    assert len(rows) == 164
    assert wrong == ["HumanEval/160"]
