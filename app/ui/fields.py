"""Fields for the settings of ``mars_runtime/settings.py``, and the common layout of the tabs."""

from __future__ import annotations

import math
from typing import Any

import gradio as gr

from app.ui.controls import DEFAULTS, SHOWN
from app.ui.wiring import Field
from mars_runtime.decoders.methods import AUTO
from mars_runtime.settings import FIXED_BLOCK_SIZE, SETTINGS
from mars_runtime.text import MAX_SYSTEM_CHARS

TEXTS = [("Same text as AR", True), ("Unverified", False)]
"""Choices of the setting ``lossless``."""
OWN_SYSTEM = "The model's own system prompt"


def setting_field(name: str, elem_id: str, **changes: Any) -> Field:
    schema, shown, value = SETTINGS[name], SHOWN[name], getattr(DEFAULTS, name)
    arguments = {"value": value, "label": shown.label, "info": shown.info or None}
    arguments |= {"elem_id": elem_id, **changes}
    if schema.get("type") == "boolean":
        return gr.Checkbox(**arguments)
    if "enum" in schema:
        titles = [(shown.titles.get(choice, choice), choice) for choice in schema["enum"]]
        return gr.Radio(titles, **arguments)
    if not shown.step:
        return gr.Number(precision=0, **arguments)
    step = shown.step
    ends = {
        "minimum": _on_grid(math.ceil(schema["minimum"] / step), step),
        "maximum": _on_grid(math.floor(schema["maximum"] / step), step),
    }
    return gr.Slider(**{**ends, **arguments}, step=step, buttons=[])


def _on_grid(count: int, step: float) -> float:
    """Return ``count`` times the step, without floating-point residue, and as an integer if
    possible.
    """
    value = round(count * step, 6)
    return int(value) if value == int(value) else value


def system_field(own: str | None) -> gr.Textbox:
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
    ends: dict[str, Any] = {"minimum": 1, "maximum": most, "value": min(value, most)}
    return setting_field("max_new_tokens", f"{prefix}max_new_tokens", **ends)


def block_size_field(depth: int, elem_id: str, has_auto: bool = False) -> gr.Dropdown:
    """Return the list of B, from 2 to ``depth``, the checkpoint's largest B. It is hidden if the
    depth is 1.
    """
    return gr.Dropdown(
        label=SHOWN["block_size"].label,
        filterable=False,
        elem_id=elem_id,
        **_sizes(depth, FIXED_BLOCK_SIZE, has_auto),
    )


def block_size_update(depth: int, block_size: Any, has_auto: bool = False) -> Any:
    return gr.update(**_sizes(depth, block_size, has_auto))


def _sizes(depth: int, block_size: Any, has_auto: bool) -> dict[str, Any]:
    sizes = range(min(2, depth), depth + 1)
    choices = [(str(size), size) for size in sizes] + [("auto (fastest here)", AUTO)] * has_auto
    is_whole = isinstance(block_size, (int, float)) and not isinstance(block_size, bool)
    fixed = max(sizes[0], min(int(block_size) if is_whole else FIXED_BLOCK_SIZE, depth))
    value = AUTO if has_auto and block_size == AUTO else fixed
    return {"choices": choices, "value": value, "visible": depth > 1}
