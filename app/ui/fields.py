"""Fields for the settings of ``mars_runtime/settings.py``, and the common layout of the tabs."""

from __future__ import annotations

import math
from typing import Any

import gradio as gr

from app.ui.controls import DEFAULTS, FIXED_BLOCK_SIZE, SHOWN
from app.ui.wiring import Field
from mars_runtime.settings import SETTINGS
from mars_runtime.text import MAX_SYSTEM_CHARS

TEXTS = [("Same text as AR", True), ("Unverified", False)]
"""Choices of the setting ``lossless``."""
OWN_SYSTEM = "The model's own system prompt"


def setting_field(name: str, elem_id: str, **changes: Any) -> Field:
    """Return the field of a setting with its initial value. changes: constructor arguments to
    override.
    """
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
    limits, step = schema.get("anyOf", [schema])[0], shown.step  # of B, a number or "auto"
    ends = {
        "minimum": _on_grid(math.ceil(limits["minimum"] / step), step),
        "maximum": _on_grid(math.floor(limits["maximum"] / step), step),
    }
    return gr.Slider(**{**ends, **arguments}, step=step, buttons=[])


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
