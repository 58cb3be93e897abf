"""The Throughput tab."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from app.throughput.run import CONTROLS, ROWS, STEERED, ThroughputHandlers
from app.ui import rounds
from app.ui.fields import TEXTS, block_size_field, block_size_update, setting_field
from app.ui.views import ThroughputView
from app.ui.wiring import (
    AT_ONCE,
    Field,
    errors_as_messages,
    wire_memory,
    wire_steering,
)

NUM_ROWS, TAU = 8, 0.9
"""Initial values, those of the recorded run."""


def throughput_tab(
    page: gr.Blocks, handlers: ThroughputHandlers, live: Mapping[str, Field]
) -> None:
    engines = handlers.engines
    depth = engines.entry(engines.default).block_size
    titles = [(str(number), number) for number in rounds.ROUNDS]
    with gr.Row(elem_id="throughput-bar"):
        own: dict[str, Field] = {
            "rows": gr.Radio(
                [(str(number), number) for number in ROWS],
                value=NUM_ROWS,
                label="Requests at once",
                **_named("rows", "segments"),
            ),
            "lossless": gr.Radio(
                TEXTS, value=False, label="Text", **_named("lossless", "segments")
            ),
            "tau": setting_field("tau", "throughput-tau", value=TAU),
            "block_size": block_size_field(depth, "throughput-block_size"),
            "follows": gr.Checkbox(
                False,
                label="τ follows the queue",
                info="Lower while prompts wait (unverified only)",
                **_named("follows"),
            ),
        }
        with gr.Accordion("Measure", open=False, **_named("measure", "pop-up")):
            own["rounds"] = gr.Radio(
                titles, value=rounds.ROUNDS[0], label="Rounds", **_named("rounds")
            )
            measure = gr.Button("Measure against plain AR", size="sm", **_named("start"))
        with gr.Row(**_named("go")):
            run = gr.Button("Run", variant="primary", min_width=0, **_named("run"))
            stop = gr.Button("Stop", min_width=0, **_named("stop"))
    view = ThroughputView(missed=handlers.logs.missed, elem_id="throughput")
    inputs = {name: {**live, **own}[name] for name in CONTROLS}
    for button, decode in ((run, handlers.run), (measure, handlers.measure)):
        handlers.wire(page, [button.click], stop, inputs, [view], decode)
    wire_memory(page, "throughput", own)

    wire_steering(handlers.steer, {name: own[name] for name in STEERED})

    def follow(checkpoint: Any, block_size: Any) -> Any:
        with errors_as_messages():
            return block_size_update(engines.limits(checkpoint).block_size, block_size)

    checkpoint, block_size = live["checkpoint"], own["block_size"]
    checkpoint.change(follow, [checkpoint, block_size], [block_size], **AT_ONCE)


def _named(name: str, *classes: str) -> dict[str, Any]:
    return {"elem_id": f"throughput-{name}", "elem_classes": [*classes]}
