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
from app.ui.examples import ExampleBook
from mars_runtime.decoders.cursor import decode
from mars_runtime.runs.events import Step
from mars_runtime.model.load import load_checkpoint
from mars_runtime.settings import DecodeSettings

two, one = DecodeSettings(method="two", max_new_tokens=9), DecodeSettings("ar", max_new_tokens=1)
checkpoint = load_checkpoint("checkpoints/mars-tiny")
prompts = [checkpoint.tokenizer.encode(text) for text in ("Sort: cat, bee, ant", "Add 12 and 30.")]

def run(prompts, settings):
    events = list(decode(checkpoint.model, checkpoint.tokenizer, prompts, lambda: settings))
    steps = [event for event in events if isinstance(event, Step)]
    return [[row.accepted for step in steps for row in step.rows if row.row == n]
            for n in range(len(prompts))]

together = run(prompts, two)
written = [sum(map(list, groups), []) for groups in together]
engines = Engines(AppSettings(checkpoint="mars-tiny"))
values = {**asdict(two), "prompt": "Sort: cat, bee, ant", "checkpoint": "mars-tiny", "system": ""}
*_, page = generate(engines, ExampleBook(), values)
engines.close()
print(json.dumps({
    "counts": [list(map(len, groups)) for groups in together],
    "is_first_ar": [
        group[0] == run([[*ids, *tokens[:2 * place]]], one)[0][0][0]
        for ids, tokens, groups in zip(prompts, written, together)
        for place, group in enumerate(groups)
    ],
    "is_alone_equal": [run([ids], two) == [groups] for ids, groups in zip(prompts, together)],
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
    assert all(found["is_first_ar"])
    assert all(found["is_alone_equal"])
    assert found["page"] == [9, 9 / 5]
