"""Records runs: decodes scenarios and writes what the race view would have been sent.

Each is decoded three times at full speed after a warm-up, and the one whose time is in the middle
is kept, so that a hiccup of the machine is not recorded for good. Knows no gradio and no drawing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.examples.book import ExampleBook
from app.replay.recordings import INDEX, recorded_note
from app.replay.scenarios import Move, Scenario, ScenarioLane
from app.run_log import RunLog
from mars_runtime.engine.engine import Engine
from mars_runtime.engine.header import make_header
from mars_runtime.engine.request import Request, Solo
from mars_runtime.events import End, Event, Proposal, RowStep, Step
from mars_runtime.folds import visible_tokens
from mars_runtime.lab import tasks
from mars_runtime.trace import Header, TraceWriter

if TYPE_CHECKING:
    from mars_runtime.decoders.base import CausalModel, SettingsSource, Vocabulary
    from mars_runtime.engine.run import Run
    from mars_runtime.lab.tasks import Task
    from mars_runtime.model.load import Checkpoint

ROUNDS = 3
MOVING_PACE = 8.0  # rests long enough that a move bites on the very forward it is meant for


class RecordingError(RuntimeError):
    """A run that ended otherwise than by itself, so it is not worth keeping."""


def write(
    folder: Path, scenarios: Sequence[Scenario], recorder_of: Callable[[str], Recorder]
) -> Iterator[str]:
    """Record the scenarios into ``folder``, the index last; yields a name as each is done.

    recorder_of: checkpoint -> what decodes on it. Raises RecordingError.
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
    """Decodes scenarios on one checkpoint."""

    def __init__(self, checkpoint: Checkpoint, engine: Engine) -> None:
        self._checkpoint = checkpoint
        self._engine = engine
        self._book = ExampleBook()

    def value(self, scenario: Scenario) -> str:
        """The race view's value for a run of the scenario. Raises RecordingError."""
        task = self._task(scenario)
        requests = [self._request(lane, task.prompt) for lane in scenario.lanes]
        headers = [self._header(lane, task) for lane in scenario.lanes]
        self._run(scenario, requests)  # warm-up
        rounds = [self._run(scenario, requests) for _ in range(ROUNDS)]
        rounds.sort(key=lambda runs: sum(run.clock for run in runs))
        kept = rounds[len(rounds) // 2]
        lanes = [{"lane": lane.name, "title": lane.title} for lane in scenario.lanes]
        note = recorded_note(headers[0])
        made = RunLog({"run": f"recorded-{scenario.name}", "lanes": lanes, "recorded": note})
        for lane, header, run in zip(scenario.lanes, headers, kept, strict=True):
            writer = TraceWriter(header, self._checkpoint.tokenizer.token_bytes)
            made.add(lane.name, writer.header_line())
            for event in run.events_since(0):
                made.add(lane.name, writer.line(_brief(event)))
        for lane, run in zip(scenario.lanes, kept, strict=True):
            if tasks.is_checkable(task):
                text = self._checkpoint.tokenizer.decode(_visible(run.events_since(0)))
                made.add("verdict", {"lane": lane.name, "right": tasks.check(task, text)})
        return made.whole()

    def _task(self, scenario: Scenario) -> Task:
        task = self._book.task(self._book.prompt(scenario.family, scenario.number))
        assert task is not None, "the book remembers what it hands out"
        return task

    def _request(self, lane: ScenarioLane, prompt: str) -> Request | Solo:
        request = Request(self._ids(prompt), lane.settings, is_checked=True)
        if not lane.cache_block:
            return request
        return Solo(partial(_in_blocks, request.prompt_ids, lane.cache_block), lane.settings)

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
        )

    def _ids(self, prompt: str) -> list[int]:
        return self._checkpoint.tokenizer.encode_prompt(prompt)

    def _run(self, scenario: Scenario, requests: Sequence[Request | Solo]) -> list[Run]:
        """All lanes to their ends. Raises RecordingError."""
        runs = self._engine.race(requests, MOVING_PACE if any(_moves(scenario)) else 0.0)
        for lane, run in zip(scenario.lanes, runs, strict=True):
            _steer(run, lane.moves)
        for run in runs:
            run.wait()
            end = run.events_since(0)[-1]
            assert isinstance(end, End), "a run that is over has an end"
            if end.reason not in ("eos", "limit"):
                raise RecordingError(f"{scenario.name} ended early: {end.message or end.reason}")
        return runs

    def entry(self, scenario: Scenario) -> dict[str, object]:
        """What the index says of a scenario."""
        settings = {lane.name: asdict(lane.settings) for lane in scenario.lanes}
        return {
            "name": scenario.name,
            "title": scenario.title,
            "why": scenario.why,
            "prompt": self._task(scenario).prompt,
            "settings": settings,
        }


def _brief(event: Event) -> Event:
    """The event with runners-up rounded: nothing is decided by them, and they are half of what a
    recording weighs."""
    if not isinstance(event, Step):
        return event
    return replace(event, rows=tuple(map(_brief_row, event.rows)))


def _brief_row(row: RowStep) -> RowStep:
    return replace(row, proposals=tuple(map(_brief_proposal, row.proposals)))


def _brief_proposal(proposal: Proposal) -> Proposal:
    runners_up = tuple((token, round(share, 4)) for token, share in proposal.runners_up)
    return replace(proposal, runners_up=runners_up)


def _moves(scenario: Scenario) -> Iterator[Move]:
    for lane in scenario.lanes:
        yield from lane.moves


def _steer(run: Run, moves: Sequence[Move]) -> None:
    """Replace the settings of a run when a move is due, at rests, which are outside every clock."""
    waiting = list(moves)
    events = iter(run)
    num_tokens = 0
    while waiting:
        event = next(events)
        if isinstance(event, Step):
            num_tokens += len(event.rows[0].accepted)
        elif isinstance(event, End):
            return
        if num_tokens >= waiting[0].num_tokens:
            run.settings = replace(run.settings, tau=waiting.pop(0).tau)


def _in_blocks(
    prompt_ids: Sequence[int],
    cache_block: int,
    model: CausalModel,
    vocabulary: Vocabulary,
    settings: SettingsSource,
) -> Iterator[Event]:
    """The block-cache decoder, imported where torch is loaded anyway."""
    from mars_runtime.decoders import block

    return block.decode(model, vocabulary, [prompt_ids], settings, cache_block)


def _visible(events: Sequence[Event]) -> list[int]:
    """The tokens of the text."""
    rows = [row for event in events if isinstance(event, Step) for row in event.rows]
    return [token for row in rows for token in visible_tokens(row)]
