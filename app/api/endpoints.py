"""The typed endpoints of Gradio's API, which are also MCP tools if ``mcp`` is installed.

Their settings are entries of the table (``mars_runtime/settings.py``); ``runs.py`` runs them.
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
from app.ui.controls import DEFAULTS, settings_with
from app.ui.examples import ExampleBook
from app.ui.wiring import in_words, owner_of, run_queue
from mars_runtime.settings import SETTINGS, BlockSize

EMPTY = Parameter.empty


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of an endpoint, as Gradio documents it."""

    name: str
    type: Any
    says: str
    default: Any = EMPTY


def _setting(name: str, default: Any = EMPTY) -> Argument:
    """Return the parameter of a setting. A choice is plain text, which the order validates."""
    line = SETTINGS[name]
    plain = int | str if line.type == BlockSize else str if line.choices else line.type
    chosen = getattr(DEFAULTS, name) if default is EMPTY else default
    return Argument(name, plain, line.says, chosen)


PROMPT = Argument("prompt", str, "what to answer, as typed")
CHECKPOINT = Argument(
    "checkpoint", str, "name of a model of the page; empty for the one that the page opens with", ""
)
SYSTEM = Argument("system", str, "the system prompt; empty for the model's own", "")
CHOSEN = tuple(
    map(
        _setting,
        settings_with(
            *("tau", "block_size", "lossless", "groups", "lookup", "threshold", "target"),
            *("aim", "metric", "max_new_tokens", "temperature", "top_p"),
        ),
    )
)
ONE = (PROMPT, _setting("method"), *CHOSEN, CHECKPOINT, SYSTEM)
BOTH = (PROMPT, *CHOSEN, CHECKPOINT, SYSTEM)
SEVERAL = (
    Argument("prompts", list[str], "up to 16 of them"),
    Argument(
        "method",
        str,
        "cursor (MARS, rows at their own pace), block (MARS, block cache), uncached (MARS), ar, or "
        "lookup (AR + lookup)",
        "cursor",
    ),
    _setting("tau", 0.95),
    _setting("block_size", 4),
    _setting("lossless", False),
    Argument("batch_size", int, "prompts that are decoded at once", 8),
    Argument("cache_block", int, "tokens of a cache block; matters to the method block alone", 16),
    _setting("max_new_tokens", 64),
    CHECKPOINT,
    SYSTEM,
)

Run = Callable[[Mapping[str, Any], str], Iterator[Any]]
"""Called with the values by parameter and the client's address; yields growing results."""


def wire_endpoints(engines: Engines, book: ExampleBook) -> None:
    """Add all endpoints to the page that is being built."""
    for endpoint in (
        _endpoint(
            "generate",
            "Generate text by one method. Streams the run so far.",
            "text, num_tokens, num_forwards, tokens_per_forward, loops_at (tokens up to where the "
            "text begins to repeat itself, from where on nothing counts as tokens_per_forward or "
            "tokens_per_second, or null), tokens_per_second, seconds (of decoding), ended (empty "
            "until it is eos, limit, "
            "repeats, deadline or error), message",
            ONE,
            Iterator[dict[str, Any]],
            partial(generate, engines, book),
        ),
        _endpoint(
            "compare",
            "Run MARS against plain AR on one prompt, on a fair clock. Streams the race so far.",
            "mars and ar (each as of generate), speedup (tokens per second of decoding over AR's, "
            "never above the passes saved; null where it cannot be reported: speedup_note says "
            "why), first_divergence (place of the first token that differs, from "
            "0, or null), is_same_text",
            BOTH,
            Iterator[dict[str, Any]],
            partial(compare, engines, book),
        ),
        _endpoint(
            "batch",
            "Decode several prompts together by one method. Streams the batch so far.",
            "results (for each prompt: text, num_tokens, num_forwards, tokens_per_forward, "
            "loops_at, ended), "
            "totals (of the whole batch, idle rows included), ended, message",
            SEVERAL,
            Iterator[dict[str, Any]],
            partial(batch, engines),
        ),
        _endpoint(
            "traces",
            "Run a prompt for its trace: every forward with all it proposed. Streams it so far.",
            "lines of JSON: a header, one event per forward, an end; joined by line ends they are "
            "a file that mars_runtime.trace.read_trace reads",
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
    name: str, says: str, gives: str, arguments: tuple[Argument, ...], returns: Any, run: Run
) -> Callable[..., Iterator[Any]]:
    """Return a function with the name, signature and docstring from which Gradio documents the
    endpoint.
    """

    def endpoint(request: gr.Request, *values: Any) -> Iterator[Any]:
        named = {each.name: value for each, value in zip(arguments, values, strict=True)}
        with in_words():
            yield from run(named, owner_of(request))

    kinds = {"request": gr.Request, **{each.name: each.type for each in arguments}}
    defaults = {each.name: each.default for each in arguments}
    endpoint.__name__ = endpoint.__qualname__ = name
    endpoint.__annotations__ = {**kinds, "return": returns}
    endpoint.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(
                each,
                Parameter.POSITIONAL_OR_KEYWORD,
                default=defaults.get(each, EMPTY),
                annotation=kind,
            )
            for each, kind in kinds.items()
        ],
        return_annotation=returns,
    )
    lines = [f"{each.name}: {each.says}" for each in arguments]
    endpoint.__doc__ = "\n".join([says, f"Gives {gives}.", "Parameters:", *lines])
    return endpoint
