"""What each control of the page does: plain functions and generators over run handles.

Values come in raw and text goes out; knows no gradio type, no component and no drawing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

from app.asks import read_asked
from app.controls import (
    Limits,
    Order,
    RefusalError,
    has_control_text,
    read_order,
    read_pace,
    read_steering,
)
from app.engines import Engines, Served, UnavailableError, watchable_pace
from app.examples import ExampleBook
from app.feed import Feeds, RunFeed
from app.launching import USER_ERRORS, check_given, footer, start_race
from app.runs import LiveRace, LiveRuns
from app.settings import AppSettings
from app.share import read_link
from app.waiting import HEARTBEAT_SECONDS, clear, until_loaded
from mars_runtime import tasks
from mars_runtime.engine.backend import where

log = logging.getLogger(__name__)
# An update costs some 3 ms of Python beside the decoding thread: at full speed that is kept to 3 %
# of its time, in slow motion, where the device rests anyway, text may flow more smoothly.
POLL_SECONDS, SLOW_POLL_SECONDS = 1 / 7, 1 / 12
NOTE_CONTROL = "Control-token text in the prompt is read as ordinary characters."
NOTE_UNKNOWN = "This small model knows only tasks like the examples."
OPENING_SECONDS = 30.0
PRESETS = {
    "Exact": {"tau": 0.0, "lossless": True},
    "Balanced": {"tau": 0.95, "lossless": False},
    "Fast": {"tau": 0.7, "lossless": False},
}


def preset_of(tau: object, lossless: object) -> str | None:
    """The preset that these values are, if any."""
    values = {"tau": tau, "lossless": lossless}
    return next((name for name, preset in PRESETS.items() if preset == values), None)


class Handlers:
    """The page's behaviour; one object serves every visitor, told apart by session."""

    def __init__(self, settings: AppSettings, engines: Engines, book: ExampleBook) -> None:
        self.settings = settings
        self.engines = engines
        self.book = book
        self.live: LiveRuns[LiveRace] = LiveRuns()
        self.feeds = Feeds()

    def limits(self, checkpoint: object) -> Limits:
        """What may be asked of a checkpoint. Raises RefusalError for one that is not listed."""
        entry = self.engines.entries.get(checkpoint) if isinstance(checkpoint, str) else None
        if entry is None:
            raise RefusalError("checkpoint", "Choose a checkpoint from the list.")
        settings = self.settings
        return Limits(settings.max_prompt_chars, settings.max_new_tokens, entry.block_size)

    def check(self, values: Mapping[str, Any]) -> RefusalError | None:
        """What is wrong with these controls, if anything."""
        try:
            order = read_order(values, self.limits(values.get("checkpoint")))
            served = self.engines.get(order.checkpoint, timeout=0.0) if order.given else None
            if served is not None:
                check_given(served, order.given)
        except RefusalError as refusal:
            return refusal
        except UnavailableError as error:
            return RefusalError("checkpoint", str(error))
        return None

    def run(self, session: str, values: Mapping[str, Any]) -> Iterator[str]:
        """Decode what the controls ask for; yields the component's growing value.

        At most twelve times a second, and only when there is news or a second has passed. A refusal
        ends the lanes with its sentence. Closing the generator cancels the run.
        """
        feed = RunFeed(["mars"], 0.0)
        race: LiveRace | None = None
        try:
            order = read_order(values, self.limits(values.get("checkpoint")))
            clear(self.live, session, SLOW_POLL_SECONDS)
            feed = self.feeds.keep(RunFeed(list(order.lanes), order.pace))
            served = yield from until_loaded(self.engines, order.checkpoint, feed)
            race = self.live.begin(session, lambda: self._start(served, order, feed))
            yield from self._watch(session, race)
            self._judge(race, served)
        except Exception as error:
            feed.refuse(sentence_of(error))
        finally:
            if race is not None:
                self.live.end(session, race)
        if feed.has_news:
            yield feed.text()

    def run_asked(
        self, session: str, asked: object, values: Mapping[str, Any]
    ) -> Iterator[tuple[str | None, str]]:
        """As ``run``, for what a view asked for (``asks.py``): values, each with no sentence, or a
        sentence alone on why nothing was begun; what was measured stays on show then."""
        try:
            wanted = {**values, **read_asked(asked)}
            refusal = self.check(wanted)
        except RefusalError as error:
            refusal = error
        if refusal is not None:
            yield None, str(refusal)
            return
        for value in self.run(session, wanted):
            yield value, ""

    def follow(self, query: Mapping[str, str]) -> tuple[dict[str, Any], str]:
        """The controls that a shared link sets, and a sentence on what it could not."""
        return read_link(query, self.limits, self.engines.default)

    def _start(self, served: Served, order: Order, feed: RunFeed) -> LiveRace:
        seconds = self.settings.max_seconds
        return start_race(served, order, feed, seconds, self.book.task(order.prompt))

    def _watch(self, session: str, race: LiveRace) -> Iterator[str]:
        """Yield the feed until every lane has ended or the visitor has begun another race."""
        shown = -HEARTBEAT_SECONDS
        while self.live.of(session) is race:
            situation = race.situation()
            race.collect()
            if race.is_finished:
                return
            race.feed.say(situation, "note" if race.is_begun else "waiting")
            if race.feed.has_news or time.monotonic() - shown >= HEARTBEAT_SECONDS:
                shown = time.monotonic()
                yield race.feed.text()
            race.wait(SLOW_POLL_SECONDS if race.order.pace else POLL_SECONDS)

    def _judge(self, race: LiveRace, served: Served) -> None:
        """Say whether each output is right, where that can be judged: where the model wrote all of
        it, for judging Python runs it, and what a visitor gave it to go on from is theirs.

        Judging waits for the last lane, so that it never takes the machine from a timed one.
        """
        task = self.book.task(race.order.prompt)
        if race.order.given or task is None or not tasks.is_checkable(task):
            return
        for lane in race.lanes:
            if lane.end is not None and lane.end.reason in ("eos", "limit"):
                text = served.checkpoint.tokenizer.decode(lane.tokens)
                race.feed.verdict(lane.name, tasks.check(task, text))

    def remark(self, prompt: object, checkpoint: object) -> str:
        """A quiet sentence on a prompt that may be run but not as people may think, or nothing."""
        entry = self.engines.entries.get(str(checkpoint))
        if not isinstance(prompt, str) or not prompt.strip() or entry is None:
            return ""
        if has_control_text(prompt):
            return NOTE_CONTROL
        return "" if self.book.task(prompt) or entry.path is None else NOTE_UNKNOWN

    def stop(self, session: str) -> None:
        """End the visitor's run within one forward; its text and figures stay."""
        self.live.stop(session)

    def steer(self, session: str, values: Mapping[str, Any]) -> None:
        """Move the visitor's own race, if there is one. Raises RefusalError."""
        race = self.live.of(session)
        limits = self.limits(race.order.checkpoint if race else self.engines.default)
        settings, pace = read_steering(values, limits), read_pace(values.get("pace"))
        if race is not None:
            race.steer(settings, pace)

    def preset(self, session: str, name: str, values: Mapping[str, Any]) -> tuple[float, bool]:
        """tau and lossless of a preset, in force at once. Raises RefusalError."""
        chosen = PRESETS[name]
        self.steer(session, {**values, **chosen})
        return float(chosen["tau"]), bool(chosen["lossless"])

    def choose(self, name: object) -> Iterator[tuple[str, int]]:
        """Load a checkpoint; yields a sentence and the trained depth, 0 where it is not known."""
        try:
            depth = self.limits(name).block_size
            yield f"Loading {name}…", depth
            self.engines.get(str(name))
        except (RefusalError, UnavailableError) as error:
            yield str(error), 0
        else:
            yield f"{name} is ready. {self.engines.entries[str(name)].note}".rstrip(), depth

    def example(self, family: str, number: int) -> str:
        """The prompt of a family's example."""
        return self.book.prompt(family, number)

    def opening(self) -> tuple[int, int, str]:
        """Trained depth, watchable pace and the footer, once the first checkpoint is there.

        A checkpoint that takes longer than a visitor should hold a place for is said to.
        """
        name = self.engines.default
        depth = self.engines.entries[name].block_size
        try:
            served = self.engines.get(name, timeout=OPENING_SECONDS)
        except UnavailableError as error:
            return depth, 0, str(error)
        if served is None:
            return depth, 0, f"{name} is still loading; Run waits for it."
        return served.checkpoint.block_size, watchable_pace(served), footer(served)


def sentence_of(error: Exception) -> str:
    """What to tell the visitor; a fault that nobody foresaw goes to the log, without the prompt."""
    if isinstance(error, (UnavailableError, RefusalError, *USER_ERRORS)):
        return str(error)
    log.error("a run failed\n%s", where(error))
    return "The run failed inside the app; run it again."
