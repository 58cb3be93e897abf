"""Decode the answers of a set and store each answer when it is finished.

The answers do not depend on interruptions, nor on whether the page or the command creates the set.
Therefore prompts share forward passes only if the model is bitwise, which means that a row's result
does not depend on the other rows of the batch. Prompts are prefilled without the prefix cache,
because a trace contains the number of reused tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mars_runtime.engine.header import Facts, facts_of, make_header
from mars_runtime.engine.request import MAX_DEADLINE, Request, RequestError
from mars_runtime.engine.run import Run
from mars_runtime.events import FINAL, End
from mars_runtime.provenance import fingerprint, provenance
from mars_runtime.review.methods import ReviewMethod
from mars_runtime.review.prompts import Item
from mars_runtime.review.sets import ReviewSet, SetDescription, SetError
from mars_runtime.text import Context, TextError
from mars_runtime.trace import Trace

if TYPE_CHECKING:
    from mars_runtime.engine.base import BaseEngine
    from mars_runtime.model.load import Checkpoint
    from mars_runtime.text import Tokenizer

AT_ONCE = 4
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Decoder:
    """What is needed to decode with a checkpoint.

    facts: the description of the checkpoint for traces. weights: the fingerprint of the weights;
    None if unknown.
    """

    engine: BaseEngine
    tokenizer: Tokenizer
    facts: Facts
    weights: str | None = None

    @classmethod
    def of(cls, engine: BaseEngine, checkpoint: Checkpoint) -> Decoder:
        """Return the decoder of a checkpoint that is loaded in this process."""
        weights = fingerprint(checkpoint.weight_files)
        return cls(engine, checkpoint.tokenizer, facts_of(checkpoint), weights)

    @property
    def at_once(self) -> int:
        """Return how many prompts may be decoded at once without changing their answers."""
        return AT_ONCE if self.facts.is_bitwise else 1


Decoders = Callable[[str], Decoder]
"""A function that returns the decoder of a checkpoint by name and loads it if necessary."""


@dataclass(frozen=True, slots=True)
class SetProgress:
    """The progress of decoding a set: the numbers of finished answers and of all answers.

    refused: messages for prompts that were rejected.
    """

    num_done: int
    num_all: int
    refused: tuple[str, ...] = ()


def begin(
    folder: Path,
    name: str,
    items: Sequence[Item],
    methods: tuple[ReviewMethod, ...],
    decoders: Decoders,
    reference: int = 0,
) -> ReviewSet:
    """Create a set without answers, or open the set in ``folder`` if it equals the requested set.

    Two sets are equal if their prompts, methods, reference and weights are equal. Raises SetError,
    OutputError and the errors of ``decoders``.
    """
    names = dict.fromkeys(method.checkpoint for method in methods)
    origin = {**provenance(), "weights": {name: decoders(name).weights for name in names}}
    return ReviewSet.create(folder, SetDescription(name, methods, reference, origin), items)


def make(
    review: ReviewSet, decoders: Decoders, owner: str = "", deadline: float = MAX_DEADLINE
) -> Iterator[SetProgress]:
    """Decode the missing answers, one method after another, and yield the progress.

    Yields several times a second. Close the generator to stop decoding. owner, deadline: as in
    ``Request``. Raises SetError if a run fails.
    """
    missing = review.missing()
    num_all = len(review.items) * len(review.about.methods)
    num_done, refused = num_all - len(missing), list[str]()
    yield SetProgress(num_done, num_all)
    for method in range(len(review.about.methods)):
        waiting = deque(item for item, other in missing if other == method)
        running: dict[int, tuple[Run, Request]] = {}
        settings = review.about.methods[method].settings
        if not waiting or settings is None:
            continue
        decoder = decoders(review.about.methods[method].checkpoint)
        try:
            while waiting or running:
                while waiting and len(running) < decoder.at_once:
                    item = waiting.popleft()
                    try:
                        running[item] = _begin(review, item, method, decoder, owner, deadline)
                    except (RequestError, TextError) as error:
                        refused.append(f"Prompt {item + 1}: {error}")
                _wait([run for run, _ in running.values()])
                for item in [item for item, (run, _) in running.items() if run.wait(0.0)]:
                    _store(review, item, method, decoder, *running.pop(item))
                    num_done += 1
                yield SetProgress(num_done, num_all, tuple(refused))
        finally:
            for run, _ in running.values():
                run.cancel()
    review.summarize()
    yield SetProgress(num_done, num_all, tuple(refused))


def _begin(
    review: ReviewSet, item: int, method: int, decoder: Decoder, owner: str, deadline: float
) -> tuple[Run, Request]:
    settings = review.about.methods[method].settings
    assert settings is not None, "only methods with settings are decoded"
    prompt_item = review.items[item]
    request = Request(
        decoder.tokenizer.encode_prompt(prompt_item.prompt, before=prompt_item.before),
        settings,
        deadline,
        is_checked=settings.method == "mars" and not settings.is_verified,
        reuses=False,
        owner=owner,
    )
    return decoder.engine.submit(request, is_alone=not decoder.facts.is_bitwise), request


def _wait(runs: Iterable[Run]) -> None:
    """Wait until the oldest run ends, but at most POLL_SECONDS."""
    for run in runs:
        run.wait(POLL_SECONDS)
        break


def _store(
    review: ReviewSet, item: int, method: int, decoder: Decoder, run: Run, request: Request
) -> None:
    events = run.events_since(0)
    end = events[-1]
    if not isinstance(end, End) or end.reason not in FINAL:
        why = end.message if isinstance(end, End) and end.message else "The run was stopped."
        raise SetError(f"Prompt {item + 1} has no answer: {why}")
    prompt_item = review.items[item]
    header = make_header(
        decoder.facts,
        prompt_item.prompt,
        request,
        task=asdict(prompt_item.task) if prompt_item.task else None,
        name=review.about.methods[method].name,
        context=Context(system=decoder.tokenizer.system_in_force(prompt_item.system)),
    )
    review.add_trace(item, method, Trace.of(header, events, decoder.tokenizer.token_bytes).lines())
