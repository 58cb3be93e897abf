"""Fields for the settings of ``mars_runtime/settings.py``, and the common layout of the tabs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gradio as gr

from app.ui.controls import DEFAULTS, FIXED_BLOCK_SIZE, Control
from app.ui.stream import TabHandlers
from app.ui.views import LineView, RaceView
from app.ui.wiring import (
    Decode,
    Field,
    wire_memory,
    wire_stream,
)
from mars_runtime.settings import SETTINGS
from mars_runtime.text import MAX_SYSTEM_CHARS

SHARED = ("checkpoint", "system")
"""Controls of the Live tab that apply to all tabs; Run sends their values from every tab."""
OWN_SYSTEM = "The model's own system prompt"


def setting_field(name: str, elem_id: str, **changes: Any) -> Field:
    """Return the field of a setting with its initial value. changes: constructor arguments to
    override.
    """
    line = SETTINGS[name]
    arguments = {"value": getattr(DEFAULTS, name), "label": line.label, "info": line.info or None}
    arguments |= {"elem_id": elem_id, **changes}
    if line.type is bool:
        return gr.Checkbox(**arguments)
    if line.low is None or line.high is None:
        return gr.Radio(
            [(line.titles.get(choice, choice), choice) for choice in line.choices], **arguments
        )
    if not line.step:
        return gr.Number(precision=0, **arguments)
    ends = {
        "minimum": _on_grid(math.ceil(line.low / line.step), line.step),
        "maximum": _on_grid(math.floor(line.high / line.step), line.step),
    }
    return gr.Slider(**{**ends, **arguments}, step=line.step, buttons=[])


def _on_grid(count: int, step: float) -> float:
    """Return ``count`` times the step, without floating-point residue, and as an integer if
    possible.
    """
    value = round(count * step, 6)
    return int(value) if value == int(value) else value


def system_field(own: str | None) -> gr.Textbox:
    """Return the field for the system prompt. own: the checkpoint's system prompt, shown as the
    placeholder.
    """
    return gr.Textbox(
        label="System prompt",
        info="Used in every tab. Leave it empty to use the model's own.",
        placeholder=own or OWN_SYSTEM,
        lines=2,
        max_lines=6,
        max_length=MAX_SYSTEM_CHARS,
        elem_id="system",
    )


def max_tokens_field(prefix: str, value: int, most: int) -> Field:
    """Return the slider for the token limit. prefix: start of its element id. most: the app's
    limit.
    """
    ends: dict[str, Any] = {"minimum": 1, "maximum": most, "value": min(value, most)}
    return setting_field("max_new_tokens", f"{prefix}max_new_tokens", **ends)


def block_size_field(depth: int, elem_id: str) -> Field:
    """Return the slider for B, from 2 to ``depth``, the checkpoint's largest B. It is hidden if the
    depth is 1.
    """
    return setting_field("block_size", elem_id, **_range(depth, FIXED_BLOCK_SIZE))


def block_size_update(depth: int, block_size: Any) -> Any:
    """Return an update of the B slider for another depth. The chosen value is kept if it is within
    the depth.
    """
    return gr.update(**_range(depth, block_size))


def _range(depth: int, block_size: Any) -> dict[str, Any]:
    is_whole = isinstance(block_size, (int, float)) and not isinstance(block_size, bool)
    chosen = block_size if is_whole else FIXED_BLOCK_SIZE
    # A slider with equal minimum and maximum breaks the page.
    return {
        "minimum": 2 if depth > 2 else 1,
        "maximum": max(depth, 2),
        "value": min(chosen, depth),
        "visible": depth > 1,
    }


class Desk:
    """The common layout of a tab: a column with the controls, Run and Stop, and the view next to
    it. Element ids are ``<place>-<name>``.
    """

    def __init__(self, place: str, handlers: TabHandlers[Any], live: Mapping[str, Field]) -> None:
        """Create the layout. place: the tab's name. live: the controls of the Live tab."""
        self.place = place
        self.handlers = handlers
        self.controls: dict[str, Field] = {name: live[name] for name in SHARED}
        self.starts: list[tuple[gr.Button, Decode | None]] = []
        """Further buttons that start a run, each with its function instead of ``handlers.run``."""
        self._live_prompt = live["prompt"]

    @contextmanager
    def laid_out(
        self, page: gr.Blocks, posted: Iterable[Control], view: type[LineView], race: bool = False
    ) -> Iterator[None]:
        """Build everything around the controls. The body of the ``with`` statement builds the
        controls.

        posted: the controls whose values Run sends. race: add a race view below the tab's view, in
        which a run of that view can be opened.
        """
        with gr.Row(**self.named("live")):
            with gr.Column(scale=0, min_width=340, **self.named("desk")):
                yield
                with gr.Row(**self.named("go")):
                    run = gr.Button("Run", variant="primary", min_width=0, **self.named("run"))
                    stop = gr.Button("Stop", min_width=0, **self.named("stop"))
            with gr.Column(scale=1, min_width=300, **self.named("stage")):
                tab_view = view(missed=self.handlers.logs.missed, elem_id=self.place)
                if race:
                    RaceView(**self.named("race"))
        inputs = {control.name: self.controls[control.name] for control in posted}
        for button, decode in [(run, None), *self.starts]:
            wire_stream(page, self.handlers, [button.click], stop, inputs, [tab_view], decode)
        tab_controls = {
            name: control for name, control in self.controls.items() if name not in SHARED
        }
        wire_memory(page, self.place, tab_controls)

    def named(self, name: str) -> dict[str, Any]:
        """Return the ``elem_id`` argument for a component of this tab."""
        return {"elem_id": f"{self.place}-{name}"}

    def choices(
        self,
        kind: type[gr.Radio | gr.CheckboxGroup],
        name: str,
        titles: Mapping[Any, str],
        value: Any,
        label: str,
    ) -> None:
        """Add a control for choosing one or several of the keys of ``titles``."""
        listed = [(title, value) for value, title in titles.items()]
        self.controls[name] = kind(listed, value=value, label=label, **self.named(name))

    def slider(
        self, name: str, low: float, high: float, value: float, step: float, label: str
    ) -> None:
        """Add a slider for a number that is not a setting."""
        self.controls[name] = gr.Slider(
            low, high, value, step=step, label=label, buttons=[], **self.named(name)
        )

    def max_tokens(self, value: int) -> None:
        most = self.handlers.max_tokens
        self.controls["max_new_tokens"] = max_tokens_field(f"{self.place}-", value, most)
