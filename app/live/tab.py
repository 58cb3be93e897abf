"""The Live tab: its components, their layout and their events.

Links work in the browser (``assets/web/views/page``). Views can also start runs, with the event
``submit`` of the race view: a script sets the controls and a hidden field with the request, then
one server event runs it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from app.engines.engines import Engines
from app.live.lanes import LiveHandlers, offer
from app.live.order import LINKS, ORDERED, POSTED, SET_BY_VIEW, SHARED, STEERED, STORED
from app.live.shared_runs import read_shared
from app.ui.checkpoints import CheckpointHandlers
from app.ui.controls import DEFAULTS, RACE, SHOWN, TITLES
from app.ui.examples import TASKS, ExampleBook, is_too_hard, set_for
from app.ui.fields import (
    TEXTS,
    block_size_field,
    block_size_update,
    max_tokens_field,
    setting_field,
    system_field,
)
from app.ui.files import file_address
from app.ui.recordings import Recording
from app.ui.views import Answer, ConversationView, ExplainView, RaceView
from app.ui.wiring import (
    AT_ONCE,
    IN_BROWSER,
    Field,
    owner_of,
    pass_prompt_to_view,
    run_script,
    session_of,
    wire_memory,
    wire_steering,
)  # fmt: skip
from mars_runtime.model.registry import Entry

KNOWS_TASKS = "{} can only do tasks like these. Other prompts give nonsense."
KNOWS_LANGUAGE = "This small model often gets facts wrong."
ASK = f"(...values) => window.mars.runValues({json.dumps(ORDERED)}, values)"
"""Script that runs when Run is pressed. It posts the page's conversation with the controls, or the
run that a view requests.
"""
FIRST_EXAMPLES = 4
"""Number of examples below the prompt. The others are under "More examples"."""
SETTINGS_DO = (
    '<p class="if-lossless">Each pass also verifies the drafts of the pass before, so the text is '
    "AR’s, token for token. τ: how sure a draft must be to be tried. B: most tokens proposed in a "
    "pass.</p>"
    '<p class="if-unverified">A pass writes its first token as AR does, and the next ones while '
    "their confidence is at least τ. "
    "A lower τ takes fewer passes and makes more mistakes. B: most tokens proposed in a pass.</p>"
)
"""What the settings do in each mode. The style sheet shows the paragraph of the chosen mode."""
RUN_EXAMPLE = "() => { document.getElementById('run').click() }"


@dataclass
class LiveTab:
    controls: dict[str, Field] = field(default_factory=dict)
    sets: dict[str, gr.Column] = field(default_factory=dict)
    chips: dict[str, gr.Button] = field(default_factory=dict)
    buttons: dict[str, gr.Button] = field(default_factory=dict)
    prompt: gr.Textbox = field(init=False)
    conversation: ConversationView = field(init=False)
    race: RaceView = field(init=False)
    remark: gr.Markdown = field(init=False)
    nearest: gr.Button = field(init=False)
    notice: gr.Markdown = field(init=False)
    examples: gr.Markdown = field(init=False)


def live_tab(live: LiveHandlers, first: Recording | None) -> LiveTab:
    tab, engines = LiveTab(), live.engines
    with gr.Column(elem_id="live"):
        with gr.Column(elem_id="desk"):
            _prompt(tab, engines, live.book)
            _examples(tab, engines, live.book)
            with gr.Row(elem_id="controls"):
                _controls(tab, engines)
            with gr.Row(elem_id="says"):
                gr.HTML(SETTINGS_DO, elem_id="settings-do", padding=False)
                # The speed of the player sets this field.
                tab.controls["pace"] = gr.Number(0, visible="hidden", elem_id="pace")
        tab.race = RaceView(
            *(first.value if first else "", file_address("replay.html")),
            opens=True,
            missed=live.logs.missed,
            asks=[answer_links(engines.settings.max_import_bytes)],
            elem_id="race",
        )
        opens_with = engines.entry(engines.default)
        tab.conversation = ConversationView(
            conversation_checkpoint(opens_with), elem_id="conversation"
        )
        with gr.Accordion("How it works", open=False, elem_id="how-it-works"):
            ExplainView(elem_id="explain")
    return tab


def answer_links(max_chars: int) -> Answer:

    def shared(posted: Any, request: gr.Request) -> Any:
        return read_shared(posted, owner_of(request), max_chars)

    return shared


def _prompt(tab: LiveTab, engines: Engines, book: ExampleBook) -> None:
    opens_with = engines.entry(engines.default)
    chosen, families = set_for(opens_with), book.families
    with gr.Row(elem_id="ask"):
        tab.prompt = tab.controls["prompt"] = gr.Textbox(
            label="Prompt",
            value=book.prompt(next(iter(families[chosen])), 0),
            placeholder="Type a prompt or pick an example",
            lines=2,
            max_lines=6,
            elem_id="prompt",
        )
        with gr.Row(elem_id="go"):
            # The style sheet shows one of the two.
            tab.buttons["run"] = gr.Button("Run", variant="primary", elem_id="run", min_width=0)
            tab.buttons["stop"] = gr.Button("Stop", elem_id="stop", min_width=0)
            # The Share menu of the race view clicks this hidden button and shows the result.
            tab.buttons["share"] = gr.Button("Copy link", elem_id="share", visible="hidden")


def _examples(tab: LiveTab, engines: Engines, book: ExampleBook) -> None:
    opens_with = engines.entry(engines.default)
    chosen, families = set_for(opens_with), book.families
    with gr.Row(elem_id="examples"):
        for family, labels in families.items():
            with gr.Row(visible=family == chosen, elem_classes="examples") as tab.sets[family]:
                names = list(labels)
                _chips(tab, labels, names[:FIRST_EXAMPLES])
                with gr.Accordion("More examples", open=False, elem_classes="pop-up"):
                    _chips(tab, labels, names[FIRST_EXAMPLES:])
        tab.nearest = gr.Button("", visible=False, size="sm", elem_id="nearest")
        tab.examples = gr.Markdown(note_on(opens_with), elem_id="note")
        tab.remark = gr.Markdown("", elem_id="remark")


def _chips(tab: LiveTab, labels: Mapping[str, str], names: Sequence[str]) -> None:
    for name in names:
        classes = ["chip", "hard"] if is_too_hard(name) else ["chip"]
        chip = gr.Button(labels[name], size="sm", min_width=0, elem_classes=classes)
        tab.chips[name] = chip


def _controls(tab: LiveTab, engines: Engines) -> None:
    opens_with, controls = engines.entry(engines.default), tab.controls
    controls["lossless"] = gr.Radio(
        TEXTS, value=DEFAULTS.lossless, label="Text", elem_id="lossless", elem_classes="segments"
    )
    controls["tau"] = setting_field("tau", "tau")
    controls["block_size"] = block_size_field(opens_with.block_size, "block_size", has_auto=True)
    controls["view"] = gr.CheckboxGroup(
        [(title, name) for name, title in TITLES.items()],
        value=list(RACE),
        label="Lanes",
        elem_id="view",
        elem_classes="segments",
    )
    controls["checkpoint"] = gr.Dropdown(
        list(engines.entries), value=engines.default, label="Model", elem_id="checkpoint"
    )
    with gr.Accordion("More", open=False, elem_id="more", elem_classes="pop-up"):
        _more(tab, engines)


def _more(tab: LiveTab, engines: Engines) -> None:
    controls = tab.controls
    opens_with = engines.entry(engines.default)
    tab.notice = gr.Markdown(opens_with.in_words, elem_id="notice")
    controls["system"] = system_field(opens_with.system)
    most = engines.settings.max_new_tokens
    controls["max_new_tokens"] = max_tokens_field("", DEFAULTS.max_new_tokens, most)
    for name in SHOWN:
        if name not in controls:
            controls[name] = setting_field(name, name)
    run_script(gr.Button("Reset the page", size="sm", elem_id="reset"), "window.mars.reset()")


def conversation_checkpoint(entry: Entry) -> str:
    return "" if set_for(entry) == TASKS else entry.name


def note_on(entry: Entry) -> str:
    return KNOWS_TASKS.format(entry.name) if set_for(entry) == TASKS else KNOWS_LANGUAGE


def wire_live(page: gr.Blocks, tab: LiveTab, handlers: LiveHandlers) -> None:
    _wire_run(page, tab, handlers)
    _wire_view_runs(tab)
    mode = [tab.controls[name] for name in ("lossless", "tau")]
    script = "(isLossless, tau) => window.mars.tauAfter(isLossless, tau)"
    chosen = mode[0].input(None, mode, mode[1:], js=script, **IN_BROWSER)
    steered = {name: tab.controls[name] for name in STEERED}
    wire_steering(handlers.steer, steered, {"lossless": chosen})
    _wire_examples(tab, handlers.book)
    _wire_nearest(tab, handlers)
    pass_prompt_to_view(tab.prompt, "live")


def _wire_run(page: gr.Blocks, tab: LiveTab, handlers: LiveHandlers) -> None:
    stored = {name: gr.Textbox(visible="hidden", elem_id=name) for name in STORED}
    triggers = [tab.buttons["run"].click, tab.prompt.submit]
    inputs = {**{name: tab.controls[name] for name in POSTED}, **stored}

    def decode(session: str, values: Mapping[str, Any], owner: str) -> Iterator[tuple[Any, Any]]:
        remark: Any = handlers.remark(values["prompt"], values["checkpoint"])
        for value in handlers.run(session, values, owner):
            yield value, remark
            remark = gr.skip()

    outputs = [tab.race, tab.remark]
    handlers.wire(page, triggers, tab.buttons["stop"], inputs, outputs, decode, js=ASK)


def _wire_view_runs(tab: LiveTab) -> None:
    """When a view requests or shows a run, set the controls to its values, then press Run for a
    requested one.
    """
    controls = [tab.controls[name] for name in SET_BY_VIEW]
    script = f"(...now) => window.mars.valuesOfRun({json.dumps(SET_BY_VIEW)}, now)"
    tab.race.submit(None, controls, controls, js=script, **IN_BROWSER).then(
        None, js="() => window.mars.runRequested()", api_visibility="private"
    )


def _wire_examples(tab: LiveTab, book: ExampleBook) -> None:
    numbers = gr.State({})  # number of the visitor's latest example, by family
    for family, chip in tab.chips.items():

        def another(counts: dict[str, int], family: str = family) -> str:
            number = counts[family] = counts.get(family, -1) + 1
            return book.prompt(family, number)

        chip.click(another, [numbers], [tab.controls["prompt"]], **AT_ONCE).then(
            None, js=RUN_EXAMPLE, api_visibility="private"
        )


def _wire_nearest(tab: LiveTab, handlers: LiveHandlers) -> None:
    """Suggest the most similar known task while the visitor types a prompt, if the checkpoint can
    only solve known types of tasks.
    """
    prompt, checkpoint = tab.controls["prompt"], tab.controls["checkpoint"]

    def suggest(typed: Any, name: Any) -> Any:
        task = handlers.nearest(typed, name)
        return gr.update(value=offer(task), visible=True) if task else gr.update(visible=False)

    gr.on(
        [prompt.change, checkpoint.change],
        suggest,
        [prompt, checkpoint],
        [tab.nearest],
        trigger_mode="always_last",
        **AT_ONCE,
    )
    tab.nearest.click(handlers.nearest, [prompt, checkpoint], [prompt], **AT_ONCE)


def wire_links(
    page: gr.Blocks, tab: LiveTab, handlers: LiveHandlers, checkpoints: CheckpointHandlers
) -> None:
    """Wire the button that copies a link, and restore the controls when the page opens.

    A page that was opened with a link gets the values of the link. A reloaded page gets the values
    it had before.
    """
    space = os.environ.get("SPACE_ID", "")
    base = json.dumps(f"https://huggingface.co/spaces/{space}" if space else "")
    controls = [tab.controls[name] for name in SHARED]
    words = [LINKS.get(name, name) for name in SHARED]
    tab.buttons["share"].click(
        None,
        controls,
        [tab.remark],
        js=f"(...values) => window.mars.share({base}, {json.dumps(words)}, values)",
        **IN_BROWSER,
    )

    wire_memory(page, "live", dict(zip(SHARED, controls, strict=True)))

    before = gr.Textbox(visible="hidden")

    def follow(before: str, request: gr.Request) -> list[Any]:
        if before:
            checkpoints.settle(session_of(request))
            return [gr.skip()] * (len(SHARED) + 1)
        values, sentence = handlers.linked(request.query_params)
        updates = {name: gr.update(value=value) for name, value in values.items()}
        if "checkpoint" in values:
            checkpoints.settle(session_of(request))
            if "block_size" in values:
                depth = handlers.engines.limits(values["checkpoint"]).block_size
                updates["block_size"] = block_size_update(
                    depth, values["block_size"], has_auto=True
                )
        return [*(updates.get(name, gr.skip()) for name in SHARED), sentence or gr.skip()]

    page.load(
        follow,
        [before],
        [*controls, tab.remark],
        js="() => [window.mars.checkpointBefore()]",
        **IN_BROWSER,
    )
