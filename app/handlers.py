"""What each control of the page does: plain functions and generators over run handles.

Values come in raw and text goes out; knows no gradio type, no component and no drawing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.asks import read_asked
from app.controls import (
    Limits,
    RefusalError,
    has_control_text,
    read_order,
    read_pace,
    read_steering,
)
from app.engines import Engines, Served
from app.examples import TASKS, ExampleBook, is_too_hard, set_for
from app.feed import Feeds, RunFeed
from app.launching import USER_ERRORS, check_given, footer, start_lanes
from app.loads import UnavailableError
from app.runs import LiveRace, LiveRuns
from app.settings import AppSettings
from app.share import read_link
from app.waiting import HEARTBEAT_SECONDS, clear, until_loaded
from mars_runtime import tasks
from mars_runtime.engine.backend import where
from mars_runtime.model.registry import Entry

log = logging.getLogger(__name__)
# An update costs some 3 ms of Python beside the decoding thread: at full speed that is kept to 3 %
# of its time, in slow motion, where the device rests anyway, text may flow more smoothly.
POLL_SECONDS, SLOW_POLL_SECONDS = 1 / 7, 1 / 12
NOTE_CONTROL = "Control-token text in the prompt is read as ordinary characters."
NOTE_UNKNOWN = "This small model knows only tasks like the examples."
NOTE_TOO_HARD = "This is more than a model of this size can do: see what it makes of it."
OPENING_SECONDS = 30.0  # that a visitor may hold a place to hear that a checkpoint is there
PRESETS = {
    "Exact": {"tau": 0.0, "lossless": True},
    "Balanced": {"tau": 0.95, "lossless": False},
    "Fast": {"tau": 0.7, "lossless": False},
}


def preset_of(tau: object, lossless: object) -> str | None:
    """The preset that these values are, if any."""
    values = {"tau": tau, "lossless": lossless}
    return next((name for name, preset in PRESETS.items() if preset == values), None)


@dataclass(frozen=True, slots=True)
class Choice:
    """What the page says of the checkpoint in force.

    depth: the largest B. pace: the slow motion to watch it in; footer: what it runs on; both None
    until it is loaded.
    """

    notice: str
    depth: int
    pace: int | None = None
    footer: str | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """How far the wanted checkpoint is; ``checkpoint``: the one to change to, if any."""

    sentence: str
    checkpoint: str | None = None
    is_over: bool = False


class Handlers:
    """The page's behaviour; one object serves every visitor, told apart by session."""

    def __init__(self, settings: AppSettings, engines: Engines, book: ExampleBook) -> None:
        self.settings = settings
        self.engines = engines
        self.book = book
        self.live: LiveRuns[LiveRace] = LiveRuns()
        self.feeds = Feeds()
        self._settled: set[str] = set()  # sessions

    def limits(self, checkpoint: object) -> Limits:
        """What may be asked of a checkpoint. Raises RefusalError for one that is not listed."""
        settings, entry = self.settings, self.entry(checkpoint)
        return Limits(settings.max_prompt_chars, settings.max_new_tokens, entry.block_size)

    def entry(self, checkpoint: object) -> Entry:
        """What the registry says of a checkpoint. Raises RefusalError as ``limits``."""
        found = self.engines.entries.get(checkpoint) if isinstance(checkpoint, str) else None
        if found is None:
            raise RefusalError("checkpoint", "Choose a checkpoint from the list.")
        return found

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
        self.settle(session)
        race: LiveRace | None = None
        try:
            order = read_order(values, self.limits(values.get("checkpoint")))
            clear(self.live, session, SLOW_POLL_SECONDS)
            feed = self.feeds.keep(RunFeed(list(order.lanes), order.pace))
            race = self.live.begin(session, lambda: LiveRace(order, feed))
            served = yield from until_loaded(self.engines, order.checkpoint, race)
            if served is None:
                feed.stop()
            else:
                self._start(served, race)
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

    def _start(self, served: Served, race: LiveRace) -> None:
        order = race.order
        task = self.book.task(order.prompt)
        race.begin(start_lanes(served, order, self.settings.max_seconds, task))

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
        task, own = self.book.task(prompt), set_for(entry)
        if own == TASKS:
            return "" if task and task.family in self.book.families[own] else NOTE_UNKNOWN
        return NOTE_TOO_HARD if task and is_too_hard(task.family) else ""

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

    def choose(self, name: object) -> Iterator[Choice]:
        """Load a checkpoint, saying how far it is; the last word is there within OPENING_SECONDS.

        Nothing is yielded for what is not listed.
        """
        try:
            entry = self.entry(name)
        except RefusalError:
            return
        until = time.monotonic() + OPENING_SECONDS
        try:
            load = self.engines.begin(entry.name)
            served = load.wait(0.0)
            while served is None and time.monotonic() < until:
                yield Choice(load.situation, entry.block_size)
                served = load.wait(HEARTBEAT_SECONDS)
        except UnavailableError as error:
            yield Choice(str(error), entry.block_size)
            return
        if served is None:
            waits = f"{entry.name} is still loading; Run waits for it."
            yield Choice(waits, entry.block_size)
            return
        depth = served.checkpoint.block_size
        yield Choice(entry.note or f"{entry.name} is ready.", depth, served.pace, footer(served))

    def settle(self, session: str) -> None:
        """This visitor has chosen or run a checkpoint: none is put in its place."""
        self._settled.add(session)

    def leave(self, session: str) -> None:
        """This visitor has gone."""
        self._settled.discard(session)

    def arrival(self, session: str) -> Arrival:
        """How far the checkpoint is that visitors are to have who have not settled for another."""
        load, wanted = self.engines.arrival(), self.engines.wanted
        if load is None:
            return Arrival("", is_over=True)
        if load.failure:
            return Arrival(f"{load.failure} {self._meanwhile()}", is_over=True)
        if load.served is None:
            return Arrival(load.situation)
        if session in self._settled:
            return Arrival(f"{wanted} is here: choose it as the model.", is_over=True)
        return Arrival("", wanted, is_over=True)

    def _meanwhile(self) -> str:
        name = self.engines.default
        knows = ", which knows only its tasks," if set_for(self.entry(name)) == TASKS else ""
        return f"Until then {name}{knows} answers."

    def example(self, family: str, number: int) -> str:
        """The prompt of a family's example."""
        return self.book.prompt(family, number)

    def examples_of(self, checkpoint: object) -> str:
        """The set of examples that a checkpoint has; that of the default for what is not listed."""
        listed = self.engines.entries
        name = checkpoint if isinstance(checkpoint, str) and checkpoint in listed else None
        return set_for(listed[name or self.engines.default])


def sentence_of(error: Exception) -> str:
    """What to tell the visitor; a fault that nobody foresaw goes to the log, without the prompt."""
    if isinstance(error, (UnavailableError, RefusalError, *USER_ERRORS)):
        return str(error)
    log.error("a run failed\n%s", where(error))
    return "The run failed inside the app; run it again."
