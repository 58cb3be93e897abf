"""The Load lab tab: which components there are, where they stand, and their wiring to the handlers.

Values are taken raw, as in ``wiring.py``, because the handlers judge every one of them.
"""

from __future__ import annotations

from functools import partial

import gradio as gr

from app.components.views import LoadView
from app.layout.fields import add_slider, max_tokens_field
from app.layout.wiring import AT_ONCE, Field, run_queue, wire_stream
from app.load.order import COMPARE, KINDS, LOAD, MAX_BUDGET, MAX_RATE, MAX_SECONDS, QUESTIONS
from app.load.run import LoadHandlers
from app.run_log import RunLogs
from app.serving.engines import Engines
from mars_runtime.traffic.controller import AR, FIXED, FOLLOW, FOLLOW_LOSSLESS, LOSSLESS, Bounds
from mars_runtime.traffic.workload import MIXES

SECONDS, NUM_TOKENS = 4, 48  # what the tab opens with
USUAL = Bounds()
WAYS = {
    AR: "plain AR",
    LOSSLESS: "lossless",
    FIXED: "fixed τ",
    FOLLOW: "τ by a controller",
    FOLLOW_LOSSLESS: "lossless, B by a controller",
}
RECORDED = "0, 0.1, 0.2, 1, 1.1, 2.5, 2.6, 2.7, 2.8"


def load_tab(
    page: gr.Blocks, load: LoadHandlers, engines: Engines, logs: RunLogs, checkpoint: Field
) -> None:
    """Build and wire the tab; ``checkpoint`` is chosen in the Live tab for both."""
    controls: dict[str, Field] = {"checkpoint": checkpoint}
    with gr.Row(elem_id="load-live"):
        with gr.Column(scale=0, min_width=340, elem_id="load-desk"):
            _choices(controls)
            with gr.Column(elem_id="load-knobs"):
                _knobs(controls, load, engines.default)
            with gr.Row(elem_id="load-go"):
                start = gr.Button("Run", variant="primary", elem_id="load-run", min_width=0)
                stop = gr.Button("Stop", elem_id="load-stop", min_width=0)
        with gr.Column(scale=1, min_width=300, elem_id="load-stage"):
            view = LoadView(missed=logs.missed, elem_id="load")
    inputs = {control.name: controls[control.name] for control in LOAD}
    wire_stream(page, load, [start.click], stop, inputs, view, run_queue(engines.settings))
    controls["kind"].change(
        lambda kind: gr.update(visible=kind == "recorded"),
        [controls["kind"]],
        [controls["recorded"]],
        **AT_ONCE,
    )
    checkpoint.change(load.rate, [checkpoint], [controls["rate"]], **AT_ONCE)


def _choices(controls: dict[str, Field]) -> None:
    _radio(controls, "question", QUESTIONS, COMPARE, "Show")
    controls["ways"] = gr.CheckboxGroup(
        [(title, name) for name, title in WAYS.items()],
        value=[AR, LOSSLESS, FIXED, FOLLOW],
        label="Ways of decoding, in turn",
        elem_id="load-ways",
    )
    _radio(controls, "kind", KINDS, "poisson", "Arrivals")
    controls["recorded"] = gr.Textbox(
        RECORDED,
        label="Recorded arrivals, seconds from the start",
        lines=2,
        visible=False,
        elem_id="load-recorded",
    )
    _radio(controls, "mix", MIXES, "short", "Requests")


def _radio(
    controls: dict[str, Field], name: str, choices: dict[str, str], value: str, label: str
) -> None:
    listed = [(title, each) for each, title in choices.items()]
    controls[name] = gr.Radio(listed, value=value, label=label, elem_id=f"load-{name}")


def _knobs(controls: dict[str, Field], load: LoadHandlers, checkpoint: str) -> None:
    add = partial(add_slider, controls, "load")
    add("rate", 0.5, MAX_RATE, load.rate(checkpoint), 0.5, "requests/s")
    add("seconds", 1, MAX_SECONDS, SECONDS, 1, "seconds")
    controls["max_new_tokens"] = max_tokens_field("load-", NUM_TOKENS, load.max_tokens, low=2)
    add("high", 0, 1, USUAL.high, 0.01, "τ")
    add("low", 0, 1, USUAL.low, 0.01, "lowest τ")
    add("budget", 0, MAX_BUDGET, 3, 0.5, "budget (s)")
