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

from app.ui.controls import DEFAULTS, RACE, TITLES, settings_for
from app.ui.examples import ExampleBook
from app.ui.recordings import FOLDER, INDEX
from app.ui.stream import RunLog
from mars_runtime import tasks
from mars_runtime.display.replay_page import recorded_note
from mars_runtime.engine.backend import CheckpointBackend
from mars_runtime.engine.engine import Engine
from mars_runtime.engine.header import make_header
from mars_runtime.engine.request import Request
from mars_runtime.engine.run import Run
from mars_runtime.files.outputs import OutputError, check_folder, path_of
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.runs.events import FINAL, End, Event, Step
from mars_runtime.runs.folds import visible_tokens
from mars_runtime.runs.trace import TraceWriter
from mars_runtime.settings import DecodeSettings
from mars_runtime.system.machine import num_cores
from mars_runtime.system.provenance import Others, Quiet
from mars_runtime.text import Context

SOURCE = Path(__file__).with_name("scenarios.json")
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class ScenarioLane:
    name: str
    title: str
    settings: DecodeSettings


@dataclass(frozen=True, slots=True)
class Scenario:
    """Example number ``number`` of ``family``, with the chat model or the tiny model."""

    name: str
    title: str
    why: str
    family: str
    number: int
    lanes: tuple[ScenarioLane, ...]
    checkpoint: str = "mars-smollm2"


def read_scenarios() -> Iterator[Scenario]:
    """MARS next to plain AR with the page's settings, unless scenarios.json says otherwise."""
    for entry in json.loads(SOURCE.read_text(encoding="utf-8")):
        chosen = entry.pop("settings", None)
        settings = DEFAULTS if chosen is None else DecodeSettings(**chosen)
        lanes = tuple(
            ScenarioLane(name, TITLES[name], settings_for(name, settings))
            for name in entry.pop("lanes", RACE)
        )
        yield Scenario(**entry, lanes=lanes)


SCENARIOS = tuple(read_scenarios())
"""The page opens with the first one and then shows the second one, which is the first example with
the page's initial settings, so Run repeats it. Their reasons contain no figures.
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.record_runs", description=__doc__)
    add = parser.add_argument
    add("--out", type=path_of, default=FOLDER, help="folder to write (%(default)s)")
    add("--checkpoint", help="name or folder that records all (its scenario's own)")
    names = [scenario.name for scenario in SCENARIOS]
    add("--scenario", choices=names, help="record only this scenario (default: all)")
    args = parser.parse_args()
    scenarios = [scenario for scenario in SCENARIOS if args.scenario in (None, scenario.name)]
    try:
        check_folder(args.out)
        with busy_machine_reported(), ExitStack() as engines:

            @cache
            def recorder_of(name: str) -> Recorder:
                checkpoint = load_checkpoint(name)
                # Rounds repeat the prompt; each has to prefill it like the first.
                engine = engines.enter_context(Engine(CheckpointBackend(checkpoint, keeps=False)))
                engine.costs()  # one at a time: parallel warm-ups would disturb each other
                return Recorder(checkpoint, engine)

            chosen = [args.checkpoint or scenario.checkpoint for scenario in scenarios]
            list(map(recorder_of, chosen))
            for name in write(args.out, scenarios, lambda own: recorder_of(args.checkpoint or own)):
                print(args.out / f"{name}.txt", flush=True)
    except (CheckpointError, OutputError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


class RecordingError(RuntimeError): ...


@contextmanager
def busy_machine_reported() -> Iterator[None]:
    load, others = os.getloadavg()[0], Others()
    yield
    for doubt in Quiet(num_cores(), load, others.share(), None).doubts:
        print(f"Record again on a quiet machine: {doubt}.", file=sys.stderr)


def write(
    folder: Path, scenarios: Sequence[Scenario], recorder_of: Callable[[str], Recorder]
) -> Iterator[str]:
    """Record the scenarios and yield the name of each one when it is done; write the index last."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for scenario in scenarios:
        value, entry = recorder_of(scenario.checkpoint).recorded(scenario)
        (folder / f"{scenario.name}.txt").write_text(value, encoding="utf-8")
        entries.append(entry)
        yield scenario.name
    text = json.dumps(entries, ensure_ascii=False, indent=2)
    (folder / INDEX).write_text(text + "\n", encoding="utf-8")


class Recorder:
    """Records each scenario three times at full speed, after a warm-up. The run with the median
    time is stored, so a single slow moment of the machine does not matter.
    """

    def __init__(self, checkpoint: Checkpoint, engine: Engine) -> None:
        self._checkpoint, self._engine = checkpoint, engine
        self._book = ExampleBook()

    def recorded(self, scenario: Scenario) -> tuple[str, dict[str, object]]:
        """Return the value of the race view and the entry of the index. Raises RecordingError."""
        task = self._book.task(self._book.prompt(scenario.family, scenario.number))
        assert task is not None, "the book remembers what it hands out"
        tokenizer = self._checkpoint.tokenizer
        ids = tokenizer.encode_prompt(task.prompt)
        requests = [Request(ids, lane.settings, is_checked=True) for lane in scenario.lanes]
        self._race(scenario, requests)  # warm-up
        rounds = [self._race(scenario, requests) for _ in range(ROUNDS)]
        rounds.sort(key=lambda runs: sum(run.clock for run in runs))
        lanes = [{"lane": lane.name, "title": lane.title} for lane in scenario.lanes]
        log: RunLog | None = None
        verdicts = []
        for lane, run in zip(scenario.lanes, rounds[ROUNDS // 2], strict=True):
            header = make_header(
                self._checkpoint,
                task.prompt,
                Request(ids, lane.settings),
                costs=self._engine.costs(),
                task=asdict(task),
                name=lane.title,
                context=Context(system=tokenizer.system_in_force("")),
            )
            note = recorded_note(header)
            log = log or RunLog(
                {"run": f"recorded-{scenario.name}", "lanes": lanes, "recorded": note}
            )
            writer = TraceWriter(header, tokenizer.token_bytes)
            log.add(lane.name, writer.header_line())
            events = run.events_since(0)
            for event in events:
                log.add(lane.name, writer.line(_brief(event)))
            if tasks.is_checkable(task):
                rows = (row for event in events if isinstance(event, Step) for row in event.rows)
                text = tokenizer.decode([token for row in rows for token in visible_tokens(row)])
                verdicts.append({"lane": lane.name, "right": tasks.check(task, text)})
        assert log is not None, "a scenario has lanes"
        for verdict in verdicts:
            log.add("verdict", verdict)
        settings = {lane.name: asdict(lane.settings) for lane in scenario.lanes}
        about = {"name": scenario.name, "title": scenario.title, "why": scenario.why}
        return log.whole(), {**about, "prompt": task.prompt, "settings": settings}

    def _race(self, scenario: Scenario, requests: Sequence[Request]) -> Sequence[Run]:
        runs = self._engine.race(requests)
        for run in runs:
            run.wait()
            end = run.events_since(0)[-1]
            assert isinstance(end, End), "a run that is over has an end"
            if end.reason not in FINAL:
                raise RecordingError(f"{scenario.name} ended early: {end.message or end.reason}")
        return runs


def _brief(event: Event) -> Event:
    """Round the probabilities of runners-up. Nothing depends on them, and they take half of the
    size.
    """
    if not isinstance(event, Step):
        return event
    rows = []
    for row in event.rows:
        proposals = tuple(
            proposal._replace(
                runners_up=tuple((token, round(share, 4)) for token, share in proposal.runners_up)
            )
            for proposal in row.proposals
        )
        rows.append(replace(row, proposals=proposals))
    return replace(event, rows=tuple(rows))


if __name__ == "__main__":
    sys.exit(main())
