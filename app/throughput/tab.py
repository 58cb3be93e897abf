"""The Throughput tab: its components, their layout and their events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from app.throughput.order import CONTROLS, ROWS, STEERED
from app.throughput.run import ThroughputHandlers
from app.ui import rounds
from app.ui.fields import Desk, block_size_field, block_size_update, setting_field
from app.ui.views import ThroughputView
from app.ui.wiring import AT_ONCE, Field, errors_as_messages, session_of

NUM_ROWS, TAU = "8", 0.9
"""Initial values, those of the recorded run."""


def throughput_tab(
    page: gr.Blocks, handlers: ThroughputHandlers, live: Mapping[str, Field]
) -> None:
    """Build the tab and wire its events. live: the controls of the Live tab."""
    desk, engines = Desk("throughput", handlers, live), handlers.engines
    with desk.laid_out(page, CONTROLS, ThroughputView):
        desk.choices(gr.Radio, "rows", ROWS, NUM_ROWS, "Requests at once")
        desk.controls["lossless"] = setting_field("lossless", "throughput-lossless", value=False)
        with gr.Column(**desk.named("knobs")):
            desk.controls["tau"] = setting_field("tau", "throughput-tau", value=TAU)
            depth = engines.entry(engines.default).block_size
            desk.controls["block_size"] = block_size_field(depth, "throughput-block_size")
        desk.controls["follows"] = gr.Checkbox(
            False,
            label="τ follows the queue",
            info="While prompts wait, τ is lower: faster answers that agree less with plain AR. "
            "No effect if lossless is on.",
            **desk.named("follows"),
        )
        with gr.Accordion("Measure", open=False, **desk.named("measure")):
            desk.choices(gr.Radio, "rounds", rounds.TITLES, rounds.ROUNDS[0], "Rounds")
            measure = gr.Button("Measure against plain AR", size="sm", **desk.named("start"))
            desk.starts.append((measure, handlers.measure))

    def steer(request: gr.Request, *values: Any) -> None:
        with errors_as_messages():
            names = (control.name for control in STEERED)
            handlers.steer(session_of(request), dict(zip(names, values, strict=True)))

    steered = [desk.controls[control.name] for control in STEERED]
    for control in steered:
        control.input(steer, inputs=steered, trigger_mode="always_last", **AT_ONCE)

    def follow(checkpoint: Any, block_size: Any) -> Any:
        with errors_as_messages():
            return block_size_update(engines.limits(checkpoint).block_size, block_size)

    checkpoint, block_size = desk.controls["checkpoint"], desk.controls["block_size"]
    checkpoint.change(follow, [checkpoint, block_size], [block_size], **AT_ONCE)
