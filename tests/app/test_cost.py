"""The cost of the page for decoding: tokens/s with a page open, divided by those of the same run
without one.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.engines.engines import Engines
from app.handlers import Handlers, make_handlers
from app.settings import AppSettings
from mars_runtime.engine.request import Request
from mars_runtime.runs import folds
from mars_runtime.runs.trace import read_trace
from mars_runtime.settings import DecodeSettings

HERE = Path(__file__).parent
CHECKPOINT = HERE.parents[1] / "checkpoints" / "mars-tiny"
PAIRS = 15
# No longer than what the last value of a stream still holds from its beginning.
CHOSEN = {"tau": 0.95, "block_size": 4, "temperature": 1.0, "seed": 1, "max_new_tokens": 120}
CLIENT = """
import json, sys
sys.path[:0] = sys.argv[2:]
from test_bad_input import Visitor
for line in sys.stdin:
    visitor = Visitor(sys.argv[1])
    assert visitor.run(**json.loads(line))[0] == 200
    done = [m for m in visitor.stream() if m["msg"] == "process_completed"]
    print(json.dumps(done[0]["output"]["data"][0]), flush=True)
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHECKPOINT.exists(), reason="the bundled checkpoint is not there"),
]


@pytest.fixture(scope="module")
def handlers() -> Iterator[Handlers]:
    engines = Engines(AppSettings(checkpoint="mars-tiny", port=0))
    yield make_handlers(engines)
    engines.close()


@pytest.fixture(scope="module")
def visitor(handlers: Handlers) -> Iterator[subprocess.Popen[str]]:
    """A process that posts runs and reads their streams, as a browser would."""
    from app.server import serve

    page = serve(handlers, is_blocking=False)
    command = [sys.executable, "-c", CLIENT, page.url, str(HERE), str(HERE.parents[1])]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, text=True, **pipes)
    yield process
    process.kill()
    page.close()


@pytest.mark.parametrize("method", ["ar", "mars"])
def test_streaming_costs_at_most_five_percent(
    handlers: Handlers, visitor: subprocess.Popen[str], method: str
) -> None:
    served = handlers.engines.get("mars-tiny")
    prompt = handlers.book.prompt("natural", 0)
    ids = served.checkpoint.tokenizer.encode_prompt(prompt)
    values = {**CHOSEN, "prompt": prompt, "view": method, "checkpoint": "mars-tiny"}
    ratios = []
    for _ in range(PAIRS):
        direct = list(served.engine.submit(Request(ids, DecodeSettings(method, **CHOSEN))))
        visitor.stdin.write(json.dumps(values) + "\n")
        visitor.stdin.flush()
        value = json.loads(visitor.stdout.readline())
        tag = method + "\t"
        lines = (line.removeprefix(tag) for line in value.splitlines() if line.startswith(tag))
        watched = read_trace(lines).events
        assert folds.accepted_tokens(watched) == folds.accepted_tokens(direct)
        ratios.append(folds.tokens_per_second(watched) / folds.tokens_per_second(direct))
    print(f"{method}: {folds.num_tokens(direct)} tokens, ratios {sorted(ratios)}")
    assert statistics.median(ratios) >= 0.95
