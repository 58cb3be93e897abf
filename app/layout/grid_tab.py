"""The Grid tab: which components there are, where they stand, and their wiring to the handlers.

Values are taken raw, as in ``wiring.py``, because the handlers judge every one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from app.components.grid_view import GridView
from app.components.race_view import RaceView
from app.grid_handlers import GridHandlers
from app.grid_order import TAUS, USUAL_BLOCK_SIZES, USUAL_TAUS
from app.handlers import Handlers
from app.layout.wiring import AT_ONCE, run_queue, tell_prompt, wire_stream

ORDER = ("prompt", "taus", "block_sizes", "lossless", "max_new_tokens", "checkpoint")
TOKENS = 96  # what the tab opens with


def grid_tab(
    page: gr.Blocks, handlers: Handlers, live: Mapping[str, gr.components.Component]
) -> None:
    """Build and wire the tab; ``live``: controls of the Live tab, whose checkpoint is used here."""
    grid = GridHandlers(handlers)
    controls: dict[str, gr.components.Component] = {"checkpoint": live["checkpoint"]}
    buttons: dict[str, gr.Button] = {}
    with gr.Row(elem_id="grid-live"):
        with gr.Column(scale=0, min_width=340, elem_id="grid-desk"):
            _prompt(controls, buttons, grid, handlers.engines.default)
            _choices(controls, grid, handlers.engines.default)
            with gr.Row(elem_id="grid-go"):
                buttons["run"] = gr.Button(
                    "Run", variant="primary", elem_id="grid-run", min_width=0
                )
                buttons["stop"] = gr.Button("Stop", elem_id="grid-stop", min_width=0)
        with gr.Column(scale=1, min_width=300, elem_id="grid-stage"):
            view = GridView(missed=handlers.feeds.missed, elem_id="grid")
            RaceView(value="", elem_id="grid-race")
    inputs = {name: controls[name] for name in ORDER}
    start = [buttons["run"].click]
    wire_stream(page, grid, start, buttons["stop"], inputs, view, run_queue(handlers))
    _wire_choices(grid, controls, buttons, live)


def _prompt(
    controls: dict[str, gr.components.Component],
    buttons: dict[str, gr.Button],
    grid: GridHandlers,
    checkpoint: str,
) -> None:
    controls["prompt"] = gr.Textbox(
        label="Prompt · Ctrl+Enter runs, Escape stops",
        value=grid.example(0, checkpoint),
        placeholder="Type a prompt or take an example",
        lines=4,
        max_lines=8,
        elem_id="grid-prompt",
    )
    with gr.Row(elem_id="grid-prompts"):
        buttons["example"] = gr.Button("Another example", size="sm", min_width=0)
        buttons["live"] = gr.Button("Prompt of Live", size="sm", min_width=0)


def _choices(
    controls: dict[str, gr.components.Component], grid: GridHandlers, checkpoint: str
) -> None:
    controls["taus"] = gr.CheckboxGroup(
        [(f"{tau:g}".removeprefix("0") or "0", tau) for tau in TAUS],
        value=list(USUAL_TAUS),
        label="τ, a row each",
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
        controls["max_new_tokens"] = gr.Slider(
            1,
            grid.most_tokens,
            min(TOKENS, grid.most_tokens),
            step=1,
            label="Max tokens",
            elem_id="grid-max_new_tokens",
            buttons=[],
        )


def _wire_choices(
    grid: GridHandlers,
    controls: dict[str, gr.components.Component],
    buttons: dict[str, gr.Button],
    live: Mapping[str, gr.components.Component],
) -> None:
    """Examples, the prompt of the Live tab, and the values of B that a checkpoint knows."""

    def turn(seen: int, checkpoint: Any) -> tuple[int, str]:
        return seen + 1, grid.example(seen + 1, checkpoint)

    def follow(checkpoint: Any, seen: int, chosen: Any, prompt: Any) -> tuple[Any, Any]:
        found = grid.block_sizes(checkpoint)
        kept = [each for each in found if isinstance(chosen, list) and each in chosen]
        choices = [(str(each), each) for each in found]
        value = kept or [each for each in USUAL_BLOCK_SIZES if each in found] or found
        return gr.update(choices=choices, value=value), grid.kept(prompt, seen, checkpoint)

    tell_prompt(controls["prompt"], "grid")
    seen, checkpoint = gr.State(0), controls["checkpoint"]
    buttons["example"].click(turn, [seen, checkpoint], [seen, controls["prompt"]], **AT_ONCE)
    buttons["live"].click(lambda prompt: prompt, [live["prompt"]], [controls["prompt"]], **AT_ONCE)
    follows = [controls["block_sizes"], controls["prompt"]]
    checkpoint.change(follow, [checkpoint, seen, *follows], follows, **AT_ONCE)
