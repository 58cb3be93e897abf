"""Starts one method of a batch on an engine. Knows no gradio and no visitor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from app.batch.order import BatchOrder, prompts_as_text
from app.serving.loads import Served
from app.transcript import Transcript
from mars_runtime.engine.header import make_header
from mars_runtime.engine.request import Request
from mars_runtime.events import Event
from mars_runtime.trace import TraceWriter

if TYPE_CHECKING:
    from mars_runtime.decoders.base import CausalModel, SettingsSource, Vocabulary
    from mars_runtime.decoders.batch import BatchMethod


def start_side(
    served: Served, order: BatchOrder, name: str, method: str, max_seconds: float, owner: str = ""
) -> Transcript:
    """Submit all prompts by one method, alone on the device. Raises USER_ERRORS."""
    tokenizer = served.checkpoint.tokenizer
    prompts = [tokenizer.encode_prompt(prompt) for prompt in order.prompts]
    settings = replace(order.settings, method="ar" if method == "ar" else "mars")
    decode = partial(_decode, prompts, method, order.batch_size, order.cache_block)
    run = served.engine.solo(decode, settings, deadline=max_seconds, owner=owner)
    every_id = tuple(token for prompt in prompts for token in prompt)
    header = make_header(
        served.about,
        prompts_as_text(order.prompts),
        Request(every_id, settings),
        name=order.title(method),
    )
    writer = TraceWriter(header, tokenizer.token_bytes)
    return Transcript(name, run, writer, keeps_proposals=False)


def _decode(
    prompts: Sequence[Sequence[int]],
    method: str,
    batch_size: int,
    cache_block: int,
    model: CausalModel,
    vocabulary: Vocabulary,
    settings: SettingsSource,
) -> Iterator[Event]:
    """``decode_batch``, imported where torch is loaded anyway."""
    from mars_runtime.decoders.batch import decode_batch

    chosen = cast("BatchMethod", method)
    return decode_batch(model, vocabulary, prompts, chosen, settings, batch_size, cache_block)
