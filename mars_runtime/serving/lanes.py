"""Runs as they go, for a page on another machine: token ids in, the lines of a trace out.

``POST /v1/runs`` asks for one run or a race and streams, as server-sent events whose names are the
numbers of the lanes, the trace lines of each; events named ``state`` say how it waits or shares,
once a second at least, so that a reader knows the machine is there. Knows no route and no drawing.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from mars_runtime.engine.request import Request
from mars_runtime.engine.run import Run
from mars_runtime.events import End
from mars_runtime.serving.bodies import SERVED, LaneFields, RunBody
from mars_runtime.serving.errors import ApiError
from mars_runtime.serving.models import Model
from mars_runtime.serving.order import changed
from mars_runtime.serving.request import Caps, check_depth, check_ids, check_length
from mars_runtime.settings import RECOMMENDED, DecodeSettings
from mars_runtime.trace import Header, TraceWriter

POLL_SECONDS = 0.05
BEAT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to run together. is_alone: a single one shares no forward; pace: as of a run."""

    requests: tuple[Request, ...]
    pace: float
    is_alone: bool


def read_asked(asked: RunBody, model: Model, caps: Caps) -> Asked:
    """What was posted, against the model that is asked. Raises ApiError, RequestError or
    SettingsError."""
    requests = tuple(
        _request(lane, f"lanes.{number}", model, caps) for number, lane in enumerate(asked.lanes)
    )
    return Asked(requests, asked.pace, asked.is_alone)


def _request(lane: LaneFields, place: str, model: Model, caps: Caps) -> Request:
    ids = lane.prompt_ids
    if not 1 <= len(ids) <= model.capacity:
        field = f"{place}.prompt_ids"
        raise ApiError(400, f"{field} must be a list of 1 to {model.capacity} values.", field)
    settings = changed(RECOMMENDED, lane, (*SERVED, "max_new_tokens"))
    check_ids(ids, model.tokenizer)
    check_depth(settings, model.block_size)
    check_length(settings.max_new_tokens, caps.max_new_tokens)
    seconds = min(lane.seconds or caps.max_seconds, caps.max_seconds)
    return Request(ids, settings, seconds, lane.is_checked)


class Lanes:
    """Runs that were begun together, as one to be told of and cancelled."""

    def __init__(self, runs: Sequence[Run], model: Model) -> None:
        self.runs = tuple(runs)
        self._writers = [
            TraceWriter(wire_header(run.asked.settings), model.tokenizer.token_bytes)
            for run in self.runs
        ]
        self._num_read = [0] * len(self.runs)

    def cancel(self) -> None:
        """End all of them within one forward."""
        for run in self.runs:
            run.cancel()

    async def told(self) -> AsyncIterator[str]:
        """All that happens, to the end of the last lane."""
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
        """Whether everything was told."""
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
        first = self.runs[0]
        state: dict[str, Any] = {"place": first.place, "is_held_up": first.is_held_up}
        state["is_hurried"] = first.is_hurried
        state["num_sharing"] = max(run.num_sharing for run in self.runs)
        return json.dumps(state)


def wire_header(settings: DecodeSettings) -> Header:
    """The head of a lane's lines, which both sides know: it doesn't travel."""
    return Header("", "", (0,), settings)


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"
