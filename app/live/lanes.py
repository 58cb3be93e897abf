"""Runs and handlers of the Live tab.

A run decodes one prompt with several methods, one per lane. The run's settings can be changed while
it runs.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from app.engines.engines import LoadedModel, UnavailableError
from app.engines.limits import RefusalError
from app.live.order import LiveOrder, LiveSteering, read_link
from app.ui.checkpoints import missing, missing_sentence
from app.ui.controls import TITLES, read_controls, settings_for
from app.ui.examples import TASKS, ExampleBook, is_too_hard, remark_on, set_for
from app.ui.stream import (
    RunLog,
    TabHandlers,
    TabRun,
    Transcript,
    waiting_sentence,
    writer_of,
)
from mars_runtime.engine.backend import with_draft
from mars_runtime.engine.request import Request
from mars_runtime.settings import DecodeSettings
from mars_runtime.tasks import Task
from mars_runtime.text import Context, Tokenizer, Turn

CONTROL_TEXT = re.compile(r"<\|[^|<>\s]{1,40}\|>")
NOTE_CONTROL = "Control tokens in the prompt are treated as ordinary text."
NOTE_UNKNOWN = "This small model can only do tasks like the examples."
FOREIGN = "This conversation belongs to another model. Press New conversation."
OFFER = "Closest task: {}"
OFFER_CHARS = 60
NOTE_TOO_HARD = "This task is too hard for a model of this size."


class LiveLog(RunLog):
    """Log with the lines of all lanes. A status stays visible until the next forward pass; a status
    of the kind ``note`` stays until the next status.
    """

    def __init__(self, titles: Mapping[str, str], pace: float) -> None:
        lanes = [{"lane": name, "title": title} for name, title in titles.items()]
        super().__init__({"lanes": lanes, "pace": pace})
        self._lanes = tuple(titles)

    def refuse(self, text: str) -> None:
        """End every lane with a message that explains why it cannot run."""
        self._end("error", text)

    def stop(self) -> None:
        self._end("cancelled", "")

    def _end(self, reason: str, text: str) -> None:
        for name in self._lanes:
            self.add(name, {"type": "end", "reason": reason, "message": text})


class LiveRun(TabRun):
    def __init__(self, order: LiveOrder, book: ExampleBook, max_seconds: float) -> None:
        log = LiveLog(order.titles, order.pace)
        super().__init__(log, order.checkpoint, book, max_seconds)
        self.order = order

    def decode(self, served: LoadedModel) -> Iterator[None]:
        order, task = self.order, self.book.task(self.order.prompt)
        self.begin(*start_lanes(served, order, self.max_seconds, task, self.owner))
        if self.order.settings != order.settings:  # the visitor changed a control during submission
            self._set(lambda settings: self.order.settings)
        yield from self.follow()
        # Check only text that the model wrote completely. Checking Python code executes it, and a
        # continued run contains tokens or turns that the visitor posted.
        if not self.order.continues_text:
            self.log_verdicts(served, "lane", self.order.prompt)

    def advance(self) -> None:
        situation = waiting_sentence(lane.run for lane in self.running)
        self.collect()
        if self.running:
            is_begun = any(lane.tokens[0] for lane in self.transcripts)
            self.log.set_status(situation, "note" if is_begun else "waiting")

    def steer(self, steering: LiveSteering) -> None:
        if not self.transcripts:
            settings = steering.applied_to(self.order.settings)
            self.order = self.order.model_copy(update={"settings": settings})
        self._set(steering.applied_to)
        for lane in self.transcripts:
            if lane.run.pace != steering.pace:
                lane.run.pace = steering.pace
        if steering.pace != self.order.pace:
            self.order = self.order.model_copy(update={"pace": steering.pace})
            self.log.add("pace", {"pace": steering.pace})

    def _set(self, change: Callable[[DecodeSettings], DecodeSettings]) -> None:
        for lane in self.transcripts:
            steered = settings_for(lane.name, change(lane.run.settings))
            if lane.name != "ar" and steered != lane.run.settings:
                lane.run.settings = steered


class LiveHandlers(TabHandlers[LiveRun]):
    def validate(self, values: Mapping[str, Any]) -> LiveRun:
        order = read_controls(LiveOrder, values, self.limits(values))
        return LiveRun(order, self.book, self.engines.settings.max_seconds)

    def blank(self) -> RunLog:
        return LiveLog({"mars": TITLES["mars"]}, 0.0)

    def check(self, values: Mapping[str, Any]) -> RefusalError | None:
        try:
            order = self.validate(values).order
            self._check_lanes(order)
            served = (
                self.engines.get(order.checkpoint, timeout=0.0) if order.continues_text else None
            )
            if served is not None:
                check_order(served, order)
        except RefusalError as refusal:
            return refusal
        except UnavailableError as error:
            return RefusalError("checkpoint", str(error))
        return None

    def _check_lanes(self, order: LiveOrder) -> None:
        """Raise RefusalError if the checkpoint is loaded and cannot run a method of the order."""
        load = self.engines.latest(order.checkpoint)
        lacking = missing(load.served) if load and load.served else {}
        unfit = {name: needs for name, needs in lacking.items() if name in order.lanes}
        if unfit:
            raise RefusalError("view", missing_sentence(unfit))

    def linked(self, query: Mapping[str, str]) -> tuple[dict[str, Any], str]:
        return read_link(query, self.engines.limits, self.engines.default)

    def remark(self, prompt: object, checkpoint: object) -> str:
        entry = self.engines.entries.get(str(checkpoint))
        if not isinstance(prompt, str) or not prompt.strip() or entry is None:
            return ""
        if CONTROL_TEXT.search(prompt):
            return NOTE_CONTROL
        task, examples = self.book.task(prompt), set_for(entry)
        if examples == TASKS:
            return "" if task and task.family in self.book.families[examples] else NOTE_UNKNOWN
        if task is None:
            return ""
        return NOTE_TOO_HARD if is_too_hard(task.family) else remark_on(task.family)

    def nearest(self, prompt: object, checkpoint: object) -> str:
        entry = self.engines.entries.get(str(checkpoint))
        is_typed = isinstance(prompt, str) and bool(prompt.strip())
        if not is_typed or entry is None or self.remark(prompt, checkpoint) != NOTE_UNKNOWN:
            return ""
        return self.book.nearest(str(prompt)).prompt

    def steer(self, session: str, values: Mapping[str, Any]) -> None:
        run = self.runs.of(session)
        limits = self.engines.limits(run.order.checkpoint if run else self.engines.default)
        steering = read_controls(LiveSteering, values, limits)
        if run is not None:
            run.steer(steering)


def offer(task: str) -> str:
    line = task.splitlines()[0]
    return OFFER.format(line if len(line) <= OFFER_CHARS else f"{line[:OFFER_CHARS].rstrip()}…")


def start_lanes(
    served: LoadedModel,
    order: LiveOrder,
    max_seconds: float,
    task: Task | None = None,
    owner: str = "",
) -> list[Transcript]:
    """Submit all lanes of the order at the same time. Raises USER_ERRORS and RefusalError.

    max_seconds: time limit of each lane in wall-clock time, including the pauses of slow motion.
    """
    check_order(served, order)
    contexts = {lane: context_of(served, order, lane) for lane in order.lanes}
    encode = served.checkpoint.tokenizer.encode_prompt
    requests = {
        lane: Request(
            [
                *encode(order.prompt, contexts[lane].history, system=order.system),
                *order.given,
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


def check_order(served: LoadedModel, order: LiveOrder) -> None:
    tokenizer = served.checkpoint.tokenizer
    given_tokens = set(order.given)
    if any(not 0 <= token < tokenizer.size for token in given_tokens):
        raise RefusalError(
            "given",
            "The tokens to continue from belong to another model. Press Run to start a new run.",
        )
    if tokenizer.eos_ids.intersection(given_tokens):
        raise RefusalError("given", "This token ends the text, so nothing can follow it.")
    if tokenizer.forbidden_ids.intersection(given_tokens):
        raise RefusalError(
            "given", "Control tokens cannot be part of an answer. Choose another token."
        )
    never = tokenizer.eos_ids | tokenizer.forbidden_ids
    for turn in chain.from_iterable(order.history.values()):
        is_text = all(0 <= token < tokenizer.size for token in turn.tokens)
        if not is_text or never.intersection(turn.tokens):
            raise RefusalError("prompt", FOREIGN)


def context_of(served: LoadedModel, order: LiveOrder, lane: str) -> Context:
    posted = order.history.get(lane, ())
    room = served.engine.capacity - order.settings.max_new_tokens
    tokenizer = served.checkpoint.tokenizer
    turns = fitting(tokenizer, order.prompt, posted, room, order.system) if posted else ()
    system = tokenizer.system_in_force(order.system)
    return Context(turns, len(posted) - len(turns), len(order.given), system)


def fitting(
    tokenizer: Tokenizer, prompt: str, history: Sequence[Turn], room: int, system: str = ""
) -> tuple[Turn, ...]:

    def length(num_turns: int) -> int:
        kept = history[len(history) - num_turns :]
        return len(tokenizer.encode_prompt(prompt, kept, system=system))

    num_kept = max(0, bisect_right(range(len(history) + 1), room, key=length) - 1)
    return tuple(history[len(history) - num_kept :])
