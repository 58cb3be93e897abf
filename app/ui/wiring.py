"""Functions with which all tabs connect events to handlers.

Values are passed unvalidated (``preprocess=False``). The handlers validate them and return error
messages, because Gradio's own checks have other messages or none.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import gradio as gr

from app.engines.limits import RefusalError
from app.settings import AppSettings
from app.ui.stream import TabHandlers, TabRun
from mars_runtime.serving.limits import address_of

_PRIVATE: dict[str, Any] = {
    "show_progress": "hidden",
    # Without this, Gradio redraws all controls and removes their error messages.
    "show_progress_on": [],
    "api_visibility": "private",
}
IN_BROWSER: dict[str, Any] = {**_PRIVATE, "queue": False}
AT_ONCE: dict[str, Any] = {**IN_BROWSER, "preprocess": False}
STREAMED: dict[str, Any] = {**_PRIVATE, "preprocess": False}
RUN = "run"
"""Gradio's concurrency group for all events that decode."""
R = TypeVar("R", bound=TabRun[Any])
Decode = Callable[[str, Mapping[str, Any], str], Iterator[Any]]
"""Function that starts a run. It is called with a session, the values of the controls and an owner,
and yields growing values of the outputs.
"""
Field = gr.Textbox | gr.Slider | gr.Checkbox | gr.CheckboxGroup | gr.Dropdown | gr.Radio | gr.Number


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
    """Wire the runs of one tab: validation, streaming, and cancelling by Stop or when the page is
    closed.

    inputs: controls by the names that the handlers use.
    outputs: components whose values ``decode`` yields; for ``handlers.run``, only the tab's view.
    js: script that changes the posted values in the browser.

    The error message of a control disappears when an event that reads the control returns.
    Therefore an event that reacts to typing in the prompt must read a copy of the prompt.
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

    # async, so that it runs in the event loop. In a thread, a delayed Stop could end the next run.
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


def pass_prompt_to_view(box: Field, place: str) -> None:
    """Send each change of a prompt box to the view of its tab (``views/page/page.js``). place: the
    tab's name.
    """
    script = f"(prompt) => {{ window.mars.prompt({json.dumps(place)}, prompt); }}"
    box.change(None, [box], js=script, queue=False, api_visibility="private")


def wire_memory(page: gr.Blocks, place: str, controls: Mapping[str, Field]) -> None:
    """Restore the controls of a tab after a reload of the page (``views/page/memory.js``). place:
    the tab's name in the browser's storage.
    """
    inputs, arguments = (
        list(controls.values()),
        json.dumps(place) + ", " + json.dumps(list(controls)),
    )
    for triggers, function in (
        ([control.change for control in inputs], "remember"),
        ([page.load], "restore"),
    ):
        gr.on(
            triggers,
            None,
            inputs,
            inputs if function == "restore" else None,
            js=f"(...values) => window.mars.{function}({arguments}, values)",
            **IN_BROWSER,
        )


def session_of(request: gr.Request) -> str:
    """Return the session of a request. A client without a session gets a new one."""
    return request.session_hash or uuid.uuid4().hex


def owner_of(request: gr.Request) -> str:
    """Return the client's address. Slots are shared fairly among addresses, not sessions."""
    client = request.client
    return address_of(client and (client.host, client.port))


def run_queue(settings: AppSettings) -> dict[str, Any]:
    """Return the limits of Gradio's queue for runs: as many runs as the engine accepts, plus one
    that the engine rejects with its own message.
    """
    limit = settings.max_runs + settings.max_waiting + 1
    return {"concurrency_id": RUN, "concurrency_limit": limit}


@contextmanager
def errors_as_messages() -> Iterator[None]:
    """Turn a RefusalError into an error message for the client. Other exceptions get Gradio's own
    message.
    """
    try:
        yield
    except RefusalError as refusal:
        raise gr.Error(str(refusal), print_exception=False) from None
