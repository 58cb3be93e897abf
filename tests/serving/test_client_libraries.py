"""The current releases of client libraries against ``python -m mars_runtime serve``: a chat, a
stream, a stop string, a seed, an error, and a response where the library has the Responses API.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mars_runtime.serving.models import unknown
from tests.environments import make_environment
from tests.serving.client_probe import LENGTH, LIBRARIES

MODEL = "mars-tiny"
PROMPT, STOP, SEED = "Sort these numbers: 7, 3, 5", ", 5", 7
PROBE = Path(__file__).with_name("client_probe.py")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the newest releases of the libraries."""
    return make_environment(tmp_path_factory.mktemp("clients") / "venv", *LIBRARIES)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where the command serves."""
    command = [sys.executable, "-m", "mars_runtime", "serve", "--port", "0", "--checkpoint", MODEL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        match = re.search(r"http://\S+(?=/v1)", process.stdout.readline())
        assert match is not None
        yield match.group()
        process.terminate()


def text_of(address: str, **more: Any) -> str:
    """The answer without a library."""
    messages = [{"role": "user", "content": PROMPT}]
    body = {"model": MODEL, "messages": messages, "max_tokens": LENGTH, **more}
    answer = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=120)
    return str(answer.json()["choices"][0]["message"]["content"])


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_client_library_gets_what_the_endpoint_answers(
    python: Path, address: str, library: str
) -> None:
    whole, drawn = text_of(address), text_of(address, temperature=1, seed=SEED)
    assert drawn != whole
    assert STOP in whole
    command = [str(python), str(PROBE), library, address, MODEL, PROMPT, STOP, str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout.splitlines()[-1])
    assert body["chat"] == whole
    assert "".join(body["stream"]) == whole
    assert len(list(filter(None, body["stream"]))) > 1
    assert body["stop"] == whole[: whole.index(STOP)]
    assert body["seed"] == [drawn, drawn]
    assert str(unknown([MODEL])) in body["error"]
    assert body["response"] == whole
    assert "".join(body.get("events", [whole])) == whole
    if library == "openai":
        assert body["figures"]["num_spec_steps"] == sum(body["figures"]["acceptance_histogram"])
