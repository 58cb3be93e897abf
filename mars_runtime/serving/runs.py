"""Runs streamed to a page on another machine: token ids in, trace lines out.

``POST /v1/runs`` starts one run or a race and streams server-sent events. The name of an event is
the number of its lane, its data a trace line. Events named ``state`` report the queue state, at
least once a second, so the reader can detect a lost machine. Runs in flight are steered and stopped
by a random name that only their client gets: knowing the name is the permission.
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
    whole,
)
from mars_runtime.settings import RECOMMENDED, STEERED, DecodeSettings
from mars_runtime.trace import Header, TraceWriter

POLL_SECONDS = 0.05
BEAT_SECONDS = 1.0
GONE = "This run does not exist. It has ended, or it was started with another x-session-id."


def lane_requests(body: RunBody, model: ServedModel, caps: Caps) -> list[Request]:
    """Validate the lanes against the model and return a request for each. Raises ApiError,
    RequestError or SettingsError.
    """
    return [
        _request(lane, f"lanes.{number}", model, caps) for number, lane in enumerate(body.lanes)
    ]


def _request(lane: LaneFields, place: str, model: ServedModel, caps: Caps) -> Request:
    ids = lane.prompt_ids
    if not 1 <= len(ids) <= model.capacity:
        field = f"{place}.prompt_ids"
        raise ApiError(400, f"{field} must be a list of 1 to {model.capacity} values.", field)
    settings = changed(RECOMMENDED, lane, (*SERVED, "max_new_tokens"))
    check_ids(ids, model.tokenizer)
    check_prompt(tuple(ids), model.tokenizer, caps.max_prompt_chars, f"{place}.prompt_ids")
    check_depth(settings, model.block_size)
    check_bias(settings, model.tokenizer)
    check_length(settings.max_new_tokens, caps.max_new_tokens)
    seconds = min(lane.seconds or caps.max_seconds, caps.max_seconds)
    return Request(ids, settings, seconds, lane.is_checked, lane.reuses)


@dataclass(frozen=True, slots=True)
class QueueState:
    """Queue state of a group's runs, as ``Run`` defines these fields."""

    place: Whole
    is_held_up: Truth
    is_hurried: Truth
    num_sharing: Whole


class Lanes:
    """Runs that began together, streamed and cancelled as one."""

    def __init__(self, runs: Sequence[Run], model: ServedModel) -> None:
        self.runs = tuple(runs)
        self._writers = [
            TraceWriter(wire_header(run.asked.settings), model.tokenizer.token_bytes, derives=False)
            for run in self.runs
        ]
        self._num_read = [0] * len(self.runs)

    def cancel(self) -> None:
        """Cancel all runs within one forward."""
        for run in self.runs:
            run.cancel()

    async def told(self) -> AsyncIterator[str]:
        """Yield all events of all lanes, until the last lane has ended."""
        state, beaten = "", 0.0
        while True:
            lines = self._news()
            now, latest = time.monotonic(), self._state()
            if latest != state or now - beaten > BEAT_SECONDS:
                state, beaten = latest, now
                lines.append(_event("state", latest))
            for line in lines:
                yield line
            if self._is_over:
                return
            await asyncio.sleep(POLL_SECONDS)

    @property
    def _is_over(self) -> bool:
        """Whether every event was sent."""
        ends = (run.events_since(max(0, read - 1)) for run, read in self._read)
        return all(len(events) == 1 and isinstance(events[0], End) for events in ends)

    @property
    def _read(self) -> list[tuple[Run, int]]:
        return list(zip(self.runs, self._num_read, strict=True))

    def _news(self) -> list[str]:
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
    """Return the trace header of a lane. Both sides can build it, so it is not sent."""
    return Header("", "", (0,), settings)


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"


@dataclass(frozen=True, slots=True)
class LaneGroup:
    """Lanes that began together.

    block_size: the largest B of their model, stored here because the model may be unloaded.
    """

    block_size: int
    lanes: tuple[Run, ...]

    @property
    def goes_on(self) -> bool:
        """Whether any of the lanes is still running."""
        return any(not run.is_finished for run in self.lanes)


class LaneGroups:
    """Groups in flight by name."""

    def __init__(self) -> None:
        self._groups: dict[str, LaneGroup] = {}

    def add(self, name: str, block_size: int, runs: Sequence[Run]) -> None:
        """Add a new group and drop the finished ones."""
        left = {name: group for name, group in self._groups.items() if group.goes_on}
        self._groups = {**left, name: LaneGroup(block_size, tuple(runs))}

    def find(self, name: str) -> LaneGroup:
        """Return the group of that name. Raises ApiError if there is none in flight."""
        group = self._groups.get(name)
        if group is None or not group.goes_on:
            raise ApiError(404, GONE)
        return group


def steer(group: LaneGroup, body: SteerFields) -> None:
    """Apply the posted settings from the next forward on, either all of them or none. Raises
    ApiError or SettingsError.
    """
    chosen = lanes_of(group, body.lane)
    wanted = [changed(run.settings, body, STEERED) for run in chosen]
    for settings in wanted:
        check_depth(settings, group.block_size)
    room = min(run.asked.settings.max_new_tokens for run in chosen)
    most = whole(body.max_new_tokens, "max_new_tokens", 1, room)
    if body.pace is not None:
        chosen[0].pace = body.pace
    for run, settings in zip(chosen, wanted, strict=True):
        run.settings = settings if most is None else replace(settings, max_new_tokens=most)


def lanes_of(group: LaneGroup, lane: object) -> Sequence[Run]:
    """Return the lane of that number, or all lanes for None. Raises ApiError."""
    number = whole(lane, "lane", 0, len(group.lanes) - 1)
    return group.lanes if number is None else group.lanes[number : number + 1]
