"""Functions with which all tabs connect events to handlers.

Values are passed unvalidated (``preprocess=False``). The handlers validate them and return error
messages, because Gradio's own checks have other messages or none.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import gradio as gr

from app.engines.limits import RefusalError
from app.settings import AppSettings
from mars_runtime.serving.limits import address_of

_PRIVATE: dict[str, Any] = {
    "show_progress": "hidden",
    # Without this, Gradio redraws all controls.
    "show_progress_on": [],
    "api_visibility": "private",
}
IN_BROWSER: dict[str, Any] = {**_PRIVATE, "queue": False}
AT_ONCE: dict[str, Any] = {**IN_BROWSER, "preprocess": False}
STREAMED: dict[str, Any] = {**_PRIVATE, "preprocess": False}
RUN = "run"
"""Gradio's concurrency group for all events that decode."""
Field = gr.Textbox | gr.Slider | gr.Checkbox | gr.CheckboxGroup | gr.Dropdown | gr.Radio | gr.Number


def run_script(button: gr.Button, script: str) -> None:
    button.click(None, js=f"() => {{ {script}; }}", api_visibility="private")


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


def wire_steering(
    steer: Callable[[str, dict[str, Any]], None],
    controls: Mapping[str, Field],
    settled: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Apply changed controls to the visitor's run. All changes are one event, so that they arrive
    in their order. settled: events of controls that first change other controls, by control.
    """

    def moved(request: gr.Request, *values: Any) -> None:
        with errors_as_messages():
            steer(session_of(request), dict(zip(controls, values, strict=True)))

    inputs = list(controls.values())
    triggers = [control.input for name, control in controls.items() if name not in settled]
    gr.on(triggers, moved, inputs, trigger_mode="always_last", **AT_ONCE)
    for event in settled.values():
        event.then(moved, inputs, **AT_ONCE)


def session_of(request: gr.Request) -> str:
    """Return the session of a request. A client without a session gets a new one."""
    return request.session_hash or uuid.uuid4().hex


def owner_of(request: gr.Request) -> str:
    """Return the client's address. Slots are shared fairly among addresses, not sessions."""
    client = request.client
    return address_of(client and (client.host, client.port))


def run_queue(settings: AppSettings) -> dict[str, Any]:
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
