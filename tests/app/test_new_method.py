"""A method that is written in one file decodes, follows the laws and runs on the page."""

from __future__ import annotations

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
texts = ["Sort: cat, bee, ant", "Add 12 and 30."]
prompts = [checkpoint.tokenizer.encode(text) for text in texts]

def run(prompts, settings):
    events = list(decode(checkpoint.model, checkpoint.tokenizer, prompts, lambda: settings))
    rows = [row for event in events if isinstance(event, Step) for row in event.rows]
    return [[row.accepted for row in rows if row.row == n] for n in range(len(prompts))]

for ids, groups in zip(prompts, run(prompts, two), strict=True):
    assert run([ids], two) == [groups]
    written = []
    for group in groups:
        assert group[0] == run([[*ids, *written]], one)[0][0][0]
        written += group
    assert {len(group) for group in groups[:-1]} == {2}
engines = Engines(AppSettings(checkpoint="mars-tiny"))
values = {**asdict(two), "prompt": texts[0], "checkpoint": "mars-tiny", "system": ""}
*_, page = generate(engines, ExampleBook(), values)
engines.close()
assert (page["num_tokens"], page["tokens_per_forward"]) == (9, 9 / 5)
"""


def test_a_method_of_one_file_decodes_and_runs_on_the_page() -> None:
    """In another process, because a setting's type has the names of the methods at the start."""
    command = [sys.executable, "-c", METHOD + RUN]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
