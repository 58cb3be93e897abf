"""The page: its tabs, its header and footer, and the updates after a change of the checkpoint.

The checkpoint can be changed by the visitor, by a link, or because a checkpoint finished loading;
the same updates follow in each case.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from app.api.endpoints import wire_endpoints
from app.engines.engines import Engines
from app.handlers import Handlers
from app.live.lanes import LiveHandlers
from app.live.tab import (
    LiveTab,
    conversation_checkpoint,
    live_tab,
    note_on,
    wire_links,
    wire_live,
)  # fmt: skip
from app.review.review_tab import review_tab
from app.throughput.tab import throughput_tab
from app.tradeoff.grid_tab import grid_tab
from app.ui.checkpoints import CheckpointChoice, CheckpointHandlers, missing_sentence
from app.ui.examples import set_for
from app.ui.fields import OWN_SYSTEM, block_size_update
from app.ui.recordings import Recording
from app.ui.wiring import AT_ONCE, Field, run_script, session_of

PAPER, CODE = "https://arxiv.org/abs/2604.07023", "https://github.com/Xalp/MARS"
MASTHEAD = """# MARS live

One model writes several tokens per forward pass."""
LOADING_SECONDS = 1.0  # time between two checks of whether a checkpoint is loaded


def build(handlers: Handlers, first: Recording | None = None) -> gr.Blocks:
    engines = handlers.engines
    page = gr.Blocks(
        title="MARS live", analytics_enabled=False, delete_cache=(3600, 3600), fill_width=True
    )
    with page:
        with gr.Row(elem_id="top"):
            gr.Markdown(MASTHEAD, elem_id="masthead")
            present = gr.Button("Present", size="sm", min_width=0, elem_id="present")
            run_script(present, "window.mars.mountPresenter()")
        arriving = gr.Markdown("", elem_id="arrival")
        with gr.Tabs(overflow_behavior="wrap"):
            with _tab("Live", "live"):
                tab = live_tab(handlers.live, first)
            with _tab("Trade-off", "trade-off"):
                grid_tab(page, handlers.grid, tab.controls)
            with _tab("Throughput", "throughput"):
                throughput_tab(page, handlers.throughput, tab.controls)
            with _tab("Review", "review"):
                review_tab(engines.entries)
        with gr.Row(elem_id="about"):
            footer = gr.Markdown(f"Loading {engines.default}…", elem_id="footer")
            gr.Markdown(f"[Paper]({PAPER}) · [Code]({CODE})")
        wire_live(page, tab, handlers.live)
        _wire_checkpoint(page, tab, arriving, footer, handlers.checkpoints, handlers.live, engines)
        wire_endpoints(engines, handlers.book)
        wire_links(page, tab, handlers.live, handlers.checkpoints)
    return page


def _tab(title: str, name: str) -> gr.Tab:
    return gr.Tab(title, elem_id=f"{name}-tab")


def _wire_checkpoint(
    page: gr.Blocks,
    tab: LiveTab,
    arriving: gr.Markdown,
    footer: gr.Markdown,
    handlers: CheckpointHandlers,
    live: LiveHandlers,
    engines: Engines,
) -> None:
    """When the page opens or the checkpoint changes, update everything that depends on the
    checkpoint. While it loads, or the default checkpoint does, a clock updates what the page shows
    of it.

    Once the default checkpoint is ready, select it for visitors who have not chosen a checkpoint.
    """
    controls = tab.controls
    checkpoint = controls["checkpoint"]
    built = engines.default
    clock = gr.Timer(LOADING_SECONDS, active=engines.arrival() is not None)
    inputs = [checkpoint, controls["block_size"]]
    loading: list[Field | gr.Markdown] = [
        tab.notice, footer, controls["block_size"], controls["view"]
    ]  # fmt: skip
    outputs: list[Any] = [
        clock, *loading,
        controls["system"], tab.examples, tab.conversation, *tab.sets.values(),
    ]  # fmt: skip

    def follow(name: Any, block_size: Any) -> list[Any]:
        choice = handlers.choose(name)
        if choice is None:
            return [gr.skip()] * len(outputs)
        entry = engines.entry(name)
        rows = [gr.update(visible=name == set_for(entry)) for name in tab.sets]
        hint = gr.update(placeholder=entry.system or OWN_SYSTEM)
        return [
            gr.Timer(active=not choice.is_over or engines.arrival() is not None),
            *_updates(choice, block_size), hint, note_on(entry), conversation_checkpoint(entry),
            *rows,
        ]  # fmt: skip

    def opening(request: gr.Request, name: Any, block_size: Any) -> list[Any]:
        linked, _ = live.linked(request.query_params)
        opens_with = linked.get("checkpoint", engines.default)
        if opens_with != built:  # the change event of the checkpoint updates everything else
            return [opens_with, *[gr.skip()] * len(outputs)]
        return [gr.skip(), *follow(name, linked.get("block_size", block_size))]

    def check(request: gr.Request, name: Any, block_size: Any) -> list[Any]:
        arrival, choice = handlers.arrival(session_of(request)), handlers.state(name)
        is_over = choice is None or choice.is_over
        updates = [gr.skip()] * len(loading) if choice is None else _updates(choice, block_size)
        if not is_over:  # the visitor may be moving the controls
            updates[2:] = [gr.skip()] * len(updates[2:])
        change = gr.skip() if arrival.checkpoint is None else arrival.checkpoint
        is_active = not (is_over and arrival.is_over)
        return [arrival.sentence, change, gr.Timer(active=is_active), *updates]

    def settle(request: gr.Request) -> None:
        handlers.settle(session_of(request))

    def leave(request: gr.Request) -> None:
        handlers.leave(session_of(request))

    page.load(opening, inputs, [checkpoint, *outputs], **AT_ONCE)
    checkpoint.change(follow, inputs, outputs, trigger_mode="always_last", **AT_ONCE)
    checkpoint.input(settle, **AT_ONCE)
    clock.tick(check, inputs, [arriving, checkpoint, clock, *loading], **AT_ONCE)
    page.unload(leave)


def _updates(choice: CheckpointChoice, block_size: Any) -> list[Any]:
    return [
        choice.notice,
        choice.footer,
        block_size_update(choice.depth, block_size, has_auto=True),
        gr.update(
            info=missing_sentence(choice.missing) or None,
            elem_classes=["segments", *(f"without-{name}" for name in choice.missing)],
        ),
    ]
