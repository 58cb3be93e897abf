"""A run that another machine decodes, and what it is told from here. Knows no HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mars_runtime.engine.run import Run
from mars_runtime.json_values import as_mapping, as_truth, as_whole

Steer = Callable[[Mapping[str, Any]], None]
Stop = Callable[[int], None]


class RemoteRun(Run):
    """``tiller``: takes what it is told to the machine, as long as its job has one."""

    tiller: Tiller | None = None
    _place = 0
    _is_held_up = _is_hurried = False

    @property
    def place(self) -> int:
        """Jobs that must end before this one is served there."""
        return 0 if self.is_finished else self._place

    @property
    def is_held_up(self) -> bool:
        """Whether it stands by, because another job has the device there alone."""
        return self._is_held_up and not self.is_finished

    @property
    def is_hurried(self) -> bool:
        """Whether its slow motion gives way to others, who wait for a place there."""
        return self._is_hurried and not self.is_finished

    def learn(self, state: Any) -> None:
        """How it waits or shares, as the machine tells. Raises ValueError or KeyError."""
        told = as_mapping(state)
        self._place = as_whole(told["place"])
        self._is_held_up = as_truth(told["is_held_up"])
        self._is_hurried = as_truth(told["is_hurried"])
        self.num_sharing = as_whole(told["num_sharing"])

    def _steered(self) -> None:
        if self.tiller is not None:
            self.tiller.turn()


class Tiller:
    """Takes the latest settings of a job's lanes to the machine, one request at a time: whoever
    moves a slider never waits for it, and what was overtaken is not sent."""

    def __init__(self, runs: Sequence[RemoteRun], steer: Steer, stop: Stop) -> None:
        """steer, stop: raise nothing."""
        self._runs = tuple(runs)
        self._steer = steer
        self._stop = stop
        self._told = [run.settings for run in runs]
        self._pace = runs[0].pace
        self._stopped: set[int] = set()
        self._is_turned = self._is_over = False
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="mars-tiller", daemon=True)
        self._thread.start()

    def turn(self) -> None:
        """Something changed."""
        with self._news:
            self._is_turned = True
            self._news.notify()

    def let_go(self) -> None:
        """Nothing is taken there any more."""
        with self._news:
            self._is_over = True
            self._news.notify()

    def _work(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._is_turned or self._is_over)
                if self._is_over:
                    return
                self._is_turned = False
            for lane, run in enumerate(self._runs):
                self._tell(lane, run)
            if self._runs[0].pace != self._pace:
                self._pace = self._runs[0].pace
                self._steer({"pace": self._pace})

    def _tell(self, lane: int, run: RemoteRun) -> None:
        if run.is_finished:
            return
        if run.is_cancelled and lane not in self._stopped:
            self._stopped.add(lane)
            self._stop(lane)
        elif run.settings != self._told[lane]:
            self._told[lane] = run.settings
            self._steer({**asdict(run.settings), "lane": lane})
