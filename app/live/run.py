"""The Live tab: the run of a visitor, methods in lanes that are steered while they run, and what
each control does.

Values come in raw and text goes out; knows no gradio type, no component and no drawing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from app.controls import TITLES, RefusalError, Steering, read_steering, settings_for
from app.examples.book import TASKS, ExampleBook, is_too_hard, remark_on, set_for
from app.live.order import LiveOrder, read_from_view, read_link, read_live_order
from app.live.presets import controls_of, presets_of
from app.live.shared import SharedRuns
from app.run_log import RunLog, RunLogs
from app.serving.engines import Engines, Served, UnavailableError
from app.stream import (
    POLL_SECONDS,
    SLOW_POLL_SECONDS,
    TabHandlers,
    TabRun,
    Transcript,
    Wait,
    waiting_sentence,
    writer_of,
)
from mars_runtime.engine.backend import with_draft
from mars_runtime.engine.request import Request
from mars_runtime.settings import DecodeSettings
from mars_runtime.tasks import Task
from mars_runtime.text import Context, Tokenizer, Turn

CONTROL_TEXT = re.compile(r"<\|[^|<>\s]{1,40}\|>")
NOTE_CONTROL = "Control-token text in the prompt is read as ordinary characters."
NOTE_UNKNOWN = "This small model knows only tasks like the examples."
FOREIGN = "The conversation is another model's: press New conversation."
OFFER = "Not one of its tasks. The nearest: {}"
OFFER_CHARS = 60
NOTE_TOO_HARD = "This is more than a model of this size can do: see what it makes of it."


class LiveLog(RunLog):
    """The lines of lanes. A status is shown until the next forward or, of the kind ``note``, until
    another follows."""

    def __init__(self, titles: Mapping[str, str], pace: float) -> None:
        """``titles``: of the lanes by their names, in their order."""
        lanes = [{"lane": name, "title": title} for name, title in titles.items()]
        super().__init__({"lanes": lanes, "pace": pace})
        self._lanes = tuple(titles)

    def refuse(self, text: str) -> None:
        """End every lane with a sentence that says why nothing can be run."""
        self._end("error", text)

    def stop(self) -> None:
        """End every lane, of which nothing was run, as its visitor wished."""
        self._end("cancelled", "")

    def _end(self, reason: str, text: str) -> None:
        for name in self._lanes:
            self.add(name, {"type": "end", "reason": reason, "message": text})


class LiveRun(TabRun[LiveOrder]):
    """Its lanes start together and share the device in turn, each until the deadline."""

    def __init__(self, order: LiveOrder, book: ExampleBook, max_seconds: float) -> None:
        log = LiveLog(order.titles, order.pace)
        super().__init__(log, order, book, max_seconds)

    @property
    def pause(self) -> float:
        """Seconds between two values of the stream."""
        return SLOW_POLL_SECONDS if self.order.pace else POLL_SECONDS

    def decode(self, served: Served) -> Iterator[Wait]:
        """All lanes, then the verdicts: judging never takes the machine from a timed lane."""
        order, task = self.order, self.book.task(self.order.prompt)
        self.begin(*start_lanes(served, order, self.max_seconds, task, self.owner))
        if self.order.settings != order.settings:  # moved while they were made
            self._set(lambda settings: self.order.settings)
        yield from self.follow()
        # Where the model wrote all of it: judging Python runs it, and what a visitor gave it to go
        # on from is theirs, earlier turns too.
        if not self.order.goes_on:
            self.judge_all(served, "lane", self.order.prompt)

    def advance(self) -> None:
        """New lines, then who else is on the device."""
        situation = waiting_sentence(lane.run for lane in self.running)
        self.collect()
        if self.running:
            is_begun = any(lane.tokens[0] for lane in self.transcripts)
            self.log.say(situation, "note" if is_begun else "waiting")

    def steer(self, steering: Steering) -> None:
        """Let settings and pace act from the next forward on."""
        if not self.transcripts:
            self.order = replace(self.order, settings=steering.applied_to(self.order.settings))
        self._set(steering.applied_to)
        for lane in self.transcripts:
            if lane.run.pace != steering.pace:
                lane.run.pace = steering.pace
        if steering.pace != self.order.pace:
            self.order = replace(self.order, pace=steering.pace)
            self.log.add("pace", {"pace": steering.pace})

    def _set(self, change: Callable[[DecodeSettings], DecodeSettings]) -> None:
        """From the next forward on."""
        for lane in self.transcripts:
            method = self.order.method_of(lane.name)
            steered = settings_for(method, change(lane.run.settings))
            if method != "ar" and steered != lane.run.settings:
                lane.run.settings = steered


class LiveHandlers(TabHandlers[LiveRun]):
    """The tab's behaviour; one object serves every visitor, told apart by session."""

    pause = SLOW_POLL_SECONDS

    def __init__(
        self, engines: Engines, logs: RunLogs, book: ExampleBook, settle: Callable[[str], None]
    ) -> None:
        """``settle``: hears of every session that runs something."""
        super().__init__(engines, logs, book)
        self._settle = settle
        settings = engines.settings
        folder = Path(settings.data) / "shared" if settings.data else None
        self.shared = SharedRuns(folder, settings.max_import_bytes)

    def read(self, values: Mapping[str, Any]) -> LiveRun:
        """What these controls ask for, not begun yet. Raises RefusalError."""
        order = read_live_order(values, self.limits(values))
        return LiveRun(order, self.book, self.engines.settings.max_seconds)

    def blank(self) -> RunLog:
        """The log of what cannot be begun."""
        return LiveLog({"mars": TITLES["mars"]}, 0.0)

    def check(self, values: Mapping[str, Any]) -> RefusalError | None:
        """What is wrong with these controls, if anything."""
        try:
            order = self.read(values).order
            served = self.engines.get(order.checkpoint, timeout=0.0) if order.goes_on else None
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
        return read_link(query, self.engines.limits, self.engines.default)

    def remark(self, prompt: object, checkpoint: object) -> str:
        """A quiet sentence on a prompt that may be run but not as people may think, or nothing."""
        entry = self.engines.entries.get(str(checkpoint))
        if not isinstance(prompt, str) or not prompt.strip() or entry is None:
            return ""
        if CONTROL_TEXT.search(prompt):
            return NOTE_CONTROL
        task, own = self.book.task(prompt), set_for(entry)
        if own == TASKS:
            return "" if task and task.family in self.book.families[own] else NOTE_UNKNOWN
        if task is None:
            return ""
        return NOTE_TOO_HARD if is_too_hard(task.family) else remark_on(task.family)

    def nearest(self, prompt: object, checkpoint: object) -> str:
        """For a checkpoint that knows only its tasks, the one that is most like what was typed;
        nothing where that is such a task, or nothing was typed."""
        entry = self.engines.entries.get(str(checkpoint))
        is_typed = isinstance(prompt, str) and bool(prompt.strip())
        if not is_typed or entry is None or self.remark(prompt, checkpoint) != NOTE_UNKNOWN:
            return ""
        return self.book.nearest(str(prompt)).prompt

    def steer(self, session: str, values: Mapping[str, Any]) -> None:
        """Move the visitor's own run, if there is one. Raises RefusalError."""
        run = self.runs.of(session)
        limits = self.engines.limits(run.order.checkpoint if run else self.engines.default)
        steering = read_steering(values, limits)
        if run is not None:
            run.steer(steering)

    def preset(self, session: str, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """The controls of a checkpoint's preset, in force at once; none where it is not offered.
        Raises RefusalError."""
        changes = presets_of(str(values.get("checkpoint"))).get(name)
        if changes is None:
            return {}
        chosen = controls_of(changes)
        self.steer(session, {**values, **chosen})
        return chosen


def offer(task: str) -> str:
    """A task on a button: as much of its first line as fits."""
    line = task.splitlines()[0]
    return OFFER.format(line if len(line) <= OFFER_CHARS else f"{line[:OFFER_CHARS].rstrip()}…")


def start_lanes(
    served: Served,
    order: LiveOrder,
    max_seconds: float,
    task: Task | None = None,
    owner: str = "",
) -> list[Transcript]:
    """Submit the order's lanes together. Raises USER_ERRORS and RefusalError.

    max_seconds: the deadline of each lane by the wall clock, rests of slow motion included.
    """
    check_order(served, order)
    contexts = {lane: context_of(served, order, lane) for lane in order.lanes}
    encode = served.checkpoint.tokenizer.encode_prompt
    requests = {
        lane: Request(
            [
                *encode(order.prompt, contexts[lane].history, system=order.system),
                *order.given_to(lane),
            ],
            with_draft(settings, served.checkpoint.name),
            max_seconds,
            is_checked=True,
            owner=owner,
        )
        for lane, settings in order.lanes.items()
    }
    writers = [
        writer_of(served, order.prompt, request, task, contexts[lane])
        for lane, request in requests.items()
    ]
    runs = served.engine.race(list(requests.values()), pace=order.pace)
    return list(map(Transcript, requests, runs, writers))


def check_order(served: Served, order: LiveOrder) -> None:
    """Raises RefusalError for tokens that no text of this checkpoint could go on from, and for
    answers that it cannot have written."""
    tokenizer = served.checkpoint.tokenizer
    given = {token for lane in order.lanes for token in order.given_to(lane)}
    if any(not 0 <= token < tokenizer.size for token in given):
        raise RefusalError("given", "The tokens to go on from are not of this checkpoint.")
    if tokenizer.eos_ids.intersection(given):
        raise RefusalError("given", "This token ends the text: nothing comes behind it.")
    if tokenizer.forbidden_ids.intersection(given):
        raise RefusalError("given", "A control token is no part of a text: choose another.")
    never = tokenizer.eos_ids | tokenizer.forbidden_ids
    for turn in chain.from_iterable(order.histories.values()):
        is_text = all(0 <= token < tokenizer.size for token in turn.tokens)
        if not is_text or never.intersection(turn.tokens):
            raise RefusalError("prompt", FOREIGN)


def context_of(served: Served, order: LiveOrder, lane: str) -> Context:
    """What stands before the prompt of a lane: of the turns that were posted those that leave room
    for the answer."""
    posted = order.history_of(lane)
    room = served.engine.capacity - order.settings.max_new_tokens
    tokenizer = served.checkpoint.tokenizer
    kept = fitting(tokenizer, order.prompt, posted, room, order.system) if posted else ()
    system = tokenizer.system_in_force(order.system)
    return Context(kept, len(posted) - len(kept), len(order.given), system)


def fitting(
    tokenizer: Tokenizer, prompt: str, history: Sequence[Turn], room: int, system: str = ""
) -> tuple[Turn, ...]:
    """The latest turns that stand whole before the prompt within ``room`` tokens."""
    left = room - len(tokenizer.encode_prompt(prompt, system=system))
    num_kept = 0
    for turn in reversed(history):
        left -= tokenizer.num_tokens(turn)
        if left < 0:
            break
        num_kept += 1
    return tuple(history[len(history) - num_kept :])
