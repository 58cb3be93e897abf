"""Joins the choice of a checkpoint to what depends on it: B, examples, the footer.

Whoever changes it (the visitor, a link, its arrival), the same follows. Decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from app.components.views import ConversationView
from app.examples.book import set_for
from app.layout.fields import block_size_update
from app.layout.wiring import AT_ONCE, Field, session_of
from app.live.run import LiveHandlers
from app.live.tab import LiveTab, holder, note_on
from app.serving.checkpoints import CheckpointHandlers, Choice
from app.serving.engines import Engines
from mars_runtime.settings import CAPTURED, SETTINGS

HELD = {name: SETTINGS[name].info for name in (*CAPTURED, "target")}
"""Controls that do nothing on a GPU, each with what stands below it elsewhere."""
HELD_HERE = "Fixed on this GPU: a step is one captured graph there."
FOLLOWS: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    "preprocess": False,
}


def wire_checkpoint(
    page: gr.Blocks,
    tab: LiveTab,
    footer: gr.Markdown,
    handlers: CheckpointHandlers,
    live: LiveHandlers,
    engines: Engines,
) -> None:
    """Everything that follows a checkpoint, when it changes and when the page is opened."""
    controls = tab.controls
    checkpoint = controls["checkpoint"]
    built = engines.default
    inputs = [checkpoint, controls["block_size"]]
    outputs: list[Field | ConversationView | gr.Markdown | gr.Row] = [
        tab.notice, controls["block_size"], controls["auto"], footer,
        *[controls[name] for name in HELD], tab.examples, tab.conversation, *tab.sets.values(),
    ]  # fmt: skip

    def follow(name: Any, block_size: Any) -> Iterator[list[Any]]:
        entry = engines.entry_or_default(name)
        rows = [gr.update(visible=each == set_for(entry)) for each in tab.sets]
        for choice in handlers.choose(name):
            yield [*_updates(choice, block_size), note_on(entry), holder(entry), *rows]

    def opening(request: gr.Request, name: Any, block_size: Any) -> Iterator[list[Any]]:
        linked, _ = live.linked(request.query_params)
        opens_with = linked.get("checkpoint", engines.default)
        if opens_with != built:  # its change is followed
            yield [opens_with, *[gr.skip()] * len(outputs)]
            return
        for updates in follow(name, block_size):
            yield [gr.skip(), *updates]

    def settle(request: gr.Request) -> None:
        handlers.settle(session_of(request))

    page.load(opening, inputs, [checkpoint, *outputs], **FOLLOWS)
    checkpoint.change(follow, inputs, outputs, trigger_mode="always_last", **FOLLOWS)
    checkpoint.input(settle, **AT_ONCE)


def _updates(choice: Choice, block_size: Any) -> list[Any]:
    """Notice, B, the switch beside it, footer and what a GPU holds."""
    footer = gr.skip() if choice.footer is None else choice.footer
    is_free = choice.depth > 1
    return [
        choice.notice,
        block_size_update(choice.depth, block_size),
        gr.update(visible=is_free) if is_free else gr.update(visible=False, value=False),
        footer,
        *[_held(info, is_here=choice.is_captured) for info in HELD.values()],
    ]


def _held(info: str, *, is_here: bool) -> Any:
    """A control of HELD, greyed out with the reason where its device holds it."""
    return gr.update(interactive=not is_here, info=HELD_HERE if is_here else info)
