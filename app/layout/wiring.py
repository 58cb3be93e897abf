"""Joins the page's events to the handlers. Knows gradio's events; decides nothing itself.

Values are taken raw (``preprocess=False``), because the handlers judge every one of them and answer
with a sentence; what gradio's components check would end in their own words, or in none.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import gradio as gr

from app.controls import RefusalError
from app.handlers import PRESETS, Handlers, preset_of

if TYPE_CHECKING:
    from app.layout.page import LiveTab

ORDER = (
    "prompt", "tau", "block_size", "auto", "pace", "view", "lossless", "groups", "lookup", "metric",
    "max_new_tokens", "temperature", "seed", "checkpoint",
)  # fmt: skip
STEERED = ("tau", "block_size", "auto", "pace", "lossless", "groups", "lookup", "metric")
AT_ONCE: dict[str, Any] = {
    "queue": False,
    "show_progress": "hidden",
    "api_visibility": "private",
    "preprocess": False,
}
RUN = "run"
"""What gradio calls the events that decode, of whatever tab or endpoint."""
Field = gr.Textbox | gr.Slider | gr.Checkbox | gr.CheckboxGroup | gr.Dropdown | gr.Radio | gr.Number
"""A control: what a visitor types, moves or chooses."""
PRESS_RUN = "() => { document.getElementById('run').click() }"


class Streams(Protocol):
    """What a tab whose runs stream does, told apart by session: see ``Handlers``."""

    def check(self, values: Mapping[str, Any]) -> RefusalError | None: ...
    def run(self, session: str, values: Mapping[str, Any]) -> Iterator[str]: ...
    def stop(self, session: str) -> None: ...


def wire(page: gr.Blocks, tab: LiveTab, handlers: Handlers) -> None:
    """Join everything but the checkpoint (``checkpoint.py``) and what is shared (``asks.py``)."""
    _wire_run(page, tab, handlers)
    _wire_steering(tab, handlers)
    _wire_examples(tab, handlers)
    tell_prompt(tab.prompt, "live")


def _wire_run(page: gr.Blocks, tab: LiveTab, handlers: Handlers) -> None:
    """Run, the remark on its prompt, and Stop."""
    triggers = [tab.buttons["run"].click, tab.prompt.submit]
    inputs = {name: tab.controls[name] for name in ORDER}
    stop = tab.buttons["stop"]
    wire_stream(page, handlers, triggers, stop, inputs, tab.race, run_queue(handlers))
    gr.on(
        triggers,
        handlers.remark,
        inputs=[tab.controls["prompt"], tab.controls["checkpoint"]],
        outputs=[tab.remark],
        **AT_ONCE,
    )


def wire_stream(
    page: gr.Blocks,
    streams: Streams,
    triggers: Sequence[Any],
    stop_button: gr.Button,
    inputs: Mapping[str, Field],
    view: gr.components.Component,
    queue: Mapping[str, Any],
) -> None:
    """A visitor's runs of one tab: checked and streamed into ``view``, ended by Stop or by a closed
    tab. inputs: the controls by the names that the handlers know; queue: of ``run_queue``."""

    def named(values: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(inputs, values, strict=True))

    def check(*values: Any) -> list[dict[str, Any]]:
        refusal = streams.check(named(values))
        at_fault = refusal.field if refusal else None
        return [gr.validate(name != at_fault, str(refusal or "")) for name in inputs]

    def run(request: gr.Request, *values: Any) -> Iterator[str]:
        yield from streams.run(session_of(request), named(values))

    def stop(request: gr.Request) -> None:
        streams.stop(session_of(request))

    gr.on(
        triggers,
        run,
        inputs=list(inputs.values()),
        outputs=[view],
        validator=check,
        **queue,
        trigger_mode="multiple",
        show_progress="hidden",
        api_visibility="private",
        preprocess=False,
    )
    stop_button.click(stop, **AT_ONCE)
    page.unload(stop)


def _wire_steering(tab: LiveTab, handlers: Handlers) -> None:
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


def preset_classes(is_chosen: bool) -> list[str]:
    """How a preset's button looks (assets/app.css)."""
    return ["preset", "chosen"] if is_chosen else ["preset"]


def _wire_examples(tab: LiveTab, handlers: Handlers) -> None:
    """Examples, which also run."""
    turned = gr.State({})  # family -> how many of its examples this visitor has seen
    for family, chip in tab.chips.items():

        def turn(seen: dict[str, int], family: str = family) -> str:
            number = seen[family] = seen.get(family, -1) + 1
            return handlers.example(family, number)

        chip.click(turn, [turned], [tab.controls["prompt"]], **AT_ONCE).then(
            None, js=PRESS_RUN, api_visibility="private"
        )


def tell_prompt(box: Field, place: str) -> None:
    """Let the view of a place know what stands in its prompt's box (``assets/page/prompt.js``)."""
    told = f"(prompt) => {{ window.marsPrompt({json.dumps(place)}, prompt); }}"
    box.change(None, [box], js=told, queue=False, api_visibility="private")


def session_of(request: gr.Request) -> str:
    """Whose event this is; a caller without a session gets one of its own."""
    return request.session_hash or uuid.uuid4().hex


def run_queue(handlers: Handlers) -> dict[str, Any]:
    """Room for every run that the engine would take and one more, which it answers itself."""
    settings = handlers.settings
    limit = settings.max_runs + settings.max_waiting + 1
    return {"concurrency_id": RUN, "concurrency_limit": limit}


@contextmanager
def in_words() -> Iterator[None]:
    """Refusals reach the caller as their sentence, everything else as gradio's own."""
    try:
        yield
    except RefusalError as refusal:
        raise gr.Error(str(refusal), print_exception=False) from None
