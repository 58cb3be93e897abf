"""The Stability tab: its components, their layout and their events."""

from __future__ import annotations

from collections.abc import Mapping

import gradio as gr

from app.review.stability import StabilityHandlers
from app.review.stability_order import LOSSLESS, MAX_SEEDS, METHODS, MIN_SEEDS, STABILITY
from app.ui.fields import Desk, setting_field
from app.ui.views import StabilityView
from app.ui.wiring import Field

NUM_SEEDS, TEMPERATURE, NUM_TOKENS = 8, 0.3, 64
"""Initial values of the tab's controls."""


def stability_tab(page: gr.Blocks, stability: StabilityHandlers, live: Mapping[str, Field]) -> None:
    """Build the tab and wire its events. live: the controls of the Live tab."""
    desk = Desk("stability", stability, live)
    with desk.laid_out(page, STABILITY, StabilityView):
        another = desk.prompt_box(stability.examples)
        desk.choices(gr.Radio, "method", METHODS, LOSSLESS, "Method")
        with gr.Column(**desk.named("knobs")):
            desk.slider("seeds", MIN_SEEDS, MAX_SEEDS, NUM_SEEDS, 1, "Seeds")
            desk.controls["temperature"] = setting_field(
                "temperature", "stability-temperature", value=TEMPERATURE, info=None
            )
            desk.max_tokens(NUM_TOKENS)
    desk.wire_examples("prompt", another, stability.examples)
