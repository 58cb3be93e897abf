"""The runs that go on here, by the name that whoever asked was told: to be steered and stopped.

A name is random and told to whoever asked alone: who knows it may move the run. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mars_runtime.engine.run import Run
from mars_runtime.serving.errors import ApiError
from mars_runtime.serving.fields import Fields
from mars_runtime.serving.order import OWN, changed

STEERED = tuple(name for name in OWN if name != "method")
GONE = "No such run goes on here: it is over, or it was begun with another x-session-id."


class Going:
    """Name -> the lanes of a run."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[Run, ...]] = {}

    def add(self, name: str, runs: Sequence[Run]) -> None:
        """Remember what has begun, and forget what is over."""
        left = {name: lanes for name, lanes in self._runs.items() if _goes_on(lanes)}
        self._runs = {**left, name: tuple(runs)}

    def find(self, name: str) -> tuple[Run, ...]:
        """The lanes of a run. Raises ApiError."""
        lanes = self._runs.get(name, ())
        if not _goes_on(lanes):
            raise ApiError(404, GONE)
        return lanes


def _goes_on(lanes: Sequence[Run]) -> bool:
    return any(not run.is_finished for run in lanes)


def steer(lanes: Sequence[Run], fields: Fields) -> None:
    """Let what the fields name act from the next forward on; all of it, or none. Raises ApiError or
    SettingsError."""
    chosen = lanes_of(lanes, fields)
    wanted = [changed(run.settings, fields, STEERED) for run in chosen]
    most = fields.whole("max_new_tokens", 1, chosen[0].settings.max_new_tokens)
    if fields.has("pace"):
        chosen[0].pace = fields.raw("pace")
    for run, settings in zip(chosen, wanted, strict=True):
        run.settings = settings if most is None else replace(settings, max_new_tokens=most)


def lanes_of(lanes: Sequence[Run], fields: Fields) -> Sequence[Run]:
    """The lane that is named, all where none is. Raises ApiError."""
    number = fields.whole("lane", 0, len(lanes) - 1)
    return lanes if number is None else [lanes[number]]
