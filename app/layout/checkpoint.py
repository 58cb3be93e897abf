"""Joins the choice of a checkpoint to what depends on it: B, slow motion, examples, the footer.

Whoever changes it (the visitor, a link, its arrival), the same follows. Decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import gradio as gr

from app.controls import DEFAULTS
from app.examples import TASKS
from app.handlers import Choice, Handlers
from app.layout.wiring import AT_ONCE, session_of

if TYPE_CHECKING:
    from app.layout.page import LiveTab

REAL_TIME, SLOW_MOTION = "Real time", "Slow motion, {} times slower"
TELL_TIME = (
    f"pace => pace > 0 ? '{SLOW_MOTION}'.replace('{{}}', Math.round(pace) + 1) : '{REAL_TIME}'"
)
KNOWS_TASKS = "{} knows only tasks like these; to anything else it answers nonsense."
KNOWS_LANGUAGE = "Requests to try. A model this small gets many facts and most sums wrong."
FOLLOWS: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    "preprocess": False,
}


def wire_checkpoint(page: gr.Blocks, tab: LiveTab, footer: gr.Markdown, handlers: Handlers) -> None:
    """Everything that follows a checkpoint, when it changes and when the page is opened."""
    controls = tab.controls
    checkpoint = controls["checkpoint"]
    built = handlers.engines.default
    inputs = [checkpoint, controls["block_size"]]
    outputs = [
        tab.notice, controls["block_size"], controls["auto"], controls["pace"], footer,
        tab.examples, *tab.sets.values(),
    ]  # fmt: skip

    def follow(name: Any, block_size: Any) -> Iterator[list[Any]]:
        shown = handlers.examples_of(name)
        rows = [gr.update(visible=each == shown) for each in tab.sets]
        for choice in handlers.choose(name):
            yield [*_updates(choice, block_size), note_on(handlers, name), *rows]

    def opening(request: gr.Request, name: Any, block_size: Any) -> Iterator[list[Any]]:
        linked, _ = handlers.follow(request.query_params)
        opens_with = linked.get("checkpoint", handlers.engines.default)
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
    controls["pace"].change(None, [controls["pace"]], [tab.time], js=TELL_TIME, **FOLLOWS)


def _updates(choice: Choice, block_size: Any) -> list[Any]:
    """Notice, B, the switch beside it, slow motion and footer."""
    pace = gr.skip() if choice.pace is None else choice.pace
    footer = gr.skip() if choice.footer is None else choice.footer
    is_free = choice.depth > 1
    return [
        choice.notice,
        block_size_update(choice.depth, block_size),
        gr.update(visible=is_free) if is_free else gr.update(visible=False, value=False),
        pace,
        footer,
    ]


def block_size_slider(depth: int, elem_id: str) -> gr.Slider:
    """B from 1 to the trained depth; one that writes one token per forward has no choice."""
    return gr.Slider(
        **_range(depth, DEFAULTS.num_proposals),
        step=1,
        label="B proposals",
        elem_id=elem_id,
        buttons=[],
    )


def block_size_update(depth: int, block_size: Any) -> Any:
    """The slider of B for another depth; what was chosen stays where it fits."""
    return gr.update(**_range(depth, block_size))


def _range(depth: int, block_size: Any) -> dict[str, Any]:
    is_whole = isinstance(block_size, (int, float)) and not isinstance(block_size, bool)
    chosen = block_size if is_whole else DEFAULTS.num_proposals
    # A slider whose ends are equal breaks the page, so one without a choice is hidden.
    return {
        "minimum": 1,
        "maximum": max(depth, 2),
        "value": min(chosen, depth),
        "visible": depth > 1,
    }


def time_words(pace: int) -> str:
    """Which time a run is shown in; a rest of N forwards after each makes it N + 1 times slower."""
    return SLOW_MOTION.format(pace + 1) if pace else REAL_TIME


def note_on(handlers: Handlers, checkpoint: Any) -> str:
    """What to expect of a checkpoint, above its examples."""
    is_bound = handlers.examples_of(checkpoint) == TASKS
    return KNOWS_TASKS.format(checkpoint) if is_bound else KNOWS_LANGUAGE
