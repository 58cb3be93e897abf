"""How every tab joins its events to its handlers. Knows gradio's events; decides nothing itself.

Values are taken raw (``preprocess=False``), because the handlers judge every one of them and answer
with a sentence; what gradio's components check would end in their own words, or in none.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import gradio as gr

from app.controls import RefusalError
from app.serving.settings import AppSettings
from app.stream import TabHandlers, TabRun
from mars_runtime.serving.limits import address_of

_PRIVATE: dict[str, Any] = {
    "show_progress": "hidden",
    # With each answer gradio draws the progress of all controls anew, and without what refuses one.
    "show_progress_on": [],
    "api_visibility": "private",
}
IN_BROWSER: dict[str, Any] = {**_PRIVATE, "queue": False}
AT_ONCE: dict[str, Any] = {**IN_BROWSER, "preprocess": False}
STREAMED: dict[str, Any] = {**_PRIVATE, "preprocess": False}
RUN = "run"
"""What gradio calls the events that decode, of whatever tab or endpoint."""
R = TypeVar("R", bound=TabRun[Any])
Decode = Callable[[str, Mapping[str, Any], str], Iterator[Any]]
"""What begins a run: a session, the controls and an owner -> what the outputs show, growing."""
Field = gr.Textbox | gr.Slider | gr.Checkbox | gr.CheckboxGroup | gr.Dropdown | gr.Radio | gr.Number
"""A control: what a visitor types, moves or chooses."""


def wire_stream(
    page: gr.Blocks,
    handlers: TabHandlers[R],
    triggers: Sequence[Any],
    stop_button: gr.Button,
    inputs: Mapping[str, Field],
    outputs: Sequence[gr.components.Component],
    decode: Decode | None = None,
    js: str | None = None,
) -> None:
    """A visitor's runs of one tab: checked and streamed, ended by Stop or by a closed tab.

    inputs: the controls by the names that the handlers know; outputs: what ``decode`` yields
    values of, the tab's view alone where it is ``handlers.run``; js: what the browser does to the
    controls' values first. A refusal stands at its control until an event answers that reads that
    control too, so what follows a prompt as it is typed reads a copy.
    """
    decode = decode or handlers.run

    def named(values: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(inputs, values, strict=True))

    def check(*values: Any) -> list[dict[str, Any]]:
        refusal = handlers.check(named(values))
        at_fault = refusal.field if refusal else None
        return [gr.validate(name != at_fault, str(refusal or "")) for name in inputs]

    def run(request: gr.Request, *values: Any) -> Iterator[Any]:
        yield from decode(session_of(request), named(values), owner_of(request))

    # In the event loop: in a thread of its own a late Stop would end the run that began after it.
    async def stop(request: gr.Request) -> None:
        handlers.stop(session_of(request))

    gr.on(
        triggers,
        run,
        inputs=list(inputs.values()),
        outputs=list(outputs),
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
