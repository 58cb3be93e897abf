"""The Load tab: its components, their layout and their events."""

from __future__ import annotations

from collections.abc import Mapping

import gradio as gr

from app.throughput.traffic import TrafficHandlers
from app.throughput.traffic_order import (
    COMPARE,
    KINDS,
    MAX_BUDGET,
    MAX_RATE,
    MAX_SECONDS,
    QUESTIONS,
    TRAFFIC,
)
from app.ui import rounds
from app.ui.fields import Desk
from app.ui.views import TrafficView
from app.ui.wiring import AT_ONCE, Field
from mars_runtime.methods import LANES, LOOKUP
from mars_runtime.traffic.controller import AR, FIXED, FOLLOW, FOLLOW_LOSSLESS, LOSSLESS, Bounds
from mars_runtime.traffic.workload import MIXES

SECONDS, NUM_TOKENS = 4, 48  # initial values
USUAL = Bounds()
METHODS = {
    AR: "plain AR",
    LOOKUP: LANES[LOOKUP].title,
    LOSSLESS: "lossless, auto B",
    FIXED: "fixed τ, auto B",
    FOLLOW: "adaptive τ, auto B",
    FOLLOW_LOSSLESS: "lossless, adaptive B",
}
RECORDED = "0, 0.1, 0.2, 1, 1.1, 2.5, 2.6, 2.7, 2.8"


def traffic_tab(page: gr.Blocks, traffic: TrafficHandlers, live: Mapping[str, Field]) -> None:
    """Build the tab and wire its events. live: the controls of the Live tab."""
    desk = Desk("load", traffic, live)
    controls, checkpoint = desk.controls, live["checkpoint"]
    with desk.laid_out(page, TRAFFIC, TrafficView):
        desk.choices(gr.Radio, "question", QUESTIONS, COMPARE, "Show")
        opens_with = [AR, LOOKUP, LOSSLESS, FOLLOW]
        desk.choices(gr.CheckboxGroup, "ways", METHODS, opens_with, "Methods")
        desk.choices(gr.Radio, "kind", KINDS, "poisson", "Arrivals")
        controls["recorded"] = gr.Textbox(
            RECORDED,
            label="Arrival times, in seconds from the start",
            lines=2,
            visible=False,
            **desk.named("recorded"),
        )
        desk.choices(gr.Radio, "mix", MIXES, "short", "Requests")
        with gr.Column(**desk.named("knobs")):
            rate = traffic.rate(traffic.engines.default)
            desk.slider("rate", 0.5, MAX_RATE, rate, 0.5, "Requests/s")
            desk.slider("seconds", 1, MAX_SECONDS, SECONDS, 1, "Seconds")
            desk.max_tokens(NUM_TOKENS, low=2)
            desk.slider("high", 0, 1, USUAL.high, 0.01, "τ")
            desk.slider("low", 0, 1, USUAL.low, 0.01, "Lowest τ")
            desk.slider("budget", 0, MAX_BUDGET, 3, 0.5, "Deadline (s)")
        desk.choices(gr.Radio, "rounds", rounds.TITLES, rounds.ROUNDS[0], "Rounds")
    controls["kind"].change(
        lambda kind: gr.update(visible=kind == "recorded"),
        [controls["kind"]],
        [controls["recorded"]],
        **AT_ONCE,
    )
    checkpoint.change(traffic.rate, [checkpoint], [controls["rate"]], **AT_ONCE)
