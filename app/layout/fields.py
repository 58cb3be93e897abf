"""The controls of settings as the table describes them (``mars_runtime/settings.py``), and sliders
of what is no setting. Knows no tab."""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from typing import Any

import gradio as gr

from app.controls import DEFAULTS, FIXED_BLOCK_SIZE
from app.layout.wiring import Field
from mars_runtime.settings import SETTINGS


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


def add_slider(
    controls: MutableMapping[str, Field],
    place: str,
    name: str,
    low: float,
    high: float,
    value: float,
    step: float,
    label: str,
) -> None:
    """Put a slider among the controls of a tab; on the page it is called PLACE-NAME."""
    controls[name] = gr.Slider(
        low, high, value, step=step, label=label, elem_id=f"{place}-{name}", buttons=[]
    )
