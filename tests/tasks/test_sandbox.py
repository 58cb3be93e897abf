"""Foreign Python is judged within its bounds, by its results; what is hostile is wrong."""

from __future__ import annotations

import logging
import resource

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mars_runtime.tasks import Task, check, is_checkable, sandbox, verdict
from mars_runtime.tasks.python_functions import extract_code
from mars_runtime.tasks.sandbox import NO_LIMITS, is_harmless, passes

TASK = Task(
    "python_functions",
    "add",
    "Write a Python function `plus_2(x)` that returns x plus 2.",
    "```python\ndef plus_2(x):\n    return x + 2\n```",
    '{"name": "plus_2", "cases": [[[1], 3], [[-2], 0]]}',
)
HOSTILE = {
    "import": "import os\ndef plus_2(x):\n    os.system('true')\n    return x + 2",
    "inner import": "def plus_2(x):\n    import os\n    return x + 2",
    "dunder import": "def plus_2(x):\n    __import__('os')\n    return x + 2",
    "open": "def plus_2(x):\n    open('/tmp/mars-hostile', 'w')\n    return x + 2",
    "attribute": "def plus_2(x):\n    ().__class__.__bases__\n    return x + 2",
    "frames": "def plus_2(x):\n    (i for i in [1]).gi_frame\n    return x + 2",
    "format": "def plus_2(x):\n    '{0.real}'.format(x)\n    return x + 2",
    "exec": "def plus_2(x):\n    exec('x = 1')\n    return x + 2",
    "getattr": "def plus_2(x):\n    getattr(x, 'real')\n    return x + 2",
    "class": "class A:\n    pass\ndef plus_2(x):\n    return x + 2",
    "says passed": "print('passed')",
    "wrong type": "def plus_2(x):\n    return float(x + 2)",
    "recursion": "def plus_2(x):\n    return plus_2(x)",
    "deep source": "def plus_2(x):\n    return " + "(" * 500 + "x" + ")" * 500,
    "memory": "def plus_2(x):\n    return len([0] * 7 * 10 ** 7) - 7 * 10 ** 7 + x + 2",
    "endless loop": "def plus_2(x):\n    while True:\n        x = x + 1\n",
    "growing memory": "def plus_2(x):\n    a = [x]\n    while True:\n        a.extend(a)",
}


@pytest.fixture(autouse=True)
def _one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a processor for each program, not two: what has no end is tried, and niced."""
    child = sandbox.CHILD.replace("RLIMIT_CPU, 2", "RLIMIT_CPU, 1")
    assert child != sandbox.CHILD
    monkeypatch.setattr(sandbox, "CHILD", child)


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_code_is_wrong_and_stopped(source: str) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert not check(TASK, f"```python\n{source}\n```")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 4


@pytest.mark.parametrize(
    "text",
    [
        TASK.answer,
        "Here it is:\n" + TASK.answer + "\nIt adds 2.",
        "```\ndef plus_2(x):\n    return 2 + x\n```",
        "```py\ndef plus_2(n):\n    return n + 2",
        "def plus_2(x):\n    return x + 2",
        "Sure.\ndef plus_2(x):\n    print(x)\n    return sum([x, 2])",
    ],
)
def test_right_code_passes_however_it_is_wrapped(text: str) -> None:
    assert check(TASK, text)

    assert passes("def f(x):\n    return True", "f", [([3], True)])
    assert not passes("def f(x):\n    return 1", "f", [([3], True)])


def test_without_limits_nothing_runs_and_no_answer_is_wrong(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert is_checkable(TASK)
    monkeypatch.setattr(sandbox.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sandbox.subprocess, "run", lambda *_, **__: pytest.fail("a child ran"))
    sandbox.is_available.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert not is_checkable(TASK)
            assert not check(TASK, TASK.answer)
            assert verdict(TASK, TASK.answer, is_cut=False) is None
        assert [record.message for record in caplog.records] == [NO_LIMITS]
        assert not passes("def f(x):\n    return x", "f", [([1], 1)])
    finally:
        sandbox.is_available.cache_clear()


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=120))
def test_reading_code_never_raises(text: str) -> None:
    assert not is_harmless(f"def f(x):\n    return __{text}__")
    is_harmless(extract_code("```python\ndef " + text))
    is_harmless(text)
