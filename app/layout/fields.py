"""The controls of settings as the table describes them (``mars_runtime/settings.py``), and the desk
of a tab: its controls, its buttons and its view. Knows no tab."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gradio as gr

from app.components.views import LineView, RaceView
from app.controls import DEFAULTS, FIXED_BLOCK_SIZE, Control
from app.examples.book import ExamplePages
from app.layout.wiring import AT_ONCE, Field, wire_stream
from app.stream import TabHandlers
from mars_runtime.settings import SETTINGS
from mars_runtime.text import MAX_SYSTEM_CHARS

SHARED = ("checkpoint", "system")
"""Controls of the Live tab that every tab posts."""
OWN_SYSTEM = "The model's own"


def setting_field(name: str, elem_id: str, **changes: Any) -> Field:
    """The control of a setting, with what the page opens with; ``changes``: of its arguments."""
    line = SETTINGS[name]
    said = {"value": getattr(DEFAULTS, name), "label": line.label, "info": line.info or None}
    said |= {"elem_id": elem_id, **changes}
    if line.type is bool:
        return gr.Checkbox(**said)
    if line.low is None or line.high is None:
        return gr.Radio([(line.titles.get(each, each), each) for each in line.choices], **said)
    if not line.step:
        return gr.Number(precision=0, **said)
    ends = {
        "minimum": _on_grid(math.ceil(line.low / line.step), line.step),
        "maximum": _on_grid(math.floor(line.high / line.step), line.step),
    }
    return gr.Slider(**{**ends, **said}, step=line.step, buttons=[])


def _on_grid(count: int, step: float) -> float:
    """A multiple of the step: whole where it can be, and without what floats add."""
    value = round(count * step, 6)
    return int(value) if value == int(value) else value


def system_field(own: str | None) -> gr.Textbox:
    """The system prompt; ``own`` is the checkpoint's, shown while the field is empty."""
    return gr.Textbox(
        label="System prompt",
        info="For every tab. Empty: the model's own.",
        placeholder=system_hint(own),
        lines=2,
        max_lines=6,
        max_length=MAX_SYSTEM_CHARS,
        elem_id="system",
    )


def system_hint(own: str | None) -> str:
    """The system prompt that an empty one is replaced by."""
    return own or OWN_SYSTEM


def max_tokens_field(place: str, value: int, most: int, low: int = 1) -> Field:
    """The slider of the limit on tokens, up to what this app allows."""
    ends: dict[str, Any] = {"minimum": low, "maximum": most, "value": min(value, most)}
    return setting_field("max_new_tokens", f"{place}max_new_tokens", **ends)


def block_size_field(depth: int, elem_id: str) -> Field:
    """B from 1 to the trained depth; one that writes one token per forward has no choice."""
    return setting_field("block_size", elem_id, **_range(depth, FIXED_BLOCK_SIZE))


def block_size_update(depth: int, block_size: Any) -> Any:
    """The slider of B for another depth; what was chosen stays where it fits."""
    return gr.update(**_range(depth, block_size))


def _range(depth: int, block_size: Any) -> dict[str, Any]:
    is_whole = isinstance(block_size, (int, float)) and not isinstance(block_size, bool)
    chosen = block_size if is_whole else FIXED_BLOCK_SIZE
    # A slider whose ends are equal breaks the page, so one without a choice is hidden.
    return {
        "minimum": 1,
        "maximum": max(depth, 2),
        "value": min(chosen, depth),
        "visible": depth > 1,
    }


class Desk:
    """A tab as most are laid out: its controls in a column with Run and Stop below them, its view
    beside that column. On the page everything in it is called PLACE-NAME."""

    def __init__(self, place: str, handlers: TabHandlers[Any], live: Mapping[str, Field]) -> None:
        """``live``: the controls of the Live tab."""
        self.place = place
        self.handlers = handlers
        self.controls: dict[str, Field] = {name: live[name] for name in SHARED}

    @contextmanager
    def laid_out(
        self, page: gr.Blocks, posted: Iterable[Control], view: type[LineView], race: bool = False
    ) -> Iterator[None]:
        """Everything around the controls, which are built meanwhile; ``posted``: those that Run
        sends; ``race``: whether a race view stands below, which shows one run of many."""
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
        inputs = {each.name: self.controls[each.name] for each in posted}
        wire_stream(page, self.handlers, [run.click], stop, inputs, [shown])

    def named(self, name: str) -> dict[str, Any]:
        """The argument that names a component of the tab."""
        return {"elem_id": f"{self.place}-{name}"}

    def choices(
        self,
        kind: type[gr.Radio | gr.CheckboxGroup],
        name: str,
        titles: Mapping[Any, str],
        value: Any,
        label: str,
    ) -> None:
        """One or several of some values, each under its title."""
        listed = [(title, each) for each, title in titles.items()]
        self.controls[name] = kind(listed, value=value, label=label, **self.named(name))

    def slider(
        self, name: str, low: float, high: float, value: float, step: float, label: str
    ) -> None:
        """A number that is no setting."""
        self.controls[name] = gr.Slider(
            low, high, value, step=step, label=label, buttons=[], **self.named(name)
        )

    def max_tokens(self, value: int, low: int = 1) -> None:
        """The slider of the limit on tokens."""
        most = self.handlers.max_tokens
        self.controls["max_new_tokens"] = max_tokens_field(f"{self.place}-", value, most, low)

    def wire_examples(
        self,
        box: str,
        button: gr.Button,
        pages: ExamplePages,
        other: str,
        update: Callable[[Any, Any], Any],
    ) -> None:
        """``button`` puts the next examples into ``box``, which follows the checkpoint, as another
        control does: ``update`` makes its update of the checkpoint and its value."""

        def next_page(page: int, checkpoint: Any) -> tuple[int, str]:
            return page + 1, pages.text(page + 1, checkpoint)

        def follow(checkpoint: Any, seen: int, value: Any, text: Any) -> tuple[Any, Any]:
            return update(checkpoint, value), pages.kept(text, seen, checkpoint)

        seen, checkpoint = gr.State(0), self.controls["checkpoint"]
        button.click(next_page, [seen, checkpoint], [seen, self.controls[box]], **AT_ONCE)
        follows = [self.controls[other], self.controls[box]]
        checkpoint.change(follow, [checkpoint, seen, *follows], follows, **AT_ONCE)
