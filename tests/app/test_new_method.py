"""A method that is written in one file decodes, follows the laws and runs on the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
METHOD = """
from mars_runtime.decoders.methods import LANES, METHODS
from mars_runtime.decoders.methods.base import Method

class AcceptTwo(Method):
    name = "two"
    title = "always two"
    needs = "a mask token"

    def num_proposals(self, settings):
        return 2

    def num_accepted(self, confidences, settings, remaining):
        return min(2, len(confidences))

METHODS["two"] = LANES["two"] = AcceptTwo()
"""
RUN = """
import json
from dataclasses import asdict
from app.api.runs import generate
from app.engines.engines import Engines
from app.settings import AppSettings
from app.ui.controls import TITLES
from app.ui.examples import ExampleBook
from mars_runtime.decoders.cursor import decode
from mars_runtime.runs.events import Step
from mars_runtime.runs.folds import sources
from mars_runtime.model.load import load_checkpoint
from mars_runtime.settings import DecodeSettings, describe

settings = DecodeSettings(method="two", max_new_tokens=9)
checkpoint = load_checkpoint("checkpoints/mars-tiny")
tokenizer = checkpoint.tokenizer
prompts = [tokenizer.encode(text) for text in ("Sort: cat, bee, ant", "Add 12 and 30.")]

def run(prompts):
    events = decode(checkpoint.model, tokenizer, prompts, lambda: settings)
    return list(events)

both, alone = run(prompts), [run([prompt]) for prompt in prompts]
rows = [[row for step in both if isinstance(step, Step) for row in step.rows if row.row == n]
        for n in (0, 1)]
def next_of(ids):
    (prefill, step, *_) = decode(
        checkpoint.model, tokenizer, [ids], lambda: DecodeSettings("ar", max_new_tokens=1))
    return step.rows[0].accepted[0]

engines = Engines(AppSettings(checkpoint="mars-tiny"))
values = asdict(DecodeSettings())
values |= {"method": "two", "prompt": "Sort: cat, bee, ant", "max_new_tokens": 9,
           "checkpoint": "mars-tiny", "system": ""}
*_, page = generate(engines, ExampleBook(), values)
engines.close()
written = [[token for row in steps for token in row.accepted] for steps in rows]
print(json.dumps({
    "counts": [[len(row.accepted) for row in steps] for steps in rows],
    "fed": [row.num_fed for row in rows[0]],
    "is_first_ar": [
        row.accepted[0] == next_of([*prompts[n], *written[n][:row.start]])
        for n in (0, 1) for row in rows[n]
    ],
    "is_alone_equal": [
        written[n] == [t for step in alone[n] if isinstance(step, Step)
                       for t in step.rows[0].accepted] for n in (0, 1)
    ],
    "sources": sorted(set(sum((list(s) for s in sources(both)), []))),
    "name": describe(settings),
    "title": TITLES["two"],
    "page": [page["num_tokens"], page["tokens_per_forward"]],
}))
"""


def test_a_method_of_one_file_decodes_and_runs_on_the_page() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", METHOD + RUN], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    for counts in found["counts"]:
        assert all(count == 2 for count in counts[:-1])
        assert 1 <= counts[-1] <= 2
    assert all(fed in (2, 3) for fed in found["fed"])
    assert all(found["is_first_ar"])
    assert found["is_alone_equal"] == [True, True]
    assert found["sources"] == ["ar", "masks"]
    assert (found["name"], found["title"]) == ("always two", "always two")
    assert found["page"] == [9, 9 / 5]
