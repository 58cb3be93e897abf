"""The Batch tab: which components there are, where they stand, and their wiring to the handlers.

Values are taken raw, as in ``wiring.py``, because the handlers judge every one of them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from app.batch.order import BATCH, MAX_BATCH, MAX_CACHE_BLOCK, MIN_CACHE_BLOCK, NOTHING, TITLES
from app.batch.run import BatchHandlers
from app.components.views import BatchView
from app.layout.fields import (
    add_slider,
    block_size_field,
    block_size_update,
    max_tokens_field,
    setting_field,
)
from app.layout.wiring import AT_ONCE, Field, in_words, run_queue, wire_stream
from app.run_log import RunLogs
from app.serving.engines import Engines

TAU, NUM_TOKENS, BATCH_SIZE, CACHE_BLOCK = 0.7, 64, 8, 16  # what the tab opens with


def batch_tab(
    page: gr.Blocks, batch: BatchHandlers, engines: Engines, logs: RunLogs, checkpoint: Field
) -> None:
    """Build and wire the tab; ``checkpoint`` is chosen in the Live tab for both."""
    controls: dict[str, Field] = {"checkpoint": checkpoint}
    buttons: dict[str, gr.Button] = {}
    with gr.Row(elem_id="batch-live"):
        with gr.Column(scale=0, min_width=340, elem_id="batch-desk"):
            _what(controls, buttons, batch, engines.default)
            with gr.Column(elem_id="batch-knobs"):
                _knobs(controls, engines, batch.max_tokens)
            with gr.Row(elem_id="batch-go"):
                buttons["run"] = gr.Button(
                    "Run", variant="primary", elem_id="batch-run", min_width=0
                )
                buttons["stop"] = gr.Button("Stop", elem_id="batch-stop", min_width=0)
        with gr.Column(scale=1, min_width=300, elem_id="batch-stage"):
            view = BatchView(missed=logs.missed, elem_id="batch")
    _wire(page, batch, controls, buttons, view, engines)


def _what(
    controls: dict[str, Field],
    buttons: dict[str, gr.Button],
    batch: BatchHandlers,
    default: str,
) -> None:
    controls["prompts"] = gr.Textbox(
        label="Prompts, one per line · ⏎ is a line break inside one",
        value=batch.examples.text(0, default),
        lines=8,
        max_lines=8,
        elem_id="batch-prompts",
    )
    buttons["examples"] = gr.Button("Other examples", size="sm", elem_id="batch-examples")
    methods = [(title, name) for name, title in TITLES.items()]
    with gr.Row(elem_id="batch-methods"):
        controls["method"] = gr.Dropdown(
            methods, value="cursor", label="Method", elem_id="batch-method", min_width=0
        )
        controls["second"] = gr.Dropdown(
            [*methods, ("nothing", NOTHING)],
            value="ar",
            label="Beside it",
            elem_id="batch-second",
            min_width=0,
        )


def _knobs(controls: dict[str, Field], engines: Engines, max_tokens: int) -> None:
    add = partial(add_slider, controls, "batch")
    controls["tau"] = setting_field("tau", "batch-tau", value=TAU)
    depth = engines.entry(engines.default).block_size
    controls["block_size"] = block_size_field(depth, "batch-block_size")
    add("cache_block", MIN_CACHE_BLOCK, MAX_CACHE_BLOCK, CACHE_BLOCK, 4, "cache block")
    add("batch_size", 1, MAX_BATCH, BATCH_SIZE, 1, "batch size")
    controls["max_new_tokens"] = max_tokens_field("batch-", NUM_TOKENS, max_tokens)


def _wire(
    page: gr.Blocks,
    batch: BatchHandlers,
    controls: dict[str, Field],
    buttons: dict[str, gr.Button],
    view: BatchView,
    engines: Engines,
) -> None:
    def next_page(page: int, checkpoint: Any) -> tuple[int, str]:
        return page + 1, batch.examples.text(page + 1, checkpoint)

    def follow(checkpoint: Any, seen: int, block_size: Any, prompts: Any) -> tuple[Any, Any]:
        with in_words():
            depth = engines.limits(checkpoint).block_size
        return block_size_update(depth, block_size), batch.examples.kept(prompts, seen, checkpoint)

    inputs = {control.name: controls[control.name] for control in BATCH}
    start = [buttons["run"].click]
    wire_stream(page, batch, start, buttons["stop"], inputs, view, run_queue(engines.settings))
    seen = gr.State(0)
    checkpoint = controls["checkpoint"]
    buttons["examples"].click(next_page, [seen, checkpoint], [seen, controls["prompts"]], **AT_ONCE)
    follows = [controls["block_size"], controls["prompts"]]
    checkpoint.change(follow, [checkpoint, seen, *follows], follows, **AT_ONCE)
