"""The library's API: load a model, generate, stream, compare and show runs.

Every run is a request to the model's engine, and every number in a result is computed from the
events of the run. All errors are ``MarsError`` with a one-sentence message.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast, overload

from mars_runtime.display import replay_page
from mars_runtime.display.notebook import display, framed
from mars_runtime.engine import Engine, Request, Run
from mars_runtime.engine.backend import with_draft
from mars_runtime.engine.header import make_header
from mars_runtime.errors import MarsError
from mars_runtime.files.inputs import read_bytes
from mars_runtime.files.outputs import write_text
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.runs import folds
from mars_runtime.runs.events import FINAL, EndReason, Step
from mars_runtime.runs.speedup import Speedup, passes_result, run_speedup
from mars_runtime.runs.trace import Header, Trace, read_trace
from mars_runtime.settings import (
    OBEYED_BY_ALL,
    SETTINGS,
    BlockSize,
    DecodeSettings,
    LogitBias,
    Masked,
    MaskLayout,
    MethodName,
    Metric,
    SettingsError,
    TauPolicy,
    recommended,
)
from mars_runtime.text import Context, Detokenizer, Said, TextError

if TYPE_CHECKING:
    from typing_extensions import Unpack

DEADLINE = 3600.0
"""Maximum duration of a run in seconds, including waiting."""
MAX_WAITING = 1024
MAX_AT_ONCE = 64
"""The rest of a list of prompts is submitted as earlier ones finish, so it does not exceed
DEADLINE.
"""
MAX_SHOWN = 4
"""Maximum number of runs that ``show`` accepts."""
ROLES = ("system", "user", "assistant")
NO_MESSAGES = (
    "The prompt must be text or a list of messages, each with a role (system, user or assistant) "
    "and content. The last message must be the user's."
)


class GenerationError(MarsError, RuntimeError):
    """A run failed; the message is one sentence."""


class Message(TypedDict):
    role: str
    content: str


Prompt = str | Sequence[Message]


class Keywords(TypedDict, total=False):
    method: MethodName
    tau: float
    block_size: BlockSize
    metric: Metric
    lossless: bool
    max_new_tokens: int
    temperature: float
    seed: int
    mask_layout: MaskLayout
    lookup: bool
    draft: str
    masked: Masked
    top_p: float
    tau_policy: TauPolicy
    agreement_target: float
    repetition_penalty: float
    stop_loops: bool
    presence_penalty: float
    frequency_penalty: float
    logit_bias: LogitBias
    top_k: int
    min_p: float
    min_tokens: int
    ignore_eos: bool


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """A finished run, which a notebook replays. ``trace`` has its header, events and token
    bytes.
    """

    trace: Trace

    @property
    def text(self) -> str:
        return folds.text(self.trace)

    @property
    def tokens_per_forward(self) -> float:
        """Without the prefill; NaN if there was no forward pass."""
        return folds.tpf(self.trace.events)

    @property
    def tokens_per_second(self) -> float:
        """Without the prefill; NaN if there was no forward pass."""
        return folds.tokens_per_second(self.trace.events)

    @property
    def finish_reason(self) -> EndReason:
        """Why the run ended: ``eos``, ``limit``, ``repeats``, ``cancelled`` or ``deadline``."""
        end = folds.end(self.trace.events)
        assert end is not None, "only a finished run has a result"
        return end.reason

    @property
    def steps(self) -> list[Step]:
        return folds.steps(self.trace.events)

    def save(self, path: str | Path) -> None:
        """Write the trace as JSON Lines, which ``show`` and the page can open. Raises MarsError."""
        write_text(_path(path), "\n".join(self.trace.lines()) + "\n")

    def __repr__(self) -> str:
        events = self.trace.events
        return (
            f"<Result: {folds.num_tokens(events)} tokens in {len(self.steps)} forward passes, "
            f"ended by {self.finish_reason}>"
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text)

    def _repr_html_(self) -> str:
        return framed(replay_page.replay([self.trace], has_charts=False), repr(self), self.text)


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """The runs of MARS and plain AR on one prompt, which took turns on the device.

    ``speedup`` has the ratio of MARS's tokens per second to AR's, and whether to report it.
    """

    mars: Result
    ar: Result
    speedup: Speedup

    def __repr__(self) -> str:
        mars, ar = (folds.up_to_loop(result.trace.events) for result in (self.mars, self.ar))
        counts = folds.num_tokens(mars), folds.num_forwards(mars), folds.num_forwards(ar)
        return f"<Comparison: {passes_result(*counts, 'AR', folds.differs_at(mars, ar))}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.mars.text)

    def _repr_html_(self) -> str:
        page = replay_page.replay([self.mars.trace, self.ar.trace], has_charts=False)
        return framed(page, repr(self), self.mars.text)


@dataclass(frozen=True, slots=True)
class StreamStep:
    """One forward pass of a stream.

    text: the text that the forward pass added, complete characters only.
    num_accepted: number of accepted tokens, EOS included.
    step: the event of the forward pass.
    """

    text: str
    num_accepted: int
    step: Step


class TextStream:
    """A run in progress. Iterate over it once. As a context manager, it stops the run at
    the end.
    """

    def __init__(self, run: Run, header: Header, checkpoint: Checkpoint) -> None:
        self._run, self._header, self._checkpoint = run, header, checkpoint

    @property
    def settings(self) -> DecodeSettings:
        """Settings that apply from the next forward pass on. Assigning raises SettingsError, also
        for more new tokens than at the start.
        """
        return self._run.settings

    @settings.setter
    def settings(self, settings: DecodeSettings) -> None:
        self._run.settings = settings

    def stop(self) -> None:
        """End the run within one forward pass; further calls do nothing."""
        self._run.cancel()

    def result(self) -> Result:
        """Wait for the end and return the finished run. Raises GenerationError if it failed."""
        self._run.wait()
        events = self._run.events_since(0)
        end = folds.end(events)
        if end is not None and end.reason == "error":
            raise GenerationError(end.message)
        return Result(Trace.of(self._header, events, self._checkpoint.tokenizer.token_bytes))

    def __iter__(self) -> Iterator[StreamStep]:
        """Yield each forward pass when it is done. Raises GenerationError if the run fails.

        The text of a step includes a character only when all its bytes have arrived. The last step
        adds U+FFFD if the answer ends within a character, as ``Result.text`` does.
        """
        text = Detokenizer(self._checkpoint.tokenizer.token_bytes)
        for event in self._run:
            if isinstance(event, Step):
                (row,) = event.rows
                added = text.push(folds.visible_tokens(row))
                if row.stop in FINAL:
                    added += text.flush()
                yield StreamStep(added, len(row.accepted), event)
        self.result()

    def __enter__(self) -> TextStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Model:
    """A loaded checkpoint and its engine. Close it, or use it in a ``with`` statement."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self._engine = Engine(checkpoint, max_waiting=MAX_WAITING)

    @property
    def name(self) -> str:
        return self.checkpoint.name

    @overload
    def generate(  # type: ignore[overload-overlap]  # a text is a sequence of texts
        self, prompt: Prompt, **settings: Unpack[Keywords]
    ) -> Result: ...
    @overload
    def generate(self, prompt: Iterable[Prompt], **settings: Unpack[Keywords]) -> list[Result]: ...
    def generate(
        self, prompt: Prompt | Iterable[Prompt], **settings: Unpack[Keywords]
    ) -> Result | list[Result]:
        """Generate an answer to a prompt, or a list of answers to several prompts.

        A prompt is a text or a conversation. Several prompts share forward passes.
        Interrupting the call ends their runs. ``settings`` are fields of DecodeSettings; omitted
        ones have the defaults of ``read_keywords``. Raises MarsError: SettingsError, TextError,
        RequestError (too long), EngineBusy or GenerationError.
        """
        prompts = _several(prompt)
        if prompts is None:
            with self.stream(cast(Prompt, prompt), **settings) as stream:
                return stream.result()
        results: list[Result] = []
        streams: deque[TextStream] = deque()
        try:
            for item in prompts:
                if len(streams) == MAX_AT_ONCE:
                    results.append(streams[0].result())
                    streams.popleft()
                streams.append(self.stream(item, **settings))
            return [*results, *(stream.result() for stream in streams)]
        finally:
            for stream in streams:
                stream.stop()

    def stream(self, prompt: Prompt, **settings: Unpack[Keywords]) -> TextStream:
        """Start a run and return it as a stream. Arguments and errors are those of ``generate``."""
        request, header = self._request(prompt, read_keywords(settings))
        return TextStream(self._engine.submit(request), header, self.checkpoint)

    def compare(self, prompt: Prompt, **settings: Unpack[Keywords]) -> Comparison:
        """Run MARS and plain AR on a prompt, taking turns. Arguments and errors are those of
        ``generate``.
        """
        chosen = read_keywords(settings)
        common = {name: getattr(chosen, name) for name in OBEYED_BY_ALL}
        plain = DecodeSettings("ar", tau=1.0, block_size=1, **common)
        requests = [self._request(prompt, settings) for settings in (chosen, plain)]
        runs = self._engine.race([request for request, _ in requests])
        streams = [
            TextStream(run, header, self.checkpoint)
            for run, (_, header) in zip(runs, requests, strict=True)
        ]
        with streams[0], streams[1]:
            mars, ar = (stream.result() for stream in streams)
        return Comparison(mars, ar, run_speedup(mars.trace.events, ar.trace.events))

    def close(self) -> None:
        self._engine.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(self, prompt: Prompt, settings: DecodeSettings) -> tuple[Request, Header]:
        self._engine.check_not_forked()  # first, because the tokenizer takes locks
        before, text = _conversation(prompt)
        tokenizer = self.checkpoint.tokenizer
        ids = tokenizer.encode_prompt(text, before=before)
        request = Request(ids, with_draft(settings, self.name), DEADLINE)
        own_system = str(before[0][1]) if before and before[0][0] == "system" else ""
        context = Context(system=tokenizer.system_in_force(own_system))
        costs = self._engine.costs()
        return request, make_header(self.checkpoint, text, request, costs=costs, context=context)


def load(name_or_path: str | Path, device: str = "auto", dtype: str = "auto") -> Model:
    """Load a checkpoint by its name in the registry, from a folder or from a GGUF file.

    device: ``auto`` (CUDA if available), ``cpu``, ``cuda`` or ``cuda:1``.
    dtype: ``auto``, ``fp32``, ``bf16`` or ``int8``.

    Raises CheckpointError, a MarsError.
    """
    return Model(load_checkpoint(str(name_or_path), device=device, dtype=dtype))


def show(*runs: Result | Comparison | str | Path | Iterable[Any]) -> None:
    """Replay runs next to each other in a notebook, or in a browser if there is no notebook.

    ``runs`` are results, comparisons, files written by ``Result.save``, or lists of them. The
    charts need plotly; a notebook leaves them out without it. Raises MarsError.
    """
    traces = [trace for run in runs for trace in _traces(run)]
    if not 1 <= len(traces) <= MAX_SHOWN:
        raise MarsError(f"show accepts 1 to {MAX_SHOWN} runs, got {len(traces)}.")
    text = "\n\n".join(folds.text(trace) for trace in traces)
    display(replay_page.replay(traces), "Replay", text)


def _traces(run: Result | Comparison | str | Path | Iterable[Any]) -> list[Trace]:
    if isinstance(run, Result):
        return [run.trace]
    if isinstance(run, Comparison):
        return [run.mars.trace, run.ar.trace]
    if not isinstance(run, str | Path) and (runs := _listed(run)) is not None:
        return [trace for each in runs for trace in _traces(each)]
    path = _path(run)
    try:
        return [read_trace(read_bytes(path).splitlines())]
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise MarsError(
            f"{run} cannot be read ({reason}). Choose a file that Result.save wrote."
        ) from error


def _path(value: Any) -> Path:
    if not isinstance(value, str | os.PathLike) or "\0" in str(value):
        raise MarsError(f"A file must be named by a text or a path, got {value!r}.")
    return Path(value)


def read_keywords(settings: Mapping[str, Any]) -> DecodeSettings:
    """Return settings, completed by ``recommended``. Raises SettingsError."""
    for name in settings:
        if name not in SETTINGS:
            raise SettingsError(f"There is no setting {name}: choose among {', '.join(SETTINGS)}.")
    return recommended(settings)


def _listed(value: object) -> list[Any] | None:
    if isinstance(value, Mapping | bytes | bytearray):
        return None
    try:
        items = iter(cast(Iterable[Any], value))
    except TypeError:  # also for an array without a dimension
        return None
    return [*items]


def _several(prompt: Prompt | Iterable[Prompt]) -> list[Prompt] | None:
    """Return the prompts, or None for a single one. Raises TextError if it is neither."""
    if isinstance(prompt, str):
        return None
    items = _listed(prompt)
    if items is None:
        raise TextError(NO_MESSAGES)
    return None if items and isinstance(items[0], Mapping) else items


def _conversation(prompt: Prompt) -> tuple[list[Said], str]:
    """Return the turns before the last one, and the text of the last one. Raises TextError."""
    if isinstance(prompt, str):
        return [], prompt
    try:
        turns = [(message["role"], message["content"]) for message in prompt]
    except (LookupError, TypeError) as error:
        raise TextError(NO_MESSAGES) from error
    is_valid = all(isinstance(text, str) for turn in turns for text in turn) and all(
        role in ROLES for role, _ in turns
    )
    if not turns or not is_valid or turns[-1][0] != "user":
        raise TextError(NO_MESSAGES)
    return [*turns[:-1]], turns[-1][1]
