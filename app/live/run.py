"""The run of a visitor in the Live tab: methods in lanes, steered while they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from app.controls import RefusalError, Steering
from app.examples.book import ExampleBook
from app.feed import Feed
from app.live.conversation import check_history, fitting
from app.live.order import LiveOrder
from app.methods import TITLES, settings_for
from app.serving.loads import Served
from app.stream import POLL_SECONDS, SLOW_POLL_SECONDS, TabRun, Wait, company
from app.transcript import Transcript, writer_of
from mars_runtime.engine.request import Request
from mars_runtime.engine.speculation import named
from mars_runtime.lab.tasks import Task
from mars_runtime.settings import DecodeSettings
from mars_runtime.turns import Context


class LiveFeed(Feed):
    """The lines of lanes. A status is shown until the next forward or, of the kind ``note``, until
    another follows."""

    def __init__(self, lanes: Sequence[str], pace: float) -> None:
        titles = [{"lane": name, "title": TITLES[name]} for name in lanes]
        super().__init__({"lanes": titles, "pace": pace})
        self._lanes = tuple(lanes)

    def refuse(self, text: str) -> None:
        """End every lane with a sentence that says why nothing can be run."""
        self._end("error", text)

    def stop(self) -> None:
        """End every lane, of which nothing was run, as its visitor wished."""
        self._end("cancelled", "")

    def _end(self, reason: str, text: str) -> None:
        for name in self._lanes:
            self.add(name, {"type": "end", "reason": reason, "message": text})


class LiveRun(TabRun):
    """Its lanes start together and share the device in turn."""

    def __init__(self, order: LiveOrder, book: ExampleBook, max_seconds: float) -> None:
        """max_seconds: the deadline of each lane."""
        super().__init__(LiveFeed(list(order.lanes), order.pace), order.checkpoint)
        self.order = order
        self._book = book
        self._max_seconds = max_seconds

    @property
    def pause(self) -> float:
        """Seconds between two values of the stream."""
        return SLOW_POLL_SECONDS if self.order.pace else POLL_SECONDS

    def decode(self, served: Served) -> Iterator[Wait]:
        """All lanes, then the verdicts: judging never takes the machine from a timed lane."""
        order, task = self.order, self._book.task(self.order.prompt)
        self.begin(*start_lanes(served, order, self._max_seconds, task, self.owner))
        if self.order.settings != order.settings:  # moved while they were made
            self._set(lambda settings: self.order.settings)
        yield from self.follow()
        self._judge(served)

    def advance(self) -> None:
        """New lines, then who else is on the device."""
        situation = company(lane.run for lane in self.going)
        self.collect()
        if self.going:
            is_begun = any(lane.tokens[0] for lane in self.transcripts)
            self.feed.say(situation, "note" if is_begun else "waiting")

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
            self.feed.add("pace", {"pace": steering.pace})

    def _set(self, change: Callable[[DecodeSettings], DecodeSettings]) -> None:
        """From the next forward on."""
        for lane in self.transcripts:
            steered = settings_for(lane.name, change(lane.run.settings))
            if lane.name != "ar" and steered != lane.run.settings:
                lane.run.settings = steered

    def _judge(self, served: Served) -> None:
        """Say whether each output is right, where that can be judged: where the model wrote all of
        it, for judging Python runs it, and what a visitor gave it to go on from is theirs, earlier
        turns too."""
        if self.order.given or any(self.order.histories.values()):
            return
        task = self._book.task(self.order.prompt)
        for lane in self.transcripts:
            if lane.is_done:
                self.judge(served, task, lane.tokens[0], {"lane": lane.name})


def check_given(served: Served, given: Sequence[int]) -> None:
    """Raises RefusalError for tokens that no output of this checkpoint could go on from."""
    tokenizer = served.checkpoint.tokenizer
    if any(not 0 <= token < tokenizer.size for token in given):
        raise RefusalError("given", "The tokens to go on from are not of this checkpoint.")
    if tokenizer.eos_ids.intersection(given):
        raise RefusalError("given", "This token ends the text: nothing comes behind it.")
    if tokenizer.forbidden_ids.intersection(given):
        raise RefusalError("given", "A control token is no part of a text: choose another.")


def check_order(served: Served, order: LiveOrder) -> None:
    """Raises RefusalError for tokens in it that are no text of this checkpoint."""
    check_given(served, order.given)
    for turns in order.histories.values():
        check_history(served, turns)


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
            [*encode(order.prompt, contexts[lane].history), *order.given],
            named(settings, served.checkpoint.name),
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


def context_of(served: Served, order: LiveOrder, lane: str) -> Context:
    """What stands before the prompt of a lane: of the turns that were posted those that leave room
    for the answer."""
    posted = order.histories.get(lane, ())
    room = served.engine.capacity - order.settings.max_new_tokens
    kept = fitting(served.checkpoint.tokenizer, order.prompt, posted, room) if posted else ()
    return Context(kept, len(posted) - len(kept), len(order.given))
