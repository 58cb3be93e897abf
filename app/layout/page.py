"""The page: which components there are and where they stand.

Decides nothing and draws nothing: ``wiring.py`` joins events to handlers, components draw.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import gradio as gr

from app.components.race_view import RaceView
from app.controls import DEFAULTS, MAX_PACE, RACE, VIEWS
from app.examples import TASKS, is_too_hard
from app.handlers import PRESETS, Handlers, preset_of
from app.layout.arrival import wire_arrival
from app.layout.asks import wire_asks, wire_links
from app.layout.batch_tab import batch_tab
from app.layout.checkpoint import block_size_slider, note_on, time_words, wire_checkpoint
from app.layout.compare_tab import compare_tab
from app.layout.endpoints import wire_endpoints
from app.layout.explain_tab import explain_tab, present_button
from app.layout.grid_tab import grid_tab
from app.layout.replays import shell_address
from app.layout.wiring import preset_classes, wire
from app.replay.recordings import Recording

SMALL_PACE = 20
GROUPS = {"one": "after the last draft", "every": "after every draft"}
METRICS = {"probability": "probability", "margin": "top-2 margin", "entropy": "entropy"}


@dataclass
class LiveTab:
    """The components of the Live tab that events read or write."""

    controls: dict[str, gr.components.Component] = field(default_factory=dict)
    sets: dict[str, gr.Row] = field(default_factory=dict)
    chips: dict[str, gr.Button] = field(default_factory=dict)
    presets: dict[str, gr.Button] = field(default_factory=dict)
    buttons: dict[str, gr.Button] = field(default_factory=dict)
    race: RaceView | None = None
    remark: gr.Markdown | None = None
    notice: gr.Markdown | None = None
    examples: gr.Markdown | None = None
    time: gr.Markdown | None = None


def build(handlers: Handlers, first: Recording | None = None) -> gr.Blocks:
    """The whole page, wired. ``first`` is shown until a visitor runs something."""
    with gr.Blocks(
        title="MARS live", analytics_enabled=False, delete_cache=(3600, 3600), fill_width=True
    ) as page:
        with gr.Row(elem_id="top"):
            gr.Markdown(
                "# MARS live\n\nSeveral tokens per forward pass, from one ordinary checkpoint.",
                elem_id="masthead",
            )
            present_button()
        arriving = gr.Markdown("", elem_id="arrival")
        with gr.Tabs():
            with gr.Tab("Live"):
                tab = _live_tab(handlers, first)
            with gr.Tab("Batch", elem_id="batch-tab"):
                batch_tab(page, handlers, tab.controls["checkpoint"])
            with gr.Tab("Grid", elem_id="grid-tab"):
                grid_tab(page, handlers, tab.controls)
            with gr.Tab("Compare", elem_id="compare-tab"):
                compare_tab(handlers)
            with gr.Tab("How it works"):
                explain_tab()
        footer = gr.Markdown(f"Loading {handlers.engines.default}…", elem_id="footer")
        wire(page, tab, handlers)
        wire_checkpoint(page, tab, footer, handlers)
        wire_arrival(page, tab, arriving, handlers)
        wire_endpoints(handlers)
        wire_asks(tab, handlers)
        wire_links(page, tab, handlers)
    return page


def _live_tab(handlers: Handlers, first: Recording | None) -> LiveTab:
    tab = LiveTab()
    with gr.Row(elem_id="live"):
        with gr.Column(scale=0, min_width=340, elem_id="desk"):
            _model(tab, handlers)
            _prompt(tab, handlers, first)
            with gr.Column(elem_id="knobs"):
                _knobs(tab, handlers)
            with gr.Row(elem_id="presets"):
                chosen = preset_of(DEFAULTS.tau, DEFAULTS.lossless)
                for name in PRESETS:
                    classes = preset_classes(name == chosen)
                    tab.presets[name] = gr.Button(name, size="sm", elem_classes=classes)
            tab.controls["lossless"] = gr.Checkbox(
                DEFAULTS.lossless,
                label="Lossless: only what AR would write",
                elem_id="lossless",
            )
            with gr.Accordion("More", open=False, elem_id="more"):
                _more(tab, handlers)
        with gr.Column(scale=1, min_width=300, elem_id="stage"):
            value = first.value if first else ""
            tab.race = RaceView(
                value, shell_address(), missed=handlers.feeds.missed, elem_id="race"
            )
    return tab


def _model(tab: LiveTab, handlers: Handlers) -> None:
    tab.controls["checkpoint"] = gr.Dropdown(
        list(handlers.engines.entries),
        value=handlers.engines.default,
        label="Model",
        elem_id="checkpoint",
    )
    tab.notice = gr.Markdown("", elem_id="notice")


def _prompt(tab: LiveTab, handlers: Handlers, first: Recording | None) -> None:
    chosen = handlers.examples_of(handlers.engines.default)
    families = handlers.book.families
    tab.controls["prompt"] = gr.Textbox(
        label="Prompt · Ctrl+Enter runs, Escape stops",
        value=first.prompt if first else handlers.example(next(iter(families[chosen])), 0),
        placeholder="Type a prompt or choose an example",
        lines=4,
        max_lines=8,
        elem_id="prompt",
    )
    tab.remark = gr.Markdown("", elem_id="remark")
    tab.examples = gr.Markdown(note_on(handlers, handlers.engines.default), elem_id="examples")
    for each, labels in families.items():
        with gr.Row(visible=each == chosen, elem_classes="chips") as tab.sets[each]:
            for name, label in labels.items():
                classes = ["chip", "hard"] if is_too_hard(name) else ["chip"]
                tab.chips[name] = gr.Button(label, size="sm", min_width=0, elem_classes=classes)


def _knobs(tab: LiveTab, handlers: Handlers) -> None:
    depth = handlers.engines.entries[handlers.engines.default].block_size
    is_small = handlers.examples_of(handlers.engines.default) == TASKS
    pace = SMALL_PACE if is_small else 0  # until the checkpoint has been timed
    tab.controls["tau"] = gr.Slider(
        0, 1, DEFAULTS.tau, step=0.01, label="τ threshold", elem_id="tau", buttons=[]
    )
    tab.controls["block_size"] = block_size_slider(depth, "block_size")
    tab.controls["auto"] = gr.Checkbox(False, label="auto", elem_id="auto")
    tab.controls["pace"] = gr.Slider(
        0, MAX_PACE, pace, step=1, label="slow motion", elem_id="pace", buttons=[]
    )
    tab.time = gr.Markdown(time_words(pace), elem_id="time")
    with gr.Row(elem_id="go"):
        tab.buttons["run"] = gr.Button("Run", variant="primary", elem_id="run", min_width=0)
        tab.buttons["stop"] = gr.Button("Stop", elem_id="stop", min_width=0)
        tab.buttons["share"] = gr.Button("Copy link", elem_id="share", min_width=0)


def _more(tab: LiveTab, handlers: Handlers) -> None:
    controls, settings = tab.controls, handlers.settings
    controls["view"] = gr.Radio(
        [(title, name) for name, title in VIEWS.items()],
        value=RACE,
        label="What to run",
        elem_id="view",
    )
    controls["groups"] = gr.Radio(
        [(title, name) for name, title in GROUPS.items()],
        value=DEFAULTS.groups,
        label="Masks in lossless runs",
        elem_id="groups",
    )
    controls["lookup"] = gr.Checkbox(
        DEFAULTS.lookup,
        label="Prompt lookup: draft what followed before, in lossless runs",
        elem_id="lookup",
    )
    controls["metric"] = gr.Radio(
        [(title, name) for name, title in METRICS.items()],
        value=DEFAULTS.metric,
        label="Confidence that τ is held against",
        elem_id="metric",
    )
    controls["max_new_tokens"] = gr.Slider(
        1,
        settings.max_new_tokens,
        min(DEFAULTS.max_new_tokens, settings.max_new_tokens),
        step=1,
        label="Max tokens",
        elem_id="max_new_tokens",
        buttons=[],
    )
    controls["temperature"] = gr.Slider(
        0,
        2,
        0,
        step=0.05,
        label="Temperature",
        info="0 is greedy.",
        elem_id="temperature",
        buttons=[],
    )
    controls["seed"] = gr.Number(
        0, precision=0, label="Seed", info="Matters only at a temperature above 0.", elem_id="seed"
    )
