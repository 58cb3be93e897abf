"""Runs that are streamed to a page on another machine: token ids in, trace lines out.

``POST /v1/runs`` starts one run or a race and streams server-sent events. An event is named after
the number of its lane, and its data is a trace line. Events named ``state`` report the queue state
at least once a second, so the client can detect that the machine is lost. To change or stop a run,
a client sends the run's random name. Only the client that started the run receives the name, so no
other permission is checked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, replace

from mars_runtime.engine.request import Request
from mars_runtime.engine.run import Run
from mars_runtime.events import End
from mars_runtime.json_values import Truth, Whole, json_line
from mars_runtime.serving.errors import ApiError
from mars_runtime.serving.models import ServedModel
from mars_runtime.serving.requests import (
    SERVED,
    Caps,
    LaneFields,
    RunBody,
    SteerFields,
    changed,
    check_bias,
    check_depth,
    check_ids,
    check_length,
    check_prompt,
    whole_number,
)
from mars_runtime.settings import RECOMMENDED, STEERED, DecodeSettings
from mars_runtime.trace import Header, TraceWriter

POLL_SECONDS = 0.05
BEAT_SECONDS = 1.0
GONE = "This run does not exist. It has ended, or it was started with another x-session-id."


def lane_requests(body: RunBody, model: ServedModel, caps: Caps) -> list[Request]:
    """Validate the lanes for the model and return an engine request for each.

    Raises ApiError, RequestError or SettingsError.
    """
    return [
        _request(lane, f"lanes.{number}", model, caps) for number, lane in enumerate(body.lanes)
    ]


def _request(lane: LaneFields, path: str, model: ServedModel, caps: Caps) -> Request:
    ids = lane.prompt_ids
    field = f"{path}.prompt_ids"
    if not 1 <= len(ids) <= model.capacity:
        raise ApiError(400, f"{field} must be a list of 1 to {model.capacity} values.", field)
    settings = changed(RECOMMENDED, lane, (*SERVED, "max_new_tokens"))
    check_ids(ids, model.tokenizer)
    check_prompt(tuple(ids), model.tokenizer, caps.max_prompt_chars, field)
    check_depth(settings, model.block_size)
    check_bias(settings, model.tokenizer)
    check_length(settings.max_new_tokens, caps.max_new_tokens)
    seconds = min(lane.seconds or caps.max_seconds, caps.max_seconds)
    return Request(ids, settings, seconds, lane.is_checked, lane.reuses)


@dataclass(frozen=True, slots=True)
class QueueState:
    """The queue state of runs that began together. ``Run`` documents the fields."""

    place: Whole
    is_held_up: Truth
    is_hurried: Truth
    num_sharing: Whole


class Lanes:
    """Runs that began together; they are streamed and cancelled together."""

    def __init__(self, runs: Sequence[Run], model: ServedModel) -> None:
        self.runs = tuple(runs)
        self._writers = [
            TraceWriter(
                wire_header(run.request.settings), model.tokenizer.token_bytes, derives=False
            )
            for run in self.runs
        ]
        self._num_read = [0] * len(self.runs)

    def cancel(self) -> None:
        """Cancel all runs; they end within one forward pass."""
        for run in self.runs:
            run.cancel()

    async def events(self) -> AsyncIterator[str]:
        """Yield server-sent events of all lanes until the last lane has ended."""
        state, state_sent = "", 0.0
        while True:
            lines = self._new_lines()
            now, latest = time.monotonic(), self._state()
            if latest != state or now - state_sent > BEAT_SECONDS:
                state, state_sent = latest, now
                lines.append(_event("state", latest))
            for line in lines:
                yield line
            if self._is_over:
                return
            await asyncio.sleep(POLL_SECONDS)

    @property
    def _is_over(self) -> bool:
        ends = (run.events_since(max(0, read - 1)) for run, read in self._read)
        return all(len(events) == 1 and isinstance(events[0], End) for events in ends)

    @property
    def _read(self) -> list[tuple[Run, int]]:
        return list(zip(self.runs, self._num_read, strict=True))

    def _new_lines(self) -> list[str]:
        lines = []
        for lane, (run, read) in enumerate(self._read):
            events = run.events_since(read)
            self._num_read[lane] += len(events)
            lines += [_event(str(lane), self._writers[lane].line(event)) for event in events]
        return lines

    def _state(self) -> str:
        first, num_sharing = self.runs[0], max(run.num_sharing for run in self.runs)
        state = QueueState(first.place, first.is_held_up, first.is_hurried, num_sharing)
        return json_line(asdict(state))


def wire_header(settings: DecodeSettings) -> Header:
    """Build the trace header of a lane.

    The header is not sent, because the server and the client both build it.
    """
    return Header("", "", (0,), settings)


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"


@dataclass(frozen=True, slots=True)
class LaneGroup:
    """Runs that began together and can be changed while they are in flight.

    block_size: the largest B that their model was trained with, stored here because the model may
    be unloaded.
    """

    block_size: int
    lanes: tuple[Run, ...]

    @property
    def is_running(self) -> bool:
        return any(not run.is_finished for run in self.lanes)


class LaneGroups:
    """The groups of runs in flight, by name."""

    def __init__(self) -> None:
        self._groups: dict[str, LaneGroup] = {}

    def add(self, name: str, block_size: int, runs: Sequence[Run]) -> None:
        """Add a group under ``name`` and remove the finished groups."""
        running = {name: group for name, group in self._groups.items() if group.is_running}
        self._groups = {**running, name: LaneGroup(block_size, tuple(runs))}

    def find(self, name: str) -> LaneGroup:
        """Return the group with this name. Raises ApiError if no group in flight has it."""
        group = self._groups.get(name)
        if group is None or not group.is_running:
            raise ApiError(404, GONE)
        return group


def steer(group: LaneGroup, body: SteerFields) -> None:
    """Apply the posted settings from the next forward pass on.

    If one of them is invalid, none is applied. Raises ApiError or SettingsError.
    """
    runs = lanes_of(group, body.lane)
    new_settings = [changed(run.settings, body, STEERED) for run in runs]
    for settings in new_settings:
        check_depth(settings, group.block_size)
    limit = min(run.request.settings.max_new_tokens for run in runs)
    num_tokens = whole_number(body.max_new_tokens, "max_new_tokens", 1, limit)
    if body.pace is not None:
        runs[0].pace = body.pace
    for run, settings in zip(runs, new_settings, strict=True):
        if num_tokens is not None:
            settings = replace(settings, max_new_tokens=num_tokens)
        run.settings = settings


def lanes_of(group: LaneGroup, lane: object) -> Sequence[Run]:
    """Return all lanes of a group, or only the one with the number ``lane`` if it is not None.

    Raises ApiError for an invalid number.
    """
    number = whole_number(lane, "lane", 0, len(group.lanes) - 1)
    return group.lanes if number is None else group.lanes[number : number + 1]
