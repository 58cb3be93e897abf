"""How every tab joins its events to its handlers. Knows gradio's events; decides nothing itself.

Values are taken raw (``preprocess=False``), because the handlers judge every one of them and answer
with a sentence; what gradio's components check would end in their own words, or in none.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import gradio as gr

from app.controls import RefusalError
from app.serving.settings import AppSettings
from app.stream import TabHandlers, TabRun
from mars_runtime.serving.limits import address_of

IN_BROWSER: dict[str, Any] = {
    "queue": False,
    "show_progress": "hidden",
    "api_visibility": "private",
}
AT_ONCE: dict[str, Any] = {**IN_BROWSER, "preprocess": False}
STREAMED: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    "preprocess": False,
}
RUN = "run"
"""What gradio calls the events that decode, of whatever tab or endpoint."""
R = TypeVar("R", bound=TabRun[Any])
Field = gr.Textbox | gr.Slider | gr.Checkbox | gr.CheckboxGroup | gr.Dropdown | gr.Radio | gr.Number
"""A control: what a visitor types, moves or chooses."""


def wire_stream(
    page: gr.Blocks,
    handlers: TabHandlers[R],
    triggers: Sequence[Any],
    stop_button: gr.Button,
    inputs: Mapping[str, Field],
    view: gr.components.Component,
    js: str | None = None,
) -> None:
    """A visitor's runs of one tab: checked and streamed into ``view``, ended by Stop or by a closed
    tab. inputs: the controls by the names that the handlers know; js: what the browser does to
    their values first."""

    def named(values: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(inputs, values, strict=True))

    def check(*values: Any) -> list[dict[str, Any]]:
        refusal = handlers.check(named(values))
        at_fault = refusal.field if refusal else None
        return [gr.validate(name != at_fault, str(refusal or "")) for name in inputs]

    def run(request: gr.Request, *values: Any) -> Iterator[str]:
        yield from handlers.run(session_of(request), named(values), owner_of(request))

    def stop(request: gr.Request) -> None:
        handlers.stop(session_of(request))

    gr.on(
        triggers,
        run,
        inputs=list(inputs.values()),
        outputs=[view],
        js=js,
        validator=check,
        **run_queue(handlers.engines.settings),
        trigger_mode="multiple",
        **STREAMED,
    )
    stop_button.click(stop, **AT_ONCE)
    page.unload(stop)


def tell_prompt(box: Field, place: str) -> None:
    """Let the view of a place know what stands in its prompt's box (``views/page/page.js``)."""
    told = f"(prompt) => {{ window.mars.prompt({json.dumps(place)}, prompt); }}"
    box.change(None, [box], js=told, queue=False, api_visibility="private")


def session_of(request: gr.Request) -> str:
    """Whose event this is; a caller without a session gets one of its own."""
    return request.session_hash or uuid.uuid4().hex


def owner_of(request: gr.Request) -> str:
    """Among whom places are dealt out fairly: addresses, of which one may have many sessions."""
    client = request.client
    return address_of(client and (client.host, client.port))


def run_queue(settings: AppSettings) -> dict[str, Any]:
    """Room for every run that the engine would take and one more, which it answers itself."""
    limit = settings.max_runs + settings.max_waiting + 1
    return {"concurrency_id": RUN, "concurrency_limit": limit}


@contextmanager
def in_words() -> Iterator[None]:
    """Refusals reach the caller as their sentence, everything else as gradio's own."""
    try:
        yield
    except RefusalError as refusal:
        raise gr.Error(str(refusal), print_exception=False) from None
