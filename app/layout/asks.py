"""Joins what views ask for, and links, to the page's controls. Decides nothing itself.

Both work in the browser (``assets/web/views/page``): a view's event presses a hidden button
whose script sets the controls and hands over what no control holds; then the run is one like any
other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import gradio as gr

from app.handlers import Handlers
from app.layout.checkpoint import block_size_update
from app.layout.wiring import ORDER, run_queue, session_of
from app.share import LINKED, PARAMETERS

if TYPE_CHECKING:
    from app.layout.page import LiveTab

SET = (
    "tau", "block_size", "auto", "lossless", "groups", "lookup", "metric", "temperature", "seed",
    "view",
)  # fmt: skip
"""Controls that show what a run was asked for with."""
SHARED = (*LINKED, "auto")
IN_BROWSER: dict[str, Any] = {
    "queue": False,
    "show_progress": "hidden",
    "api_visibility": "private",
}


def wire_asks(tab: LiveTab, handlers: Handlers) -> None:
    """Runs that a view asked for. Builds what is hidden."""
    asked = gr.Textbox(visible="hidden", elem_id="asked")
    button = gr.Button("Run what was asked for", visible="hidden", elem_id="ask")

    def run(request: gr.Request, asked: Any, *values: Any) -> Iterator[tuple[Any, Any]]:
        named = dict(zip(ORDER, values, strict=True))
        remark: Any = ""
        for value, sentence in handlers.run_asked(session_of(request), asked, named):
            yield (gr.skip() if value is None else value), sentence or remark
            remark = gr.skip()

    controls = [tab.controls[name] for name in SET]
    button.click(
        None,
        controls,
        [asked, *controls],
        js=f"(...now) => window.mars.asked({json.dumps(SET)}, now)",
        **IN_BROWSER,
    ).then(
        run,
        [asked, *(tab.controls[name] for name in ORDER)],
        [tab.race, tab.remark],
        **run_queue(handlers),
        trigger_mode="multiple",
        show_progress="hidden",
        api_visibility="private",
        preprocess=False,
    )


def wire_links(page: gr.Blocks, tab: LiveTab, handlers: Handlers) -> None:
    """The button that copies a link, and what a link sets when the page is opened with it."""
    space = os.environ.get("SPACE_ID", "")
    base = json.dumps(f"https://huggingface.co/spaces/{space}" if space else "")
    controls = [tab.controls[name] for name in SHARED]
    words = [PARAMETERS.get(name, name) for name in SHARED]
    tab.buttons["share"].click(
        None,
        controls,
        [tab.remark],
        js=f"(...values) => window.mars.share({base}, {json.dumps(words)}, values)",
        **IN_BROWSER,
    )

    def follow(request: gr.Request) -> list[Any]:
        values, sentence = handlers.follow(request.query_params)
        updates = {name: gr.update(value=value) for name, value in values.items()}
        if "checkpoint" in values:
            handlers.settle(session_of(request))
            if "block_size" in values:
                depth = handlers.limits(values["checkpoint"]).block_size
                updates["block_size"] = block_size_update(depth, values["block_size"])
        found = [updates.get(name, gr.skip()) for name in SHARED]
        return [*found, sentence or gr.skip()]

    page.load(follow, None, [*controls, tab.remark], **IN_BROWSER)
