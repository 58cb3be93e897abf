"""The typed endpoints, which gradio documents and offers to programs, as tools too where ``mcp`` is
installed. Types and words only: what they do is in the modules beside this one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
from gradio.events import api as offer

from app.api.batches import batch as batch_run
from app.api.runs import compare as compare_run
from app.api.runs import generate as generate_run
from app.api.runs import traces as traces_run
from app.controls import DEFAULTS
from app.examples.book import ExampleBook
from app.layout.wiring import in_words, owner_of, run_queue
from app.serving.engines import Engines

PARAMETERS = {
    "prompt": "what to answer, as typed",
    "prompts": "up to 16 of them",
    "method": "mars, ar for one token per forward, jacobi (AR's text by guesses; wants a B), "
    "speculative (AR's text by a second model; wants a B) or block_diffusion (by its twin)",
    "tau": "threshold from 0 to 1: proposals at least that sure are taken",
    "block_size": "B, proposals per forward, or auto",
    "lossless": "emit only what AR would write; tau then says how boldly to draft",
    "groups": "masks of a lossless run: every (after each draft) or one (after the last)",
    "lookup": "a lossless run also drafts what followed where its last tokens occurred before",
    "threshold": "without lossless: fixed, or tau is the least of one that adapts by entropy (how "
    "uncertain AR's own token was) or by agreement (with AR, to hold the target)",
    "target": "the share of mask tokens that AR would have chosen too; of threshold agreement",
    "metric": "what tau is held against: probability, margin or entropy",
    "max_new_tokens": "at most so many tokens for each prompt",
    "temperature": "0 is greedy",
    "top_p": "above temperature 0: draw among the most probable tokens that have so much together",
    "seed": "matters above temperature 0",
    "checkpoint": "name of a model of the page; empty for the one that the page opens with",
    "batch.method": "cursor (MARS, rows at their own pace), block (MARS, block cache), uncached "
    "(MARS), or ar",
    "batch.block_size": "B, proposals per forward",
    "batch_size": "prompts that are decoded at once",
    "cache_block": "tokens of a cache block; matters to the method block alone",
}


def wire_endpoints(engines: Engines, book: ExampleBook) -> None:
    """Offer all of them on the page that is being built."""
    for make in (_generate, _compare, _batch, _traces):
        endpoint, returns = make(engines, book)
        own = endpoint.__name__
        names = [name for name in inspect.signature(endpoint).parameters if name != "request"]
        lines = [f"{name}: {PARAMETERS.get(f'{own}.{name}') or PARAMETERS[name]}" for name in names]
        words = [inspect.getdoc(endpoint), f"Gives {returns}.", "Parameters:", *lines]
        endpoint.__doc__ = "\n".join(map(str, words))
        offer(endpoint, api_name=own, **run_queue(engines.settings))


Endpoint = tuple[Callable[..., Iterator[Any]], str]
"""A function whose signature and docstring gradio reads, and what it gives in words."""


def _generate(engines: Engines, book: ExampleBook) -> Endpoint:
    def generate(
        request: gr.Request,
        prompt: str,
        method: str = "mars",
        tau: float = DEFAULTS.tau,
        block_size: int | str = DEFAULTS.block_size,
        lossless: bool = DEFAULTS.lossless,
        groups: str = DEFAULTS.groups,
        lookup: bool = DEFAULTS.lookup,
        threshold: str = DEFAULTS.threshold,
        target: float = DEFAULTS.target,
        metric: str = DEFAULTS.metric,
        max_new_tokens: int = DEFAULTS.max_new_tokens,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        checkpoint: str = "",
    ) -> Iterator[dict[str, Any]]:
        """Generate text by one method. Streams the run so far."""
        values = locals()
        with in_words():
            yield from generate_run(engines, book, values, owner_of(request))

    return generate, (
        "text, num_tokens, num_forwards, tokens_per_forward, tokens_per_second, seconds (of "
        "decoding), ended (empty until it is eos, limit, deadline or error), message"
    )


def _compare(engines: Engines, book: ExampleBook) -> Endpoint:
    def compare(
        request: gr.Request,
        prompt: str,
        tau: float = DEFAULTS.tau,
        block_size: int | str = DEFAULTS.block_size,
        lossless: bool = DEFAULTS.lossless,
        groups: str = DEFAULTS.groups,
        lookup: bool = DEFAULTS.lookup,
        threshold: str = DEFAULTS.threshold,
        target: float = DEFAULTS.target,
        metric: str = DEFAULTS.metric,
        max_new_tokens: int = DEFAULTS.max_new_tokens,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        checkpoint: str = "",
    ) -> Iterator[dict[str, Any]]:
        """Run MARS against plain AR on one prompt, on a fair clock. Streams the race so far."""
        values = locals()
        with in_words():
            yield from compare_run(engines, book, values, owner_of(request))

    return compare, (
        "mars and ar (each as of generate), speedup (tokens per second of decoding over AR's, null "
        "under 20 tokens), first_divergence (place of the first token that differs, from 0, or "
        "null), is_same_text"
    )


def _batch(engines: Engines, book: ExampleBook) -> Endpoint:
    def batch(
        request: gr.Request,
        prompts: list[str],
        method: str = "cursor",
        tau: float = 0.95,
        block_size: int = 4,
        batch_size: int = 8,
        cache_block: int = 16,
        max_new_tokens: int = 64,
        checkpoint: str = "",
    ) -> Iterator[dict[str, Any]]:
        """Decode several prompts together by one method. Streams the batch so far."""
        values = locals()
        with in_words():
            yield from batch_run(engines, values, owner_of(request))

    return batch, (
        "results (for each prompt: text, num_tokens, num_forwards, tokens_per_forward, ended), "
        "totals (of the whole batch, idle rows included), ended, message"
    )


def _traces(engines: Engines, book: ExampleBook) -> Endpoint:
    def traces(
        request: gr.Request,
        prompt: str,
        method: str = "mars",
        tau: float = DEFAULTS.tau,
        block_size: int | str = DEFAULTS.block_size,
        lossless: bool = DEFAULTS.lossless,
        groups: str = DEFAULTS.groups,
        lookup: bool = DEFAULTS.lookup,
        threshold: str = DEFAULTS.threshold,
        target: float = DEFAULTS.target,
        metric: str = DEFAULTS.metric,
        max_new_tokens: int = DEFAULTS.max_new_tokens,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        checkpoint: str = "",
    ) -> Iterator[list[str]]:
        """Run a prompt for its trace: every forward with all it proposed. Streams it so far."""
        values = locals()
        with in_words():
            yield from traces_run(engines, book, values, owner_of(request))

    return traces, (
        "lines of JSON: a header, one event per forward, an end; joined by line ends they are a "
        "file that mars_runtime.trace_reader.read_trace reads"
    )
