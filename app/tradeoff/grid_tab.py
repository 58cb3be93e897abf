"""The Trade-off tab."""

from __future__ import annotations

from collections.abc import Mapping

import gradio as gr

from app.tradeoff.grid import COLUMNS, GRID, LOSSLESS, ROWS, GridHandlers
from app.ui.views import GridView
from app.ui.wiring import Field, pass_prompt_to_view, wire_memory

USUAL_ROWS, USUAL_COLUMNS = (LOSSLESS, 0.9, 0.8, 0.7, 0.5), (2, 4, 8)
"""Ticked at first; the recorded result has the same."""


def grid_tab(page: gr.Blocks, grid: GridHandlers, live: Mapping[str, Field]) -> None:
    rows = [(row if row == LOSSLESS else f"τ {row:g}", row) for row in ROWS]
    columns = [(f"B {column}", column) for column in COLUMNS]
    with gr.Row(elem_id="grid-bar"):
        own: dict[str, Field] = {
            "rows": gr.CheckboxGroup(rows, value=[*USUAL_ROWS], label="Rows", elem_id="grid-rows"),
            "columns": gr.CheckboxGroup(
                columns, value=[*USUAL_COLUMNS], label="Columns", elem_id="grid-columns"
            ),
        }
        with gr.Row(elem_id="grid-go"):
            run = gr.Button("Run", variant="primary", min_width=0, elem_id="grid-run")
            stop = gr.Button("Stop", min_width=0, elem_id="grid-stop")
    view = GridView(missed=grid.logs.missed, elem_id="grid")
    inputs = {name: {**live, **own}[name] for name in GRID}
    grid.wire(page, [run.click], stop, inputs, [view])
    wire_memory(page, "grid", own)
    pass_prompt_to_view(live["prompt"], "grid")
