"""Code that was written to get at the judge: its answers, its machine, its time."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mars_runtime.tasks import sandbox
from mars_runtime.tasks.sandbox import passes

CASES: list[sandbox.Case] = [([1], 3), ([-2], 0)]
ATTACKS = (
    "def f(x):\n    match x:\n        case int(real=r):\n            return r + 2",
    "def f(x):\n    try:\n        return x.n\n    except* ValueError:\n        return 3",
    "async def f(x):\n    return x + 2",
    "@print\ndef f(x):\n    return x + 2",
    "def f(x):\n    return 'x' * 10 ** 8",
)


@pytest.mark.parametrize("source", ATTACKS)
def test_it_is_just_wrong(source: str) -> None:
    assert not passes(source, "f", CASES)


def test_the_child_never_hears_what_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    run = sandbox.subprocess.run

    def listening(*given: Any, **more: Any) -> Any:
        sent.append(more["input"])
        return run(*given, **more)

    monkeypatch.setattr(sandbox.subprocess, "run", listening)
    assert passes("def f(x):\n    return x * 1000", "f", [([73], 73000)])
    assert "73]" in sent[0]
    assert "73000" not in sent[0]


PROBE = """
import socket
told = {"nice": os.nice(0)}
for name, attempt in (("file", lambda: open("/etc/hostname")), ("socket", socket.socket)):
    try:
        attempt()
        told[name] = "open"
    except OSError:
        told[name] = "refused"
sys.stdout.write(json.dumps(told))
"""


def test_the_child_is_niced_and_opens_neither_files_nor_sockets() -> None:
    """The child as it is, with a probe in place of the stranger's code."""
    head = sandbox.CHILD.partition("exec(")[0]
    assert head != sandbox.CHILD
    child = head.replace("import sys,", "import socket, sys,") + PROBE
    done = sandbox.subprocess.run(
        [sandbox.sys.executable, "-I", "-S", "-c", child],
        input=json.dumps({"max_output": 1, "builtins": []}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == {"nice": 19, "file": "refused", "socket": "refused"}


def test_one_is_judged_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most = 0, 0

    def counted(*given: Any, **more: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.02)
        running -= 1
        raise OSError

    monkeypatch.setattr(sandbox.subprocess, "run", counted)
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda _: passes("def f(x):\n    return x", "f", CASES), range(12)))
    assert most == 1
