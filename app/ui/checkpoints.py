"""Status of the selected checkpoint and of the default one while it loads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from app.engines.engines import Engines, Served, UnavailableError
from app.engines.limits import RefusalError
from app.ui.examples import TASKS, set_for
from mars_runtime.methods import LANES, METHODS
from mars_runtime.serving.models import ModelDescription

LOOK_SECONDS = 1.0
MAX_SETTLED = 1000  # maximum number of remembered sessions; the oldest is dropped
OPENING_SECONDS = 30.0  # maximum time that one request waits for a checkpoint


@dataclass(frozen=True, slots=True)
class CheckpointChoice:
    """What the page shows of the selected checkpoint.

    depth: the largest B. footer: None until the checkpoint is loaded. missing: lanes that it cannot
    run, each with what it needs.
    """

    notice: str
    depth: int
    footer: str | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Arrival:
    """Loading state of the default checkpoint. checkpoint: the one to select now, if any."""

    sentence: str
    checkpoint: str | None = None
    is_over: bool = False


class CheckpointHandlers:
    """Selection of checkpoints; one object serves all visitors, by session."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._settled: dict[str, None] = {}  # sessions, the latest last

    def choose(self, name: object) -> Iterator[CheckpointChoice]:
        """Load a checkpoint and yield its state until it is ready, for at most OPENING_SECONDS.

        Yields nothing for a name that is not listed.
        """
        try:
            entry = self._engines.entry(name)
        except RefusalError:
            return
        until = time.monotonic() + OPENING_SECONDS
        try:
            load = self._engines.begin(entry.name)
            served = load.wait(0.0)
            while served is None and time.monotonic() < until:
                yield CheckpointChoice(load.situation, entry.block_size)
                served = load.wait(LOOK_SECONDS)
        except UnavailableError as error:
            yield CheckpointChoice(str(error), entry.block_size)
            return
        if served is None:
            waits = f"{entry.name} is still loading. Run waits for it."
            yield CheckpointChoice(waits, entry.block_size)
            return
        depth = served.checkpoint.block_size
        words = entry.in_words or f"{entry.name} is ready."
        yield CheckpointChoice(words, depth, footer(served), missing(served))

    def settle(self, session: str) -> None:
        """Stop the page from replacing the checkpoint that this visitor selected or ran."""
        self._settled.pop(session, None)
        self._settled[session] = None
        if len(self._settled) > MAX_SETTLED:
            del self._settled[next(iter(self._settled))]

    def leave(self, session: str) -> None:
        """Forget a visitor who left the page."""
        self._settled.pop(session, None)

    def arrival(self, session: str) -> Arrival:
        """Return the loading state of the default checkpoint for this visitor."""
        load, wanted = self._engines.arrival(), self._engines.wanted
        if load is None:
            return Arrival("", is_over=True)
        if load.failure:
            return Arrival(f"{load.failure} {self._meanwhile()}".rstrip(), is_over=True)
        if load.served is None:
            return Arrival(load.situation)
        if session in self._settled:
            return Arrival(f"{wanted} is ready. Select it as the model.", is_over=True)
        return Arrival("", wanted, is_over=True)

    def _meanwhile(self) -> str:
        """Return a sentence about the checkpoint that answers until then; empty for none."""
        name = self._engines.default
        if name == self._engines.wanted:
            return ""
        is_bound = set_for(self._engines.entry(name)) == TASKS
        knows = ", which can only do its tasks," if is_bound else ""
        return f"Until then {name}{knows} answers."


def missing(served: Served) -> dict[str, str]:
    """Return the lanes that a loaded checkpoint cannot run, with what each of them needs."""
    checkpoint = served.checkpoint
    lacks = {
        "speculative": not served.entry.draft,
        "block_diffusion": not isinstance(checkpoint, ModelDescription)
        and not checkpoint.diffusion_size,
    }
    return {name: METHODS[name].needs for name in METHODS if lacks.get(name)}


def missing_sentence(lanes: Mapping[str, str]) -> str:
    """Return why these lanes cannot be run; empty for none."""
    reasons = "; ".join(f"{LANES[name].title} needs {needs}" for name, needs in lanes.items())
    return f"Not with this model: {reasons}." if lanes else ""


def footer(served: Served) -> str:
    """Return a line with licence, exactness, source of figures and advice on speed."""
    checkpoint, licence = served.checkpoint, served.entry.licence
    parts = [
        f"{checkpoint.name}: " + (licence or "licence not stated"),
        f"lossless is {'bitwise' if served.is_bitwise else 'exact up to near ties'}",
        f"live runs are measured by {'another machine' if served.is_elsewhere else 'this process'}",
        *([served.advice] if served.advice else []),
    ]
    return " · ".join(parts)
