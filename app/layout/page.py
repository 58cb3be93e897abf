"""The page: its tabs, and what stands around them.

Decides nothing and draws nothing: each tab joins its events to its handlers, components draw.
"""

from __future__ import annotations

import gradio as gr

from app.api.endpoints import wire_endpoints
from app.batch.tab import batch_tab
from app.compare import compare_tab
from app.frontier import frontier_tab
from app.grid.tab import grid_tab
from app.handlers import Handlers
from app.layout.arrival import wire_arrival
from app.layout.checkpoint import wire_checkpoint
from app.layout.explain_tab import explain_tab, present_button
from app.layout.wiring import run_queue
from app.live.tab import live_tab, wire_links, wire_live, wire_view_runs
from app.load.tab import load_tab
from app.recordings import Recording


def build(handlers: Handlers, first: Recording | None = None) -> gr.Blocks:
    """The whole page, wired. ``first`` is shown until a visitor runs something."""
    engines, queue = handlers.engines, run_queue(handlers.engines.settings)
    page = gr.Blocks(
        title="MARS live", analytics_enabled=False, delete_cache=(3600, 3600), fill_width=True
    )
    with page:
        with gr.Row(elem_id="top"):
            gr.Markdown(
                "# MARS live\n\nSeveral tokens per forward pass, from one ordinary checkpoint.",
                elem_id="masthead",
            )
            present_button()
        arriving = gr.Markdown("", elem_id="arrival")
        with gr.Tabs():
            with gr.Tab("Live"):
                tab = live_tab(engines, handlers.book, handlers.logs, first)
            with gr.Tab("Batch", elem_id="batch-tab"):
                batch_tab(page, handlers.batch, engines, handlers.logs, tab.controls["checkpoint"])
            with gr.Tab("Grid", elem_id="grid-tab"):
                grid_tab(page, handlers.grid, engines, handlers.logs, tab.controls)
            with gr.Tab("Compare", elem_id="compare-tab"):
                compare_tab(engines.settings.max_import_bytes)
            with gr.Tab("Frontier", elem_id="frontier-tab"):
                frontier_tab()
            with gr.Tab("Load lab", elem_id="load-tab"):
                load_tab(page, handlers.load, engines, handlers.logs, tab.controls["checkpoint"])
            with gr.Tab("How it works"):
                explain_tab()
        footer = gr.Markdown(f"Loading {engines.default}…", elem_id="footer")
        checkpoint = tab.controls["checkpoint"]
        wire_live(page, tab, handlers.live, handlers.book, queue)
        wire_checkpoint(page, tab, footer, handlers.checkpoints, handlers.live, engines)
        wire_arrival(page, checkpoint, arriving, handlers.checkpoints, engines)
        wire_endpoints(engines, handlers.book)
        wire_view_runs(tab, handlers.live, queue)
        wire_links(page, tab, handlers.live, handlers.checkpoints, engines)
    return page
