"""Messages about the selected checkpoint, and about the default checkpoint while it loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.engines.engines import CheckpointLoad, Engines, LoadedModel, UnavailableError
from app.engines.limits import RefusalError
from app.ui.examples import TASKS, set_for
from mars_runtime.decoders.methods import LANES, METHODS
from mars_runtime.model.registry import Entry
from mars_runtime.settings import EXACTNESS

MAX_SETTLED = 1000  # maximum number of remembered sessions; the oldest is dropped
INSTEAD = "{} is used instead."
INSTEAD_TASKS = f"{INSTEAD} It can only do tasks like the examples."


@dataclass(frozen=True, slots=True)
class CheckpointChoice:
    """What the page shows about the selected checkpoint.

    depth: the largest B of the checkpoint.
    footer: text of the footer. is_over: whether the checkpoint is loaded or cannot be loaded.
    missing: for each method that the checkpoint cannot run, what the method needs.
    """

    notice: str
    depth: int
    footer: str
    is_over: bool = True
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Arrival:
    """Loading state of the default checkpoint.

    sentence: the message to show. checkpoint: the checkpoint to select now, or None. is_over:
    whether the page can stop requesting this state.
    """

    sentence: str
    checkpoint: str | None = None
    is_over: bool = False


class CheckpointHandlers:
    """Handlers for selecting a checkpoint. One object serves all visitors and identifies them by
    session.
    """

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._settled: dict[str, None] = {}  # sessions with a settled checkpoint, by age

    def choose(self, name: object) -> CheckpointChoice | None:
        try:
            entry = self._engines.entry(name)
        except RefusalError:
            return None
        try:
            load = self._engines.begin(entry.name)
        except UnavailableError as error:
            return CheckpointChoice(str(error), entry.block_size, str(error))
        return self._state(entry, load)

    def state(self, name: object) -> CheckpointChoice | None:
        load = self._engines.latest(name)
        return None if load is None else self._state(self._engines.entry(name), load)

    def _state(self, entry: Entry, load: CheckpointLoad) -> CheckpointChoice:
        served = load.served
        if served is None:
            said = load.failure or load.situation
            return CheckpointChoice(said, entry.block_size, said, bool(load.failure))
        ready = entry.in_words or f"{entry.name} is ready."
        depth = served.checkpoint.block_size
        return CheckpointChoice(ready, depth, footer(served), missing=missing(served))

    def settle(self, session: str) -> None:
        """Stop the page from replacing the checkpoint that this visitor has selected or used."""
        self._settled.pop(session, None)
        self._settled[session] = None
        if len(self._settled) > MAX_SETTLED:
            del self._settled[next(iter(self._settled))]

    def leave(self, session: str) -> None:
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
        """Return a sentence about the substitute for a checkpoint that failed to load; empty if
        there is none.
        """
        name = self._engines.default
        if name == self._engines.wanted:
            return ""
        is_bound = set_for(self._engines.entry(name)) == TASKS
        return (INSTEAD_TASKS if is_bound else INSTEAD).format(name)


def missing(served: LoadedModel) -> dict[str, str]:
    return {
        name: method.needs
        for name, method in METHODS.items()
        if (method.needs_draft_model and not served.entry.draft)
        or (method.is_alone and not served.checkpoint.diffusion_size)
    }


def missing_sentence(lanes: Mapping[str, str]) -> str:
    reasons = "; ".join(f"{LANES[name].title} needs {needs}" for name, needs in lanes.items())
    return f"Not available with this model: {reasons}." if lanes else ""


def footer(served: LoadedModel) -> str:
    checkpoint, licence = served.checkpoint, served.entry.licence
    parts = [
        f"{checkpoint.name}: " + (licence or "licence not stated"),
        *(["a frozen base with an adapter on masks"] if served.entry.adapter else []),
        EXACTNESS[served.is_bitwise],
        "live runs are timed on this server",
        *([served.advice] if served.advice else []),
    ]
    return " · ".join(parts)
