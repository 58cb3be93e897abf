"""The Grid tab: which components there are, where they stand, and their wiring to the handlers.

Values are taken raw, as in ``wiring.py``, because the handlers judge every one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from app.components.views import GridView, RaceView
from app.grid.order import GRID, TAUS, USUAL_BLOCK_SIZES, USUAL_TAUS
from app.grid.run import GridHandlers
from app.layout.fields import max_tokens_field
from app.layout.wiring import AT_ONCE, Field, run_queue, tell_prompt, wire_stream
from app.run_log import RunLogs
from app.serving.engines import Engines

NUM_TOKENS = 96  # what the tab opens with


def grid_tab(
    page: gr.Blocks,
    grid: GridHandlers,
    engines: Engines,
    logs: RunLogs,
    live: Mapping[str, Field],
) -> None:
    """Build and wire the tab; ``live``: controls of the Live tab, whose checkpoint is used here."""
    controls: dict[str, Field] = {"checkpoint": live["checkpoint"]}
    buttons: dict[str, gr.Button] = {}
    with gr.Row(elem_id="grid-live"):
        with gr.Column(scale=0, min_width=340, elem_id="grid-desk"):
            _prompt(controls, buttons, grid, engines.default)
            _choices(controls, grid, engines.default)
            with gr.Row(elem_id="grid-go"):
                buttons["run"] = gr.Button(
                    "Run", variant="primary", elem_id="grid-run", min_width=0
                )
                buttons["stop"] = gr.Button("Stop", elem_id="grid-stop", min_width=0)
        with gr.Column(scale=1, min_width=300, elem_id="grid-stage"):
            view = GridView(missed=logs.missed, elem_id="grid")
            RaceView(value="", elem_id="grid-race")
    inputs = {control.name: controls[control.name] for control in GRID}
    start = [buttons["run"].click]
    wire_stream(page, grid, start, buttons["stop"], inputs, view, run_queue(engines.settings))
    _wire_choices(grid, controls, buttons, live)


def _prompt(
    controls: dict[str, Field],
    buttons: dict[str, gr.Button],
    grid: GridHandlers,
    checkpoint: str,
) -> None:
    controls["prompt"] = gr.Textbox(
        label="Prompt · Ctrl+Enter runs, Escape stops",
        value=grid.examples.text(0, checkpoint),
        placeholder="Type a prompt or take an example",
        lines=4,
        max_lines=8,
        elem_id="grid-prompt",
    )
    with gr.Row(elem_id="grid-prompts"):
        buttons["example"] = gr.Button("Another example", size="sm", min_width=0)
        buttons["live"] = gr.Button("Prompt of Live", size="sm", min_width=0)


def _choices(controls: dict[str, Field], grid: GridHandlers, checkpoint: str) -> None:
    controls["taus"] = gr.CheckboxGroup(
        [(f"{tau:g}", tau) for tau in TAUS],
        value=list(USUAL_TAUS),
        label="τ, one row each",
        elem_id="grid-taus",
    )
    controls["lossless"] = gr.Checkbox(
        True, label="a lossless row, drafting at τ 0", elem_id="grid-lossless"
    )
    block_sizes = grid.block_sizes(checkpoint)
    controls["block_sizes"] = gr.CheckboxGroup(
        [(str(each), each) for each in block_sizes],
        value=[each for each in USUAL_BLOCK_SIZES if each in block_sizes] or block_sizes,
        label="B, a column each",
        elem_id="grid-block_sizes",
    )
    with gr.Column(elem_id="grid-knobs"):
        controls["max_new_tokens"] = max_tokens_field("grid-", NUM_TOKENS, grid.max_tokens)


def _wire_choices(
    grid: GridHandlers,
    controls: dict[str, Field],
    buttons: dict[str, gr.Button],
    live: Mapping[str, Field],
) -> None:
    """Examples, the prompt of the Live tab, and the values of B that a checkpoint knows."""

    def next_page(page: int, checkpoint: Any) -> tuple[int, str]:
        return page + 1, grid.examples.text(page + 1, checkpoint)

    def follow(checkpoint: Any, seen: int, chosen: Any, prompt: Any) -> tuple[Any, Any]:
        found = grid.block_sizes(checkpoint)
        kept = [each for each in found if isinstance(chosen, list) and each in chosen]
        choices = [(str(each), each) for each in found]
        value = kept or [each for each in USUAL_BLOCK_SIZES if each in found] or found
        return gr.update(choices=choices, value=value), grid.examples.kept(prompt, seen, checkpoint)

    tell_prompt(controls["prompt"], "grid")
    seen, checkpoint = gr.State(0), controls["checkpoint"]
    buttons["example"].click(next_page, [seen, checkpoint], [seen, controls["prompt"]], **AT_ONCE)
    buttons["live"].click(lambda prompt: prompt, [live["prompt"]], [controls["prompt"]], **AT_ONCE)
    follows = [controls["block_sizes"], controls["prompt"]]
    checkpoint.change(follow, [checkpoint, seen, *follows], follows, **AT_ONCE)
