"""What each control of the Live tab does: plain functions and generators over run handles.

Values come in raw and text goes out; knows no gradio type, no component and no drawing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from app.controls import RefusalError, read_steering
from app.examples.book import TASKS, ExampleBook, is_too_hard, remark_on, set_for
from app.feed import Feed, Feeds
from app.live.links import read_link
from app.live.order import read_from_view, read_live_order
from app.live.run import LiveFeed, LiveRun, check_order
from app.serving.engines import Engines
from app.serving.loads import UnavailableError
from app.stream import SLOW_POLL_SECONDS, TabHandlers

CONTROL_TEXT = re.compile(r"<\|[^|<>\s]{1,40}\|>")
NOTE_CONTROL = "Control-token text in the prompt is read as ordinary characters."
NOTE_UNKNOWN = "This small model knows only tasks like the examples."
OFFER = "Not one of its tasks. The nearest: {}"
OFFER_CHARS = 60
NOTE_TOO_HARD = "This is more than a model of this size can do: see what it makes of it."
PRESETS = {
    "Exact": {"tau": 0.0, "lossless": True},
    "Balanced": {"tau": 0.95, "lossless": False},
    "Fast": {"tau": 0.7, "lossless": False},
}


def preset_of(tau: object, lossless: object) -> str | None:
    """The preset that these values are, if any."""
    values = {"tau": tau, "lossless": lossless}
    return next((name for name, preset in PRESETS.items() if preset == values), None)


class LiveHandlers(TabHandlers[LiveRun]):
    """The tab's behaviour; one object serves every visitor, told apart by session."""

    pause = SLOW_POLL_SECONDS

    def __init__(
        self, engines: Engines, feeds: Feeds, book: ExampleBook, settle: Callable[[str], None]
    ) -> None:
        """``settle``: hears of every session that runs something."""
        super().__init__(engines, feeds)
        self._book = book
        self._settle = settle

    def read(self, values: Mapping[str, Any]) -> LiveRun:
        """What these controls ask for, not begun yet. Raises RefusalError."""
        order = read_live_order(values, self._engines.limits(values.get("checkpoint")))
        return LiveRun(order, self._book, self._engines.settings.max_seconds)

    def blank(self) -> Feed:
        """The feed of what cannot be begun."""
        return LiveFeed(["mars"], 0.0)

    def check(self, values: Mapping[str, Any]) -> RefusalError | None:
        """What is wrong with these controls, if anything."""
        try:
            order = self.read(values).order
            has_tokens = order.given or any(order.histories.values())
            served = self._engines.get(order.checkpoint, timeout=0.0) if has_tokens else None
            if served is not None:
                check_order(served, order)
        except RefusalError as refusal:
            return refusal
        except UnavailableError as error:
            return RefusalError("checkpoint", str(error))
        return None

    def run(self, session: str, values: Mapping[str, Any], owner: str = "") -> Iterator[str]:
        """As every tab's; who runs something has settled for its checkpoint."""
        self._settle(session)
        yield from super().run(session, values, owner)

    def run_from_view(
        self, session: str, posted: object, values: Mapping[str, Any], owner: str = ""
    ) -> Iterator[tuple[str | None, str]]:
        """As ``run``, for what a view posted (``read_from_view``): values, each with no sentence,
        or a sentence alone on why nothing was begun; what was measured stays on show then."""
        try:
            wanted = {**values, **read_from_view(posted)}
            refusal = self.check(wanted)
        except RefusalError as error:
            refusal = error
        if refusal is not None:
            yield None, str(refusal)
            return
        for value in self.run(session, wanted, owner):
            yield value, ""

    def linked(self, query: Mapping[str, str]) -> tuple[dict[str, Any], str]:
        """The controls that a shared link sets, and a sentence on what it could not."""
        return read_link(query, self._engines.limits, self._engines.default)

    def remark(self, prompt: object, checkpoint: object) -> str:
        """A quiet sentence on a prompt that may be run but not as people may think, or nothing."""
        entry = self._engines.entries.get(str(checkpoint))
        if not isinstance(prompt, str) or not prompt.strip() or entry is None:
            return ""
        if CONTROL_TEXT.search(prompt):
            return NOTE_CONTROL
        task, own = self._book.task(prompt), set_for(entry)
        if own == TASKS:
            return "" if task and task.family in self._book.families[own] else NOTE_UNKNOWN
        if task is None:
            return ""
        return NOTE_TOO_HARD if is_too_hard(task.family) else remark_on(task.family)

    def nearest(self, prompt: object, checkpoint: object) -> str:
        """For a checkpoint that knows only its tasks, the one that is most like what was typed;
        nothing where that is such a task, or nothing was typed."""
        entry = self._engines.entries.get(str(checkpoint))
        is_typed = isinstance(prompt, str) and bool(prompt.strip())
        if not is_typed or entry is None or self.remark(prompt, checkpoint) != NOTE_UNKNOWN:
            return ""
        return self._book.nearest(str(prompt)).prompt

    def steer(self, session: str, values: Mapping[str, Any]) -> None:
        """Move the visitor's own run, if there is one. Raises RefusalError."""
        run = self.runs.of(session)
        limits = self._engines.limits(run.checkpoint if run else self._engines.default)
        steering = read_steering(values, limits)
        if run is not None:
            run.steer(steering)

    def preset(self, session: str, name: str, values: Mapping[str, Any]) -> tuple[float, bool]:
        """tau and lossless of a preset, in force at once. Raises RefusalError."""
        chosen = PRESETS[name]
        self.steer(session, {**values, **chosen})
        return float(chosen["tau"]), bool(chosen["lossless"])


def offer(task: str) -> str:
    """A task on a button: as much of its first line as fits."""
    line = task.splitlines()[0]
    return OFFER.format(line if len(line) <= OFFER_CHARS else f"{line[:OFFER_CHARS].rstrip()}…")
