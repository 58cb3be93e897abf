"""Record the runs that pages show without a server: ``python -m tools.record_runs``.

Use a quiet machine, because the recordings are shown as measured results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from app.ui.controls import DEFAULTS, RACE, TITLES, settings_for
from app.ui.examples import ExampleBook
from app.ui.recordings import FOLDER, INDEX
from app.ui.stream import RunLog
from mars_runtime import tasks
from mars_runtime.display.replay_page import recorded_note
from mars_runtime.engine.engine import Engine
from mars_runtime.engine.header import make_header
from mars_runtime.engine.request import Request
from mars_runtime.files.outputs import OutputError, check_folder, path_of
from mars_runtime.model.config import CheckpointError
from mars_runtime.runs.events import FINAL, End, Event, Proposal, RowStep, Step
from mars_runtime.runs.folds import visible_tokens
from mars_runtime.runs.trace import Header, TraceWriter
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Context

if TYPE_CHECKING:
    from mars_runtime.engine.run import Run
    from mars_runtime.model.load import Checkpoint
    from mars_runtime.tasks import Task

SOURCE = Path(__file__).with_name("scenarios.json")
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class ScenarioLane:
    name: str
    title: str
    settings: DecodeSettings


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run to record: example number ``number`` of ``family``, with the chat model or the tiny
    model.
    """

    name: str
    title: str
    why: str
    family: str
    number: int
    lanes: tuple[ScenarioLane, ...]
    checkpoint: str = "mars-smollm2"


def read_scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of ``scenarios.json``: MARS next to plain AR with the page's settings,
    where they do not say otherwise.
    """
    for entry in json.loads(SOURCE.read_text(encoding="utf-8")):
        chosen = entry.pop("settings", None)
        settings = DEFAULTS if chosen is None else DecodeSettings(**chosen)
        lanes = tuple(
            ScenarioLane(name, TITLES[name], settings_for(name, settings))
            for name in entry.pop("lanes", RACE)
        )
        yield Scenario(**entry, lanes=lanes)


SCENARIOS = tuple(read_scenarios())
"""The scenarios in their listed order. Their reasons contain no figures, since every recording
measures them again. The page opens with the first one and then shows the second one, which is the
first example with the page's initial settings, so Run repeats it.
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.record_runs", description=__doc__)
    parser.add_argument("--out", type=path_of, default=FOLDER, help="folder to write (%(default)s)")
    parser.add_argument("--checkpoint", help="name or folder that records all (its scenario's own)")
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument(
        "--scenario", choices=names, help="record only this scenario (default: all)"
    )
    args = parser.parse_args()
    scenarios = [scenario for scenario in SCENARIOS if args.scenario in (None, scenario.name)]
    try:
        check_folder(args.out)
        record(args.out, scenarios, args.checkpoint)
    except (CheckpointError, OutputError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def record(folder: Path, scenarios: Sequence[Scenario], only: str | None) -> None:
    """Record into ``folder``, with each scenario's checkpoint or all with ``only``. Raises
    CheckpointError.
    """
    from mars_runtime.engine.backend import CheckpointBackend
    from mars_runtime.model.load import load_checkpoint

    with busy_machine_reported(), ExitStack() as engines:

        @cache
        def recorder_of(name: str) -> Recorder:
            checkpoint = load_checkpoint(name)
            # Rounds repeat the prompt; each has to prefill it like the first.
            engine = engines.enter_context(Engine(CheckpointBackend(checkpoint, keeps=False)))
            engine.costs()  # one at a time: parallel warm-ups would disturb each other
            return Recorder(checkpoint, engine)

        for scenario in scenarios:
            recorder_of(only or scenario.checkpoint)
        for done in write(folder, scenarios, lambda name: recorder_of(only or name)):
            print(folder / f"{done}.txt", flush=True)


class RecordingError(RuntimeError):
    """The run was interrupted or failed, so it cannot be recorded."""


@contextmanager
def busy_machine_reported() -> Iterator[None]:
    """Print a warning for each sign that the machine was busy meanwhile."""
    from mars_runtime.system.machine import num_cores
    from mars_runtime.system.provenance import Others, Quiet

    load, others = os.getloadavg()[0], Others()
    yield
    for doubt in Quiet(num_cores(), load, others.share(), None).doubts:
        print(f"Record again on a quiet machine: {doubt}.", file=sys.stderr)


def write(
    folder: Path, scenarios: Sequence[Scenario], recorder_of: Callable[[str], Recorder]
) -> Iterator[str]:
    """Record the scenarios and yield the name of each one when it is done; write the index last.
    Raises RecordingError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for scenario in scenarios:
        recorder = recorder_of(scenario.checkpoint)
        (folder / f"{scenario.name}.txt").write_text(recorder.value(scenario), encoding="utf-8")
        entries.append(recorder.entry(scenario))
        yield scenario.name
    text = json.dumps(entries, ensure_ascii=False, indent=2)
    (folder / INDEX).write_text(text + "\n", encoding="utf-8")


class Recorder:
    """Records each scenario three times at full speed, after a warm-up. The run with the median
    time is stored, so a single slow moment of the machine does not matter.
    """

    def __init__(self, checkpoint: Checkpoint, engine: Engine) -> None:
        self._checkpoint = checkpoint
        self._engine = engine
        self._book = ExampleBook()

    def value(self, scenario: Scenario) -> str:
        """Return the value of the race view for a run of the scenario. Raises RecordingError."""
        task = self._task(scenario)
        requests = [self._request(lane, task.prompt) for lane in scenario.lanes]
        headers = [self._header(lane, task) for lane in scenario.lanes]
        self._run(scenario, requests)  # warm-up
        rounds = [self._run(scenario, requests) for _ in range(ROUNDS)]
        rounds.sort(key=lambda runs: sum(run.clock for run in runs))
        median = rounds[len(rounds) // 2]
        lanes = [{"lane": lane.name, "title": lane.title} for lane in scenario.lanes]
        note = recorded_note(headers[0])
        made = RunLog({"run": f"recorded-{scenario.name}", "lanes": lanes, "recorded": note})
        for lane, header, run in zip(scenario.lanes, headers, median, strict=True):
            writer = TraceWriter(header, self._checkpoint.tokenizer.token_bytes)
            made.add(lane.name, writer.header_line())
            for event in run.events_since(0):
                made.add(lane.name, writer.line(_brief(event)))
        for lane, run in zip(scenario.lanes, median, strict=True):
            if tasks.is_checkable(task):
                text = self._checkpoint.tokenizer.decode(_visible(run.events_since(0)))
                made.add("verdict", {"lane": lane.name, "right": tasks.check(task, text)})
        return made.whole()

    def _task(self, scenario: Scenario) -> Task:
        task = self._book.task(self._book.prompt(scenario.family, scenario.number))
        assert task is not None, "the book remembers what it hands out"
        return task

    def _request(self, lane: ScenarioLane, prompt: str) -> Request:
        return Request(self._ids(prompt), lane.settings, is_checked=True)

    def _header(self, lane: ScenarioLane, task: Task) -> Header:
        request = Request(self._ids(task.prompt), lane.settings)
        costs = self._engine.costs()
        return make_header(
            self._checkpoint,
            task.prompt,
            request,
            costs=costs,
            task=asdict(task),
            name=lane.title,
            context=Context(system=self._checkpoint.tokenizer.system_in_force("")),
        )

    def _ids(self, prompt: str) -> list[int]:
        return self._checkpoint.tokenizer.encode_prompt(prompt)

    def _run(self, scenario: Scenario, requests: Sequence[Request]) -> list[Run]:
        runs = self._engine.race(requests)
        for run in runs:
            run.wait()
            end = run.events_since(0)[-1]
            assert isinstance(end, End), "a run that is over has an end"
            if end.reason not in FINAL:
                raise RecordingError(f"{scenario.name} ended early: {end.message or end.reason}")
        return runs

    def entry(self, scenario: Scenario) -> dict[str, object]:
        settings = {lane.name: asdict(lane.settings) for lane in scenario.lanes}
        return {
            "name": scenario.name,
            "title": scenario.title,
            "why": scenario.why,
            "prompt": self._task(scenario).prompt,
            "settings": settings,
        }


def _brief(event: Event) -> Event:
    """Round the probabilities of runners-up. Nothing depends on them, and they take half of the
    size.
    """
    if not isinstance(event, Step):
        return event
    return replace(event, rows=tuple(map(_brief_row, event.rows)))


def _brief_row(row: RowStep) -> RowStep:
    return replace(row, proposals=tuple(map(_brief_proposal, row.proposals)))


def _brief_proposal(proposal: Proposal) -> Proposal:
    runners_up = tuple((token, round(share, 4)) for token, share in proposal.runners_up)
    return proposal._replace(runners_up=runners_up)


def _visible(events: Sequence[Event]) -> list[int]:
    rows = [row for event in events if isinstance(event, Step) for row in event.rows]
    return [token for row in rows for token in visible_tokens(row)]


if __name__ == "__main__":
    sys.exit(main())
