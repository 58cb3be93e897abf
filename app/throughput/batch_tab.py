"""The Batch tab: its components, their layout and their events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from app.throughput.batch import BatchHandlers
from app.throughput.batch_order import BATCH, MAX_BATCH, NOTHING, TITLES
from app.ui import rounds
from app.ui.fields import Desk, block_size_field, block_size_update, setting_field
from app.ui.views import BatchView
from app.ui.wiring import Field, errors_as_messages
from mars_runtime.settings import MAX_CACHE_BLOCK, MIN_CACHE_BLOCK

TAU, NUM_TOKENS, BATCH_SIZE, CACHE_BLOCK = 0.0, 64, 2, 16
"""Initial values of the tab's controls. The batch is small, because with a larger one drafting
would save no time on two CPU cores.
"""

VERIFIES = "Cursor cache only. If on, τ controls how many tokens are drafted."


def batch_tab(page: gr.Blocks, batch: BatchHandlers, live: Mapping[str, Field]) -> None:
    """Build the tab and wire its events. live: the controls of the Live tab."""
    desk, engines = Desk("batch", batch, live), batch.engines
    with desk.laid_out(page, BATCH, BatchView):
        desk.controls["prompts"] = gr.Textbox(
            label="Prompts, one per line (⏎ = line break)",
            value=batch.examples.text(0, engines.default),
            lines=8,
            max_lines=8,
            **desk.named("prompts"),
        )
        others = gr.Button("More examples", size="sm", **desk.named("examples"))
        methods = [(title, name) for name, title in TITLES.items()]
        with gr.Row(**desk.named("methods")):
            for name, listed, value, label in (
                ("method", methods, "cursor", "Method"),
                ("second", [*methods, ("nothing", NOTHING)], "ar", "Compare with"),
            ):
                desk.controls[name] = gr.Dropdown(
                    listed, value=value, label=label, min_width=0, **desk.named(name)
                )
        with gr.Column(**desk.named("knobs")):
            desk.controls["tau"] = setting_field("tau", "batch-tau", value=TAU)
            depth = engines.entry(engines.default).block_size
            desk.controls["block_size"] = block_size_field(depth, "batch-block_size")
            desk.controls["auto"] = gr.Checkbox(
                True, label="Auto: choose B by measured cost", **desk.named("auto")
            )
            desk.controls["lossless"] = setting_field("lossless", "batch-lossless", info=VERIFIES)
            ends = (MIN_CACHE_BLOCK, MAX_CACHE_BLOCK)
            desk.slider("cache_block", *ends, CACHE_BLOCK, 4, "Cache block")
            desk.slider("batch_size", 1, MAX_BATCH, BATCH_SIZE, 1, "Batch size")
            desk.max_tokens(NUM_TOKENS)
        desk.choices(gr.Radio, "rounds", rounds.TITLES, rounds.ROUNDS[0], "Rounds")

    def follow(checkpoint: Any, block_size: Any) -> Any:
        with errors_as_messages():
            return block_size_update(engines.limits(checkpoint).block_size, block_size)

    desk.wire_examples("prompts", others, batch.examples, "block_size", follow)
