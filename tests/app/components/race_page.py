"""A page of its own for the race view: Gradio streams prepared values, as the app would."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, zip_longest
from typing import Any

import gradio as gr

from app.server import FILES
from app.ui import assets
from app.ui.stream import RunLog
from app.ui.views import RaceView

Scene = Callable[[], Iterator[str]]
LAUNCHED: dict[str, Any] = {"head": assets.head(), "app_kwargs": {"middleware": [FILES]}}
"""How a page of components is launched: scripts in its document, plotly.js as the app has it."""


_numbers = count()


def head(run: str, lanes: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """The first line of a value; as on the page, no two runs have the same name."""
    titles = [{"lane": name, "title": title} for name, title in lanes.items()]
    return {"run": f"{run}-{next(_numbers)}", "lanes": titles, **more}


def interleaved(lanes: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """(lane, line) of all lanes by turns."""
    turns = zip_longest(*([(name, line) for line in lines] for name, lines in lanes.items()))
    return [pair for turn in turns for pair in turn if pair is not None]


def value(first: Mapping[str, Any], lines: Sequence[tuple[str, str]]) -> RunLog:
    """All lines as one value."""
    made = RunLog(first)
    for tag, line in lines:
        made.add(tag, line)
    return made


def streamed(
    first: Mapping[str, Any], lines: Sequence[tuple[str, str]], per_update: int, rest: float
) -> Iterator[str]:
    """The values of a run as they are sent, ``per_update`` lines at a time."""
    growing = RunLog(first)
    for begin in range(0, len(lines), per_update):
        for tag, line in lines[begin : begin + per_update]:
            growing.add(tag, line)
        yield growing.latest()
        time.sleep(rest)


def page(scenes: Mapping[str, Scene]) -> gr.Blocks:
    """One race view and a button for each scene."""
    with gr.Blocks(title="race view") as blocks:
        with gr.Row():
            buttons = {name: gr.Button(name, elem_id=f"play-{name}") for name in scenes}
        view = RaceView(elem_id="race")
        for name, button in buttons.items():
            button.click(scenes[name], outputs=view, show_progress="hidden", concurrency_limit=None)
    return blocks
