"""The slider of B, from 1 to what a checkpoint was trained for."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app.controls import FIXED_BLOCK_SIZE


def block_size_slider(depth: int, elem_id: str) -> gr.Slider:
    """B from 1 to the trained depth; one that writes one token per forward has no choice."""
    return gr.Slider(
        **_range(depth, FIXED_BLOCK_SIZE),
        step=1,
        label="B proposals",
        elem_id=elem_id,
        buttons=[],
    )


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
