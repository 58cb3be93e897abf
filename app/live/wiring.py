"""Joins the controls of the Live tab to its handlers. Decides nothing itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import gradio as gr

from app.controls import POSTED, STEERED
from app.examples.book import ExampleBook
from app.layout.wiring import AT_ONCE, in_words, session_of, tell_prompt, wire_stream
from app.live.handlers import PRESETS, LiveHandlers, offer, preset_of
from app.live.order import HISTORY, ORDERED
from app.live.tab import LiveTab, preset_classes

ASK = f"(...values) => window.mars.turn({json.dumps(ORDERED)}, values)"
"""The turn that Run begins: the page's conversation goes with it."""
RUN_EXAMPLE = "() => { window.mars.runFirst() }"


def wire_live(
    page: gr.Blocks,
    tab: LiveTab,
    handlers: LiveHandlers,
    book: ExampleBook,
    queue: Mapping[str, Any],
) -> None:
    """Join everything but the checkpoint (``layout/checkpoint.py``), links and runs that views
    start (``sharing.py``). ``queue``: of ``run_queue``."""
    _wire_run(page, tab, handlers, queue)
    _wire_steering(tab, handlers)
    _wire_examples(tab, book)
    _wire_nearest(tab, handlers)
    tell_prompt(tab.prompt, "live")


def _wire_run(
    page: gr.Blocks, tab: LiveTab, handlers: LiveHandlers, queue: Mapping[str, Any]
) -> None:
    """Run, the remark on its prompt, and Stop. Builds what the conversation travels in, hidden."""
    history = gr.Textbox(visible="hidden", elem_id="history")
    triggers = [tab.buttons["run"].click, tab.prompt.submit]
    inputs = {**{name: tab.controls[name] for name in POSTED}, HISTORY: history}
    stop = tab.buttons["stop"]
    wire_stream(page, handlers, triggers, stop, inputs, tab.race, queue, js=ASK)
    gr.on(
        triggers,
        handlers.remark,
        inputs=[tab.controls["prompt"], tab.controls["checkpoint"]],
        outputs=[tab.remark],
        **AT_ONCE,
    )


def _wire_steering(tab: LiveTab, handlers: LiveHandlers) -> None:
    """What is steered acts on the next forward of the visitor's own run."""

    def steer(request: gr.Request, *values: Any) -> None:
        with in_words():
            handlers.steer(session_of(request), dict(zip(STEERED, values, strict=True)))

    inputs = [tab.controls[name] for name in STEERED]
    presets = list(tab.presets.values())
    for control in inputs:
        control.input(steer, inputs=inputs, trigger_mode="always_last", **AT_ONCE)
    decisive = [tab.controls["tau"], tab.controls["lossless"]]
    for control in decisive:
        control.change(_mark_preset, decisive, presets, trigger_mode="always_last", **AT_ONCE)

    for name, button in tab.presets.items():

        def choose(request: gr.Request, *values: Any, name: str = name) -> tuple[float, bool]:
            with in_words():
                named = dict(zip(STEERED, values, strict=True))
                return handlers.preset(session_of(request), name, named)

        button.click(choose, inputs, decisive, **AT_ONCE)


def _mark_preset(tau: Any, lossless: Any) -> list[Any]:
    """The preset in force stands out, however its values came about."""
    chosen = preset_of(tau, lossless)
    return [gr.update(elem_classes=preset_classes(name == chosen)) for name in PRESETS]


def _wire_examples(tab: LiveTab, book: ExampleBook) -> None:
    """Examples, which also run."""
    seen = gr.State({})  # family -> how many of its examples this visitor has seen
    for family, chip in tab.chips.items():

        def another(counts: dict[str, int], family: str = family) -> str:
            number = counts[family] = counts.get(family, -1) + 1
            return book.prompt(family, number)

        chip.click(another, [seen], [tab.controls["prompt"]], **AT_ONCE).then(
            None, js=RUN_EXAMPLE, api_visibility="private"
        )


def _wire_nearest(tab: LiveTab, handlers: LiveHandlers) -> None:
    """Before anything is run, who typed what a checkpoint of tasks does not know is offered the
    nearest task."""
    prompt, checkpoint = tab.controls["prompt"], tab.controls["checkpoint"]

    def look(typed: Any, name: Any) -> Any:
        task = handlers.nearest(typed, name)
        return gr.update(value=offer(task), visible=True) if task else gr.update(visible=False)

    gr.on(
        [prompt.change, checkpoint.change],
        look,
        [prompt, checkpoint],
        [tab.nearest],
        trigger_mode="always_last",
        **AT_ONCE,
    )
    tab.nearest.click(handlers.nearest, [prompt, checkpoint], [prompt], **AT_ONCE)
