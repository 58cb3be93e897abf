"""The library's API: load a model, generate, stream, compare and show.

Every run is a request to the model's engine, and every figure of a result is a fold over the events
of the run. All errors are ``MarsError``, with one sentence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast, overload

from mars_runtime import folds, replay_page
from mars_runtime.engine import Engine, Request, Run
from mars_runtime.engine.backend import with_draft
from mars_runtime.engine.header import make_header
from mars_runtime.errors import MarsError
from mars_runtime.events import EndReason, Step
from mars_runtime.inputs import read_bytes
from mars_runtime.methods import Method
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.notebook import display, framed
from mars_runtime.outputs import write_text
from mars_runtime.settings import (
    OBEYED_BY_ALL,
    RECOMMENDED,
    SETTINGS,
    AutoObjective,
    BlockSize,
    DecodeSettings,
    LogitBias,
    Masked,
    MaskLayout,
    Metric,
    SettingsError,
    TauPolicy,
    with_current_names,
)
from mars_runtime.speedup import Speedup, run_speedup
from mars_runtime.text import Context, Detokenizer, Said, TextError
from mars_runtime.trace import Header, Trace, read_trace

if TYPE_CHECKING:
    from typing_extensions import Unpack

DEADLINE = 3600.0
"""Seconds that a run may take, waiting included."""
MAX_WAITING = 1024
MAX_AT_ONCE = 64
"""Prompts of a list that are submitted at once; each waits for its answer only that long."""
MAX_SHOWN = 4
"""Runs that the race view shows next to each other."""
ROLES = ("system", "user", "assistant")
NO_MESSAGES = (
    "Give the prompt as text, or as a list of messages, each with a role (system, user or "
    "assistant) and a content. The last message must be the user's."
)


class GenerationError(MarsError, RuntimeError):
    """A run failed; the message is one sentence."""


class Message(TypedDict):
    """One turn of a conversation. role: ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


Prompt = str | Sequence[Message]


class Keywords(TypedDict, total=False):
    """The settings by name, as of ``DecodeSettings``, for editors and type checkers."""

    method: Method
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
    auto_objective: AutoObjective
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
    """A finished run. A notebook draws its text in groups of tokens that arrived together.

    trace: its header, all its events and the bytes of its tokens.
    """

    trace: Trace

    @property
    def text(self) -> str:
        """The generated text, without special tokens."""
        return folds.text(self.trace)

    @property
    def tokens_per_forward(self) -> float:
        """Generated tokens per forward pass, the prefill not counted; NaN if there was none."""
        return folds.tpf(self.trace.events)

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second of decoding, without the prefill; NaN if there were none."""
        return folds.tokens_per_second(self.trace.events)

    @property
    def finish_reason(self) -> EndReason:
        """Why the run ended: ``eos``, ``limit``, ``repeats``, ``cancelled`` or ``deadline``."""
        end = folds.end(self.trace.events)
        assert end is not None, "only a finished run has a result"
        return end.reason

    @property
    def steps(self) -> list[Step]:
        """The forward passes in order, with what each proposed and accepted."""
        return folds.steps(self.trace.events)

    def save(self, path: str | Path) -> None:
        """Write the trace as JSON Lines, which ``show`` and the page open. Raises MarsError."""
        write_text(Path(path), "\n".join(self.trace.lines()) + "\n")

    def __repr__(self) -> str:
        events = self.trace.events
        return (
            f"<Result: {folds.num_tokens(events)} tokens in {len(self.steps)} forward passes, "
            f"ended by {self.finish_reason}>"
        )

    def _repr_html_(self) -> str:
        return framed(replay_page.result([self.trace]), repr(self), self.text)


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """MARS and plain AR on the same prompt, which took turns on the device.

    speedup: the ratio of their tokens per second, and whether it may be reported.
    """

    mars: Result
    ar: Result
    speedup: Speedup

    def __repr__(self) -> str:
        ours, theirs = len(self.mars.steps), len(self.ar.steps)
        return f"<Comparison: {ours} forward passes instead of {theirs}>"

    def _repr_html_(self) -> str:
        page = replay_page.result([self.mars.trace, self.ar.trace])
        return framed(page, repr(self), self.mars.text)


@dataclass(frozen=True, slots=True)
class StreamStep:
    """One forward pass of a stream.

    text: what it added, complete characters only. num_accepted: number of tokens that it accepted,
    the end of sequence included. step: the event itself.
    """

    text: str
    num_accepted: int
    step: Step


class TextStream:
    """A run in progress: iterate over its forward passes, once. Leaving the context stops it."""

    def __init__(self, run: Run, header: Header, checkpoint: Checkpoint) -> None:
        self._run, self._header, self._checkpoint = run, header, checkpoint

    @property
    def settings(self) -> DecodeSettings:
        """The settings from the next forward pass on.

        Setting raises SettingsError if the value is not a DecodeSettings, or has more new tokens
        than at the start.
        """
        return self._run.settings

    @settings.setter
    def settings(self, settings: DecodeSettings) -> None:
        self._run.settings = settings

    def stop(self) -> None:
        """End the run within one forward pass; further calls do nothing."""
        self._run.cancel()

    def result(self) -> Result:
        """Wait for the end and return the whole run. Raises GenerationError if it failed."""
        self._run.wait()
        events = self._run.events_since(0)
        end = folds.end(events)
        if end is not None and end.reason == "error":
            raise GenerationError(end.message)
        return Result(Trace.of(self._header, events, self._checkpoint.tokenizer.token_bytes))

    def __iter__(self) -> Iterator[StreamStep]:
        """Yield each forward pass as soon as it is done. Raises GenerationError if the run fails.

        A character with incomplete bytes is in the text of the step that completes it.
        """
        text = Detokenizer(self._checkpoint.tokenizer.token_bytes)
        for event in self._run:
            if isinstance(event, Step):
                (row,) = event.rows
                added = text.push(folds.visible_tokens(row))
                yield StreamStep(added, len(row.accepted), event)
        self.result()

    def __enter__(self) -> TextStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Model:
    """A loaded checkpoint and its engine. Close it, or use it in a ``with``."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self._engine = Engine(checkpoint, max_waiting=MAX_WAITING)

    @property
    def name(self) -> str:
        """The checkpoint's name."""
        return self.checkpoint.name

    @overload
    def generate(  # type: ignore[overload-overlap]  # a text is a sequence of texts
        self, prompt: Prompt, **settings: Unpack[Keywords]
    ) -> Result: ...
    @overload
    def generate(self, prompt: Sequence[Prompt], **settings: Unpack[Keywords]) -> list[Result]: ...
    def generate(
        self, prompt: Prompt | Sequence[Prompt], **settings: Unpack[Keywords]
    ) -> Result | list[Result]:
        """Generate an answer to a prompt or a conversation, or one to each of a list of them.

        Prompts of a list share forward passes; an interrupt ends their runs. settings: those of
        DecodeSettings by name; others have the values that the page recommends. Raises MarsError:
        SettingsError, TextError, RequestError (too long), EngineBusy, GenerationError.
        """
        if _is_one(prompt):
            with self.stream(cast(Prompt, prompt), **settings) as stream:
                return stream.result()
        results: list[Result] = []
        streams: deque[TextStream] = deque()
        try:
            for item in cast(Sequence[Prompt], prompt):
                if len(streams) == MAX_AT_ONCE:
                    results.append(streams[0].result())
                    streams.popleft()
                streams.append(self.stream(item, **settings))
            return [*results, *(stream.result() for stream in streams)]
        finally:
            for stream in streams:
                stream.stop()

    def stream(self, prompt: Prompt, **settings: Unpack[Keywords]) -> TextStream:
        """Start to generate, and return the run. Arguments and errors as of ``generate``."""
        request, header = self._request(prompt, read_keywords(settings))
        return TextStream(self._engine.submit(request), header, self.checkpoint)

    def compare(self, prompt: Prompt, **settings: Unpack[Keywords]) -> Comparison:
        """Run MARS and plain AR on a prompt in turns. Arguments and errors as of ``generate``."""
        chosen = read_keywords(settings)
        common = {name: getattr(chosen, name) for name in OBEYED_BY_ALL}
        plain = DecodeSettings("ar", tau=1.0, block_size=1, **common)
        both = [self._request(prompt, settings) for settings in (chosen, plain)]
        runs = self._engine.race([request for request, _ in both])
        streams = [
            TextStream(run, header, self.checkpoint)
            for run, (_, header) in zip(runs, both, strict=True)
        ]
        with streams[0], streams[1]:
            mars, ar = (stream.result() for stream in streams)
        return Comparison(mars, ar, run_speedup(mars.trace.events, ar.trace.events))

    def close(self) -> None:
        """End all runs and release the engine; further calls do nothing."""
        self._engine.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(self, prompt: Prompt, settings: DecodeSettings) -> tuple[Request, Header]:
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

    device: ``auto`` (CUDA if available), ``cpu``, ``cuda``, ``cuda:1``. dtype: ``auto``, ``fp32``,
    ``bf16`` or ``int8``. Raises CheckpointError, a MarsError.
    """
    return Model(load_checkpoint(str(name_or_path), device=device, dtype=dtype))


def show(*runs: Result | Comparison | str | Path) -> None:
    """Replay runs next to each other: in a notebook, or else in a browser.

    runs: results, comparisons, or files that ``Result.save`` wrote. The charts need plotly, which
    the page installs, and are left out in a notebook. Raises MarsError.
    """
    traces = [trace for run in runs for trace in _traces(run)]
    if not 1 <= len(traces) <= MAX_SHOWN:
        raise MarsError(f"Show 1 to {MAX_SHOWN} runs at a time, got {len(traces)}.")
    text = "\n\n".join(folds.text(trace) for trace in traces)
    display(replay_page.replay(traces), "Replay", text)


def _traces(run: Result | Comparison | str | Path) -> list[Trace]:
    """Return the traces of a run. Raises MarsError."""
    if isinstance(run, Result):
        return [run.trace]
    if isinstance(run, Comparison):
        return [run.mars.trace, run.ar.trace]
    try:
        return [read_trace(read_bytes(Path(run)).splitlines())]
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise MarsError(f"{run} cannot be read ({reason}). Give a file that save wrote.") from error


def read_keywords(settings: Mapping[str, Any]) -> DecodeSettings:
    """Return the settings given by name; others are recommended ones. Raises SettingsError.

    Methods other than MARS start from the defaults of the table.
    """
    chosen = with_current_names(settings)
    for name in chosen:
        if name not in SETTINGS:
            raise SettingsError(f"There is no setting {name}: choose among {', '.join(SETTINGS)}.")
    start = RECOMMENDED if chosen.get("method", "mars") == "mars" else DecodeSettings()
    return replace(start, **chosen)


def _is_one(prompt: Prompt | Sequence[Prompt]) -> bool:
    """Whether this is one prompt: a text or a conversation."""
    return isinstance(prompt, str) or (bool(prompt) and isinstance(prompt[0], Mapping))


def _conversation(prompt: Prompt) -> tuple[list[Said], str]:
    """Return the turns before the last one, and its text. Raises TextError."""
    if isinstance(prompt, str):
        return [], prompt
    try:
        said = [(message["role"], message["content"]) for message in prompt]
    except (KeyError, TypeError) as error:
        raise TextError(NO_MESSAGES) from error
    is_valid = all(role in ROLES and isinstance(content, str) for role, content in said)
    if not said or not is_valid or said[-1][0] != "user":
        raise TextError(NO_MESSAGES)
    return [*said[:-1]], said[-1][1]
