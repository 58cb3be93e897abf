"""Controls of settings, built from the table (``mars_runtime/settings.py``), and the common layout
of a tab: controls, buttons and view.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gradio as gr

from app.ui.controls import DEFAULTS, FIXED_BLOCK_SIZE, Control
from app.ui.examples import ExamplePages
from app.ui.stream import TabHandlers
from app.ui.views import LineView, RaceView
from app.ui.wiring import AT_ONCE, Field, tell_prompt, wire_memory, wire_stream
from mars_runtime.settings import SETTINGS
from mars_runtime.text import MAX_SYSTEM_CHARS

SHARED = ("checkpoint", "system")
"""Controls of the Live tab that every tab sends."""
OWN_SYSTEM = "The model's own"


def setting_field(name: str, elem_id: str, **changes: Any) -> Field:
    """Return the control of a setting with its initial value. changes: arguments to override."""
    line = SETTINGS[name]
    said = {"value": getattr(DEFAULTS, name), "label": line.label, "info": line.info or None}
    said |= {"elem_id": elem_id, **changes}
    if line.type is bool:
        return gr.Checkbox(**said)
    if line.low is None or line.high is None:
        return gr.Radio(
            [(line.titles.get(choice, choice), choice) for choice in line.choices], **said
        )
    if not line.step:
        return gr.Number(precision=0, **said)
    ends = {
        "minimum": _on_grid(math.ceil(line.low / line.step), line.step),
        "maximum": _on_grid(math.floor(line.high / line.step), line.step),
    }
    return gr.Slider(**{**ends, **said}, step=line.step, buttons=[])


def _on_grid(count: int, step: float) -> float:
    """Return a multiple of the step without floating-point residue, as an integer if it is one."""
    value = round(count * step, 6)
    return int(value) if value == int(value) else value


def system_field(own: str | None) -> gr.Textbox:
    """Return the control of the system prompt. own: the checkpoint's, shown while the field is
    empty.
    """
    return gr.Textbox(
        label="System prompt",
        info="Used by every tab. Empty: the model's own.",
        placeholder=system_hint(own),
        lines=2,
        max_lines=6,
        max_length=MAX_SYSTEM_CHARS,
        elem_id="system",
    )


def system_hint(own: str | None) -> str:
    """Return the placeholder: the system prompt that is used when the field is empty."""
    return own or OWN_SYSTEM


def max_tokens_field(place: str, value: int, most: int, low: int = 1) -> Field:
    """Return the slider of the token limit, up to what this app allows."""
    ends: dict[str, Any] = {"minimum": low, "maximum": most, "value": min(value, most)}
    return setting_field("max_new_tokens", f"{place}max_new_tokens", **ends)


def block_size_field(depth: int, elem_id: str) -> Field:
    """Return the slider of B from 1 to the trained depth; hidden if the depth is 1."""
    return setting_field("block_size", elem_id, **_range(depth, FIXED_BLOCK_SIZE))


def block_size_update(depth: int, block_size: Any) -> Any:
    """Return the slider's update for another depth; the chosen value stays if it fits."""
    return gr.update(**_range(depth, block_size))


def _range(depth: int, block_size: Any) -> dict[str, Any]:
    is_whole = isinstance(block_size, (int, float)) and not isinstance(block_size, bool)
    chosen = block_size if is_whole else FIXED_BLOCK_SIZE
    # A slider with equal ends breaks the page, so it is hidden if there is no choice.
    return {
        "minimum": 1,
        "maximum": max(depth, 2),
        "value": min(chosen, depth),
        "visible": depth > 1,
    }


class Desk:
    """The common layout of a tab: a column with its controls and, below them, Run and Stop; the
    view is next to it. Element ids are PLACE-NAME.
    """

    def __init__(self, place: str, handlers: TabHandlers[Any], live: Mapping[str, Field]) -> None:
        """Create the layout. live: the controls of the Live tab."""
        self.place = place
        self.handlers = handlers
        self.controls: dict[str, Field] = {name: live[name] for name in SHARED}
        self._live_prompt = live["prompt"]

    @contextmanager
    def laid_out(
        self, page: gr.Blocks, posted: Iterable[Control], view: type[LineView], race: bool = False
    ) -> Iterator[None]:
        """Build everything around the controls, which the body of the ``with`` statement builds.

        posted: controls that Run sends. race: whether to add a race view below, which shows one of
        several runs.
        """
        with gr.Row(**self.named("live")):
            with gr.Column(scale=0, min_width=340, **self.named("desk")):
                yield
                with gr.Row(**self.named("go")):
                    run = gr.Button("Run", variant="primary", min_width=0, **self.named("run"))
                    stop = gr.Button("Stop", min_width=0, **self.named("stop"))
            with gr.Column(scale=1, min_width=300, **self.named("stage")):
                shown = view(missed=self.handlers.logs.missed, elem_id=self.place)
                if race:
                    RaceView(**self.named("race"))
        inputs = {control.name: self.controls[control.name] for control in posted}
        wire_stream(page, self.handlers, [run.click], stop, inputs, [shown])
        own = {name: control for name, control in self.controls.items() if name not in SHARED}
        wire_memory(page, self.place, own)

    def named(self, name: str) -> dict[str, Any]:
        """Return the ``elem_id`` argument of a component."""
        return {"elem_id": f"{self.place}-{name}"}

    def prompt_box(self, pages: ExamplePages) -> gr.Button:
        """Add the box for one prompt and its two buttons; return the one for another example, which
        ``wire_examples`` wires.
        """
        box = self.controls["prompt"] = gr.Textbox(
            label="Prompt",
            value=pages.text(0, self.handlers.engines.default),
            placeholder="Type a prompt or pick an example",
            lines=4,
            max_lines=8,
            **self.named("prompt"),
        )
        with gr.Row(**self.named("prompts")):
            another = gr.Button("Another example", size="sm", min_width=0)
            of_live = gr.Button("Use the prompt from Live", size="sm", min_width=0)
        tell_prompt(box, self.place)
        of_live.click(lambda prompt: prompt, [self._live_prompt], [box], **AT_ONCE)
        return another

    def choices(
        self,
        kind: type[gr.Radio | gr.CheckboxGroup],
        name: str,
        titles: Mapping[Any, str],
        value: Any,
        label: str,
    ) -> None:
        """Add a control for one or several of some values, with their titles."""
        listed = [(title, value) for value, title in titles.items()]
        self.controls[name] = kind(listed, value=value, label=label, **self.named(name))

    def slider(
        self, name: str, low: float, high: float, value: float, step: float, label: str
    ) -> None:
        """Add a slider for a number that is not a setting."""
        self.controls[name] = gr.Slider(
            low, high, value, step=step, label=label, buttons=[], **self.named(name)
        )

    def max_tokens(self, value: int, low: int = 1) -> None:
        """Add the slider of the token limit."""
        most = self.handlers.max_tokens
        self.controls["max_new_tokens"] = max_tokens_field(f"{self.place}-", value, most, low)

    def wire_examples(
        self,
        box: str,
        button: gr.Button,
        pages: ExamplePages,
        other: str = "checkpoint",
        update: Callable[[Any, Any], Any] = lambda *_: gr.skip(),
    ) -> None:
        """Make ``button`` put the next examples into ``box``.

        The box follows the checkpoint; so does the control ``other``, if given, by ``update``,
        which is called with the checkpoint and the control's value.
        """

        def next_page(page: int, checkpoint: Any) -> tuple[int, str]:
            return page + 1, pages.text(page + 1, checkpoint)

        def follow(checkpoint: Any, seen: int, value: Any, text: Any) -> tuple[Any, Any]:
            return update(checkpoint, value), pages.kept(text, seen, checkpoint)

        seen, checkpoint = gr.State(0), self.controls["checkpoint"]
        button.click(next_page, [seen, checkpoint], [seen, self.controls[box]], **AT_ONCE)
        follows = [self.controls[other], self.controls[box]]
        checkpoint.change(follow, [checkpoint, seen, *follows], follows, **AT_ONCE)
