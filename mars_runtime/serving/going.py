"""The runs that go on here, by the name that whoever asked was told: to be steered and stopped.

A name is random and told to whoever asked alone: who knows it may move the run. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mars_runtime.engine.run import Run
from mars_runtime.serving.bodies import SteerFields, whole
from mars_runtime.serving.errors import ApiError
from mars_runtime.serving.order import changed
from mars_runtime.serving.request import check_depth
from mars_runtime.settings import STEERED

GONE = "No such run goes on here: it is over, or it was begun with another x-session-id."


@dataclass(frozen=True, slots=True)
class Job:
    """The lanes that began together. block_size: the largest B of their model, which need not stay
    loaded for them."""

    block_size: int
    lanes: tuple[Run, ...]

    @property
    def goes_on(self) -> bool:
        """Whether any of them does."""
        return any(not run.is_finished for run in self.lanes)


class Going:
    """Name -> a job."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def add(self, name: str, block_size: int, runs: Sequence[Run]) -> None:
        """Remember what has begun, and forget what is over."""
        left = {name: job for name, job in self._jobs.items() if job.goes_on}
        self._jobs = {**left, name: Job(block_size, tuple(runs))}

    def find(self, name: str) -> Job:
        """The job of that name. Raises ApiError."""
        job = self._jobs.get(name)
        if job is None or not job.goes_on:
            raise ApiError(404, GONE)
        return job


def steer(job: Job, asked: SteerFields) -> None:
    """Let what is named act from the next forward on; all of it, or none. Raises ApiError or
    SettingsError."""
    chosen = lanes_of(job, asked.lane)
    wanted = [changed(run.settings, asked, STEERED) for run in chosen]
    for settings in wanted:
        check_depth(settings, job.block_size)
    room = min(run.asked.settings.max_new_tokens for run in chosen)
    most = whole(asked.max_new_tokens, "max_new_tokens", 1, room)
    if asked.pace is not None:
        chosen[0].pace = asked.pace
    for run, settings in zip(chosen, wanted, strict=True):
        run.settings = settings if most is None else replace(settings, max_new_tokens=most)


def lanes_of(job: Job, lane: object) -> Sequence[Run]:
    """The lane of that number, all where there is none. Raises ApiError."""
    number = whole(lane, "lane", 0, len(job.lanes) - 1)
    return job.lanes if number is None else job.lanes[number : number + 1]
