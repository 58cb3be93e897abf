"""Joins links, and the runs that views of the page start, to its controls. Decides nothing.

Both work in the browser (``assets/web/views/page``): a view's event presses a hidden button
whose script sets the controls and hands over what no control holds; then the run is one like any
other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import gradio as gr

from app.controls import LINKED, POSTED, SHARED, SHOWN
from app.layout.block_size import block_size_update
from app.layout.wiring import owner_of, session_of
from app.live.handlers import LiveHandlers
from app.live.tab import LiveTab
from app.serving.checkpoints import CheckpointHandlers
from app.serving.engines import Engines

IN_BROWSER: dict[str, Any] = {
    "queue": False,
    "show_progress": "hidden",
    "api_visibility": "private",
}


def wire_view_runs(tab: LiveTab, handlers: LiveHandlers, queue: Mapping[str, Any]) -> None:
    """Runs that a view started. Builds what is hidden. ``queue``: of ``run_queue``."""
    posted = gr.Textbox(visible="hidden", elem_id="asked")
    button = gr.Button("Run what was asked for", visible="hidden", elem_id="ask")

    def run(request: gr.Request, posted: Any, *values: Any) -> Iterator[tuple[Any, Any]]:
        named = dict(zip(POSTED, values, strict=True))
        remark: Any = ""
        owner = owner_of(request)
        for value, sentence in handlers.run_from_view(session_of(request), posted, named, owner):
            yield (gr.skip() if value is None else value), sentence or remark
            remark = gr.skip()

    controls = [tab.controls[name] for name in SHOWN]
    button.click(
        None,
        controls,
        [posted, *controls],
        js=f"(...now) => window.mars.asked({json.dumps(SHOWN)}, now)",
        **IN_BROWSER,
    ).then(
        run,
        [posted, *(tab.controls[name] for name in POSTED)],
        [tab.race, tab.remark],
        **queue,
        trigger_mode="multiple",
        show_progress="hidden",
        api_visibility="private",
        preprocess=False,
    )


def wire_links(
    page: gr.Blocks,
    tab: LiveTab,
    handlers: LiveHandlers,
    checkpoints: CheckpointHandlers,
    engines: Engines,
) -> None:
    """The button that copies a link, and what a link sets when the page is opened with it."""
    space = os.environ.get("SPACE_ID", "")
    base = json.dumps(f"https://huggingface.co/spaces/{space}" if space else "")
    controls = [tab.controls[name] for name in SHARED]
    words = [LINKED[name].link if name in LINKED else name for name in SHARED]
    tab.buttons["share"].click(
        None,
        controls,
        [tab.remark],
        js=f"(...values) => window.mars.share({base}, {json.dumps(words)}, values)",
        **IN_BROWSER,
    )

    def follow(request: gr.Request) -> list[Any]:
        values, sentence = handlers.linked(request.query_params)
        updates = {name: gr.update(value=value) for name, value in values.items()}
        if "checkpoint" in values:
            checkpoints.settle(session_of(request))
            if "block_size" in values:
                depth = engines.limits(values["checkpoint"]).block_size
                updates["block_size"] = block_size_update(depth, values["block_size"])
        found = [updates.get(name, gr.skip()) for name in SHARED]
        return [*found, sentence or gr.skip()]

    page.load(follow, None, [*controls, tab.remark], **IN_BROWSER)
