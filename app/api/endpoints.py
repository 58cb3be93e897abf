"""The typed endpoints of Gradio's API. They are also MCP tools if the package ``mcp`` is installed.

Their settings come from ``mars_runtime/settings.py``. ``runs.py`` has the functions that they call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, Signature
from typing import Any

import gradio as gr

from app.api.runs import batch, compare, generate, traces
from app.engines.engines import Engines
from app.ui.controls import API_DEFAULTS
from app.ui.examples import ExampleBook
from app.ui.wiring import errors_as_messages, owner_of, run_queue
from mars_runtime.settings import SETTINGS

TYPES = {"number": float, "integer": int, "boolean": bool, "string": str}
EMPTY = Parameter.empty


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of an endpoint, as Gradio documents it."""

    name: str
    type: Any
    says: str
    default: Any = EMPTY


def _setting(name: str, default: Any = EMPTY) -> Argument:
    """Return the parameter of a setting. A choice has the type ``str`` and is validated later."""
    initial = getattr(API_DEFAULTS, name) if default is EMPTY else default
    schema = SETTINGS[name]
    kind: Any = TYPES[schema["type"]] if "type" in schema else int | str  # B may be "auto"
    return Argument(name, kind, schema["description"], initial)


PROMPT = Argument("prompt", str, "the prompt")
CHECKPOINT = Argument(
    "checkpoint", str, "name of a checkpoint that the page offers; empty for the page's default", ""
)
SYSTEM = Argument("system", str, "the system prompt; empty for the model's own", "")
CHOSEN = tuple(
    map(
        _setting,
        (
            *("tau", "block_size", "lossless", "mask_layout", "lookup", "tau_policy"),
            *("agreement_target", "metric", "max_new_tokens", "temperature"),
            *("top_p", "seed", "repetition_penalty", "stop_loops"),
        ),
    )
)
ONE = (PROMPT, _setting("method"), *CHOSEN, CHECKPOINT, SYSTEM)
BOTH = (PROMPT, *CHOSEN, CHECKPOINT, SYSTEM)
SEVERAL = (
    Argument("prompts", list[str], "up to 16 prompts"),
    Argument("method", str, "mars, ar, or lookup (AR + lookup)", "mars"),
    _setting("tau", 0.95),
    _setting("block_size", 4),
    _setting("lossless", False),
    Argument("batch_size", int, "number of prompts decoded at once, up to 16", 8),
    _setting("max_new_tokens", 64),
    CHECKPOINT,
    SYSTEM,
)

Run = Callable[[Mapping[str, Any], str], Iterator[Any]]
"""A function that runs a request. It is called with a mapping from parameter names to values, and
with the client's address. It yields results that grow until the run ends.
"""


def wire_endpoints(engines: Engines, book: ExampleBook) -> None:
    """Add all endpoints to the page that is being built."""
    for endpoint in (
        _endpoint(
            "generate",
            "Generate text with one method. Streams the result as it grows.",
            "text, num_tokens, num_forwards, tokens_per_forward, loops_at (number of tokens "
            "before the text begins to repeat itself, or null; tokens_per_forward and "
            "tokens_per_second count only up to there), tokens_per_second, seconds (of decoding), "
            "ended (empty while running, then eos, limit, repeats, deadline or error), message",
            ONE,
            Iterator[dict[str, Any]],
            partial(generate, engines, book),
        ),
        _endpoint(
            "compare",
            "Run MARS and plain AR on one prompt and compare their speed. Streams the result as it "
            "grows.",
            "mars and ar (each as in generate), speedup (MARS's tokens per second of decoding "
            "divided by AR's, at most the ratio of their tokens per forward pass; null if it "
            "cannot be reported, with the reason in speedup_note), first_divergence (index of the "
            "first token that differs, from 0, or null), is_same_text",
            BOTH,
            Iterator[dict[str, Any]],
            partial(compare, engines, book),
        ),
        _endpoint(
            "batch",
            "Decode several prompts together with one method; when a text ends, the next prompt "
            "takes its place. Streams the result as it grows.",
            "results (for each prompt: text, num_tokens, num_forwards, tokens_per_forward, "
            "loops_at, ended), "
            "totals (of the whole batch), ended, message",
            SEVERAL,
            Iterator[dict[str, Any]],
            partial(batch, engines),
        ),
        _endpoint(
            "traces",
            "Run a prompt and return its trace: every forward pass with all its proposals. "
            "Streams the trace as it grows.",
            "lines of JSON: a header, one event per forward pass and an end; joined by newlines, "
            "they form a file that mars_runtime.runs.trace.read_trace can read",
            ONE,
            Iterator[list[str]],
            partial(traces, engines, book),
        ),
    ):
        # Documented by Gradio, but not exported for type checkers.
        gr.api(  # type: ignore[attr-defined]
            endpoint, api_name=endpoint.__name__, **run_queue(engines.settings)
        )


def _endpoint(
    name: str, says: str, returned: str, arguments: tuple[Argument, ...], returns: Any, run: Run
) -> Callable[..., Iterator[Any]]:
    """Return a function with this name and a signature and docstring from which Gradio documents
    the endpoint.
    """

    def endpoint(request: gr.Request, *values: Any) -> Iterator[Any]:
        with errors_as_messages():
            yield from run(dict(zip(defaults, values, strict=True)), owner_of(request))

    kinds = {"request": gr.Request, **{argument.name: argument.type for argument in arguments}}
    defaults = {argument.name: argument.default for argument in arguments}
    endpoint.__name__ = endpoint.__qualname__ = name
    endpoint.__annotations__ = {**kinds, "return": returns}
    endpoint.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(
                parameter,
                Parameter.POSITIONAL_OR_KEYWORD,
                default=defaults.get(parameter, EMPTY),
                annotation=kind,
            )
            for parameter, kind in kinds.items()
        ],
        return_annotation=returns,
    )
    lines = [f"{argument.name}: {argument.says}" for argument in arguments]
    endpoint.__doc__ = "\n".join([says, f"Returns {returned}.", "Parameters:", *lines])
    return endpoint
