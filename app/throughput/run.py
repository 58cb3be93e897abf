"""Runs and handlers of the Throughput tab: a queue of prompts, N of them decoded at once.

A live run first measures plain AR for a few seconds, once per number of rows, then decodes the
queue with MARS. A measurement decodes the same prompts with both methods in several rounds. The
first line of a value (``RunLog``) has the number of rows and the prompts. ``ThroughputView``
(``app/ui/views.py``) lists the further lines. Each transcript begins with a line ``begin``.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from app.engines.engines import Engines, LoadedModel
from app.engines.limits import Limits
from app.ui.controls import PLAIN, TITLES, Order, Whole, read_controls, settings_for
from app.ui.examples import ExampleBook, set_for
from app.ui.rounds import NumRounds, in_turn, rounds_text
from app.ui.stream import STOPPED, RunLog, RunLogs, TabHandlers, TabRun, Transcript
from mars_runtime.engine.busy import BusyRule, next_level
from mars_runtime.engine.header import facts_of
from mars_runtime.runs.events import FINAL, Event, Prefill, Step
from mars_runtime.runs.folds import num_accepted, totals
from mars_runtime.runs.speedup import Rounds
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Detokenizer

if TYPE_CHECKING:
    from mars_runtime.decoders.base import SettingsSource, Vocabulary
    from mars_runtime.decoders.forward_costs import ForwardCosts
    from mars_runtime.model.forward import CausalModel

ROWS = (1, 2, 4, 8, 16)
STEERED = ("tau", "block_size", "lossless", "follows")
"""Controls that act on a run in progress."""
CONTROLS = ("rows", *STEERED, "rounds", "checkpoint", "system")
MAX_TOKENS = 96  # of each answer
NUM_QUEUED = 48  # prompts of a live run
MIN_MEASURED = 8  # prompts of a measurement, at least
WINDOW_SECONDS = 2.0  # seconds that the live figures cover
AR_SECONDS = 4.0  # decoding time of plain AR before a live run
AR_VALID_SECONDS = 600.0  # age up to which an earlier measurement of plain AR is used again
LOW_TAU = 0.5  # τ while the queue is long, if it follows the queue
RUNNING = {"ar": "Measuring plain AR first…", "mars": "Running…"}
Levels = dict[tuple[str, int], tuple[float, float]]
"""AR's tokens per second and the time of its measurement, by checkpoint and number of rows."""


class ThroughputSteering(Order):
    """follows: lower τ while prompts wait."""

    follows: bool


class ThroughputOrder(ThroughputSteering):
    """A validated run.

    rows: number of prompts decoded at once.
    rounds: number of paired rounds to measure; 0 for a live run.
    """

    rows: Annotated[Literal[1, 2, 4, 8, 16], Whole]
    rounds: NumRounds

    def steered(self, values: Mapping[str, Any], limits: Limits) -> ThroughputOrder:
        read = read_controls(ThroughputSteering, values, limits, self.settings)
        return self.model_copy(update={"settings": read.settings, "follows": read.follows})


class Meter:
    """Live figures of a run with many rows. Seconds are decoding time, without prefill."""

    def __init__(self) -> None:
        self.at = 0.0
        self.num_joined = 0
        self._num_done = 0
        self._recent: deque[tuple[float, int, int]] = deque()  # seconds, tokens and rows of passes
        self._span = 0.0

    def add(self, event: Event) -> None:
        if isinstance(event, Prefill):
            self.num_joined += 1
        elif isinstance(event, Step):
            self.at += event.seconds
            self._span += event.seconds
            self._num_done += sum(row.stop in FINAL for row in event.rows)
            self._recent.append((event.seconds, num_accepted(event), len(event.rows)))
            while self._span - self._recent[0][0] >= WINDOW_SECONDS:
                self._span -= self._recent.popleft()[0]

    def figures(self) -> dict[str, float]:
        _, tokens, rows = map(sum, zip(*self._recent, strict=True))
        rate = {"rate": round(tokens / (self._span or 1), 1), "tpf": round(tokens / rows, 3)}
        return {"at": round(self.at, 3), "done": self._num_done, **rate}


class ThroughputRun(TabRun):
    def __init__(
        self,
        order: ThroughputOrder,
        book: ExampleBook,
        max_seconds: float,
        prompts: Sequence[str],
        levels: Levels,
        depth: int,
    ) -> None:
        log = RunLog({"rows": order.rows, "prompts": prompts})
        super().__init__(log, order.checkpoint, book, max_seconds)
        self.order = order
        self._prompts = prompts
        self._levels = levels
        self._rule = BusyRule(LOW_TAU, depth)
        self._level = 0  # of the rule
        self._method = "ar"
        self._num_rounds = 0  # complete ones

    def decode(self, served: LoadedModel) -> Iterator[None]:
        yield from self._measure(served) if self.order.rounds else self._live(served)
        end = self.transcripts[-1].end
        if self.is_cancelled:
            self.log.set_status(STOPPED, "stopped")
        elif self._num_rounds:
            text = rounds_text(self._num_rounds, self.order.rounds)
            self.log.set_status(f"Finished, {text}.", "finished")
        elif end is not None and end.message:
            self.log.set_status(end.message, "error" if end.reason == "error" else "stopped")
        else:
            self.log.set_status(f"Finished: {len(self._prompts)} answers.", "finished")

    def _live(self, served: LoadedModel) -> Iterator[None]:
        key = self.order.checkpoint, self.order.rows
        rate, measured = self._levels.get(key, (0.0, 0.0))
        if not rate or time.monotonic() - measured > AR_VALID_SECONDS:
            yield from self._decode(served, "ar", self._prompts)
            rate = totals(self.transcripts[-1].events).tokens_per_second
            if self.is_cancelled or not rate:
                return
            self._levels[key] = rate, time.monotonic()
        self.log.add("level", {"rate": round(rate, 1)})
        yield from self._decode(served, "mars", self._prompts)

    def _measure(self, served: LoadedModel) -> Iterator[None]:
        prompts = self._prompts[: max(MIN_MEASURED, self.order.rows)]
        until = time.monotonic() + self.max_seconds
        mars, ar = Rounds(), Rounds()
        for number in range(self.order.rounds):
            done: dict[str, Transcript] = {}
            for method in in_turn(("mars", "ar"), number):
                if self.is_cancelled or time.monotonic() >= until:
                    return
                yield from self._decode(served, method, prompts, until - time.monotonic())
                if not self.transcripts[-1].is_done:
                    return
                done[method] = self.transcripts[-1]
            mars.add(done["mars"].events, done["ar"].events)
            ar.add(done["ar"].events, None)
            self._num_rounds += 1
            sides = {"mars": mars, "ar": ar}
            self.log.add("measured", self._result(served, prompts, sides, done))

    def _result(
        self,
        served: LoadedModel,
        prompts: Sequence[str],
        sides: Mapping[str, Rounds],
        done: Mapping[str, Transcript],
    ) -> dict[str, Any]:
        counts = {name: totals(transcript.events) for name, transcript in done.items()}
        texts = [done[name].tokens for name in ("mars", "ar")]
        return {
            **facts_of(served.checkpoint),
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "rows": self.order.rows,
            "settings": asdict(self.order.settings),
            "prompts": list(prompts),
            "num_same": sum(texts[0][row] == texts[1][row] for row in range(len(prompts))),
            "speedup": sides["mars"].plain(),
            **{
                name: {
                    "rates": sides[name].rates,
                    "rate": sides[name].plain()["rate"],
                    "passes": counts[name].counted_forwards,
                    "tpf": counts[name].effective_tpf,
                }
                for name in sides
            },
        }

    def _decode(
        self, served: LoadedModel, method: str, prompts: Sequence[str], max_seconds: float = 0.0
    ) -> Iterator[None]:
        self._method, self._meter, self._level = method, Meter(), 0
        self._shown: tuple[object, ...] = ()
        token_bytes = served.checkpoint.tokenizer.token_bytes
        self._texts: dict[int, Detokenizer] = defaultdict(partial(Detokenizer, token_bytes))
        round_number = self._num_rounds + 1 if self.order.rounds else 0
        head = {"method": method, "title": TITLES[method], "round": round_number}
        self.log.add("begin", {**head, "of": self.order.rounds})
        settings = settings_for(method, self.order.settings)
        rest = self.order.rows, self.order.system, max_seconds or self.max_seconds, self.owner
        self.begin(start_batch(served, prompts, settings, *rest))
        yield from self.follow()

    def advance(self) -> None:
        sentence = RUNNING[self._method]
        if self.order.rounds:
            number = f"round {self._num_rounds + 1} of {self.order.rounds}"
            sentence = f"Measuring {TITLES[self._method]}, {number}…"
        self.say_situation(sentence if self._meter.at else "")
        self.collect()
        if self.order.rounds:
            return
        if self._method == "mars":
            self._apply()
        elif self._meter.at >= AR_SECONDS:
            self.transcripts[-1].run.cancel()

    def collect(self) -> None:
        events = self.transcripts[-1].new_events() if self.transcripts else ()
        passes = [event for event in events if isinstance(event, Step)]
        for event in events:
            self._meter.add(event)
            if isinstance(event, Step):
                self._log_pass(event)
        if passes:
            waiting = len(self._prompts) - self._meter.num_joined
            self.log.add("figures", {**self._meter.figures(), "waiting": waiting})

    def _log_pass(self, step: Step) -> None:
        at, settings = round(self._meter.at, 3), step.rows[0].settings
        names = ("tau", "block_size", "lossless")
        shown = tuple(getattr(settings, name) for name in names)
        if self._method == "mars" and shown != self._shown:
            self._shown = shown
            self.log.add("move", {"at": at, **dict(zip(names, shown, strict=True))})
        rows = []
        for row in step.rows:
            text = self._texts[row.row].push(row.accepted[: -1 if row.stop == "eos" else None])
            end = [row.stop] if row.stop in FINAL else []
            rows.append([row.row, len(row.accepted), text, *end])
        self.log.add("pass", {"at": at, "rows": rows})

    def steer(self, order: ThroughputOrder) -> None:
        if not self.order.rounds:
            self.order = order
            if self.transcripts and self._method == "mars":
                self._apply()

    def _apply(self) -> None:
        """Set the settings of the running batch; while τ follows the queue, the rule limits τ."""
        run, num_waiting = self.transcripts[-1].run, len(self._prompts) - self._meter.num_joined
        self._level = next_level(self._level, num_waiting, self.order.rows)
        chosen = settings_for("mars", self.order.settings)
        settings = self._rule.apply(chosen, self._level if self.order.follows else 0)
        if settings != run.settings:
            run.settings = settings


class ThroughputHandlers(TabHandlers[ThroughputRun]):
    def __init__(
        self, engines: Engines, logs: RunLogs, book: ExampleBook, settle: Callable[[str], None]
    ) -> None:
        super().__init__(engines, logs, book, settle)
        self._levels: Levels = {}

    def validate(self, values: Mapping[str, Any]) -> ThroughputRun:
        limits = self.limits(values)
        start = replace(PLAIN, max_new_tokens=min(MAX_TOKENS, limits.max_new_tokens))
        order = read_controls(ThroughputOrder, values, limits, start)
        if not values.get("measure"):
            order = order.model_copy(update={"rounds": 0})
        prompts = self._prompts(order.checkpoint)
        rest = self.engines.settings.max_seconds, prompts, self._levels, limits.block_size
        return ThroughputRun(order, self.book, *rest)

    def _prompts(self, checkpoint: str) -> list[str]:
        chosen = set_for(self.engines.entry_or_default(checkpoint))
        prompts = dict.fromkeys(self.book.several(chosen, 0, 3 * NUM_QUEUED))
        return ([*prompts] * NUM_QUEUED)[:NUM_QUEUED]

    def blank(self) -> RunLog:
        return RunLog({"rows": 0, "prompts": []})

    def measure(self, session: str, values: Mapping[str, Any], owner: str = "") -> Iterator[str]:
        return self.run(session, {**values, "measure": True}, owner)

    def steer(self, session: str, values: Mapping[str, Any]) -> None:
        run = self.runs.of(session)
        if run is not None:
            limits = self.engines.limits(run.order.checkpoint)
            run.steer(run.order.steered(values, limits))


def start_batch(
    served: LoadedModel,
    prompts: Sequence[str],
    settings: DecodeSettings,
    rows: int,
    system: str,
    max_seconds: float,
    owner: str,
) -> Transcript:
    """Decode a queue of prompts, ``rows`` at once. The run has the device to itself. Raises
    USER_ERRORS.
    """
    encode = served.checkpoint.tokenizer.encode_prompt
    ids = [encode(prompt, system=system) for prompt in prompts]
    decode = partial(_decode_queue, ids, rows)
    return Transcript(
        "", served.engine.run_decoder(decode, settings, deadline=max_seconds, owner=owner)
    )


def _decode_queue(
    prompts: Sequence[Sequence[int]],
    rows: int,
    model: CausalModel,
    vocabulary: Vocabulary,
    settings: SettingsSource,
    costs: ForwardCosts | None,
) -> Iterator[Event]:
    """Call ``decode_queue``. It is imported here, because importing torch at the start would delay
    the page.
    """
    from mars_runtime.decoders.cursor import decode_queue

    return decode_queue(model, vocabulary, prompts, settings, rows, costs)
