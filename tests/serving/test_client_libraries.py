"""Current releases of client libraries against ``python -m mars_runtime serve``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mars_runtime.serving.models import unknown
from tests.environments import make_environment
from tests.serving.client_probe import LENGTH, LIBRARIES

MODEL = "mars-tiny"
PROMPT, STOP = "Sort these numbers: 7, 3, 5", ", 5"
PROBE = Path(__file__).with_name("client_probe.py")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("clients") / "venv", *LIBRARIES)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    command = [sys.executable, "-m", "mars_runtime", "serve", "--port", "0", "--checkpoint", MODEL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        match = re.search(r"http://\S+(?=/v1)", process.stdout.readline())
        assert match is not None
        yield match.group()
        process.terminate()


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_gets_the_same_answers(python: Path, address: str, library: str) -> None:
    ask = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": LENGTH}
    answer = httpx.post(f"{address}/v1/chat/completions", json={"model": MODEL, **ask}, timeout=120)
    whole = answer.json()["choices"][0]["message"]["content"]
    command = [str(python), str(PROBE), library, address, MODEL, PROMPT, STOP]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    actual = json.loads(done.stdout.splitlines()[-1])
    assert actual["chat"] == actual["response"] == "".join(actual["stream"]) == whole
    assert len(list(filter(None, actual["stream"]))) > 1
    assert actual["stop"] == whole[: whole.index(STOP)]
    assert str(unknown([MODEL])) in actual["error"]
