"""Joins the checkpoint that is on its way to the page: a line on it, and the change to it.

Asks once a second as long as there is anything to hear. Decides nothing itself.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from app.layout.wiring import AT_ONCE, Field, session_of
from app.serving.checkpoints import CheckpointHandlers
from app.serving.engines import Engines

SECONDS = 1.0


def wire_arrival(
    page: gr.Blocks,
    checkpoint: Field,
    line: gr.Markdown,
    handlers: CheckpointHandlers,
    engines: Engines,
) -> None:
    """``line`` says how far it is; once it is there, it is put in place for who has not chosen."""
    clock = gr.Timer(SECONDS, active=engines.arrival() is not None)

    def look(request: gr.Request) -> tuple[str, Any, Any]:
        found = handlers.arrival(session_of(request))
        change = gr.skip() if found.checkpoint is None else found.checkpoint
        return found.sentence, gr.Timer(active=not found.is_over), change

    def leave(request: gr.Request) -> None:
        handlers.leave(session_of(request))

    clock.tick(look, None, [line, clock, checkpoint], **AT_ONCE)
    page.unload(leave)
