"""The Grid tab: its components, their layout and their events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from app.tradeoff.grid import GridHandlers
from app.tradeoff.grid_order import GRID, TAUS, USUAL_BLOCK_SIZES, USUAL_TAUS
from app.ui import rounds
from app.ui.fields import Desk
from app.ui.views import GridView
from app.ui.wiring import Field

NUM_TOKENS = 96  # initial value


def grid_tab(page: gr.Blocks, grid: GridHandlers, live: Mapping[str, Field]) -> None:
    """Build the tab and wire its events. live: the controls of the Live tab."""
    desk, opens_with = Desk("grid", grid, live), grid.engines.default
    with desk.laid_out(page, GRID, GridView, race=True):
        another = desk.prompt_box(grid.examples)
        titles = {tau: f"{tau:g}" for tau in TAUS}
        desk.choices(gr.CheckboxGroup, "taus", titles, list(USUAL_TAUS), "Rows: τ")
        desk.controls["lossless"] = gr.Checkbox(
            True, label="Include lossless (τ 0)", **desk.named("lossless")
        )
        block_sizes = grid.block_sizes(opens_with)
        titles = {block_size: str(block_size) for block_size in block_sizes}
        chosen = _usual(block_sizes)
        desk.choices(gr.CheckboxGroup, "block_sizes", titles, chosen, "Columns: B")
        with gr.Column(**desk.named("knobs")):
            desk.max_tokens(NUM_TOKENS)
        desk.choices(gr.Radio, "rounds", rounds.TITLES, rounds.ROUNDS[0], "Rounds")

    def follow(checkpoint: Any, chosen: Any) -> Any:
        """Update the choices of B for a checkpoint. Chosen values that the checkpoint supports stay
        chosen.
        """
        block_sizes = grid.block_sizes(checkpoint)
        still_chosen = [
            block_size
            for block_size in block_sizes
            if isinstance(chosen, list) and block_size in chosen
        ]
        choices = [(str(block_size), block_size) for block_size in block_sizes]
        return gr.update(choices=choices, value=still_chosen or _usual(block_sizes))

    desk.wire_examples("prompt", another, grid.examples, "block_sizes", follow)


def _usual(block_sizes: list[int]) -> list[int]:
    """Return the values of B that are chosen initially."""
    return [
        block_size for block_size in USUAL_BLOCK_SIZES if block_size in block_sizes
    ] or block_sizes
