"""A slider among the controls of a tab. Knows no tab."""

from __future__ import annotations

from collections.abc import MutableMapping

import gradio as gr

from app.layout.wiring import Field


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
