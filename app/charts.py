"""Pure: traces to plotly figures as plain Python values (``{"data": [...], "layout": {...}}``).

For pictures that stand still: reports, exports, tests. The live charts of the page draw the same
three pictures from the same lines in ``assets/race_view/chart_specs.js``; both take their colours
from ``tokens.css``. Knows no gradio, torch, plotly package or model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from mars_runtime.events import RowStep
from mars_runtime.folds import SettingsMove, row_steps, tau_moves, timeline
from mars_runtime.trace import Trace

Theme = Literal["light", "dark"]
Figure = dict[str, Any]
TOKENS = Path(__file__).resolve().parents[1] / "assets" / "common" / "tokens.css"
RAMP_STEPS = 5


@cache
def palette(theme: Theme = "light") -> Mapping[str, str]:
    """Name -> value of the style sheet's variables, the dark ones over the light ones."""
    light, dark = TOKENS.read_text("utf-8").split(".dark .mars-race", 1)
    values = _variables(light)
    return values if theme == "light" else values | _variables(dark)


def bar_colour(num_tokens: int, theme: Theme = "light") -> str:
    """The colour of a forward that took so many tokens: the ramp of the text, one token grey."""
    name = "bar-1" if num_tokens <= 1 else f"ramp-{min(num_tokens, RAMP_STEPS)}"
    return palette(theme)[name]


def forwards_figure(trace: Trace, theme: Theme = "light") -> Figure:
    """Tokens accepted by each forward, with a vertical mark wherever tau or B moved."""
    counts = [len(step.accepted) for step in _steps(trace)]
    bars = {
        "type": "bar",
        "x": list(range(1, len(counts) + 1)),
        "y": counts,
        "marker": {
            "color": [bar_colour(count, theme) for count in counts],
            "line": {"color": palette(theme)["mars"], "width": 0.5},
        },
        "hovertemplate": "forward %{x}: %{y} tokens<extra></extra>",
    }
    highest = max(counts, default=1)
    layout = _layout(theme, "forward", "tokens accepted")
    layout["xaxis"]["showgrid"] = False
    layout["yaxis"] |= {"tickmode": "linear", "dtick": 1 if highest <= 4 else 2}
    layout["bargap"] = 0.16
    return {"data": [bars], "layout": layout | _move_marks(trace, theme)}


def confidence_figure(trace: Trace, theme: Theme = "light") -> Figure:
    """Confidence of every accepted token, of the first one refused, and the threshold in force."""
    steps = _steps(trace)
    accepted = [
        (index, proposal.confidence)
        for index, step in enumerate(steps, 1)
        for proposal in step.proposals[: len(step.accepted)]
    ]
    refused = [
        (index, step.proposals[place].confidence)
        for index, step in enumerate(steps, 1)
        if step.stop == "threshold"
        and (place := len(step.accepted) + step.num_drafted) < len(step.proposals)
    ]
    threshold = [
        (index, step.settings.tau)
        for index, step in enumerate(steps, 1)
        if step.settings.method != "ar"
    ]
    warm = palette(theme)["warm"]
    dashes = {"type": "scatter", "mode": "markers"}
    line = {"color": warm, "dash": "dash", "width": 1.5, "shape": "hvh"}
    data = [
        {
            **dashes,
            "name": "accepted",
            **_points(accepted),
            "marker": _dash(palette(theme)["mars"]),
        },
        {**dashes, "name": "first refused", **_points(refused), "marker": _dash(warm)},
        {"type": "scatter", "mode": "lines", "name": "τ", **_points(threshold), "line": line},
    ]
    metric = steps[-1].settings.metric if steps else "probability"
    layout = _layout(theme, "forward", metric)
    layout["yaxis"] |= {"range": [-0.03, 1.06], "tickmode": "linear", "dtick": 0.5}
    return {"data": data, "layout": layout | _move_marks(trace, theme)}


def time_figure(traces: Mapping[str, Trace], theme: Theme = "light") -> Figure:
    """Tokens against measured seconds, one line per trace, named where it ends.

    traces: name -> trace. Clocks start when the prompt has been read and leave out every wait.
    """
    data, labels = [], []
    for name, trace in traces.items():
        points = timeline(trace.events)
        is_mars = trace.header.settings.method == "mars"
        colour = palette(theme)["mars" if is_mars else "ar"]
        line = {"shape": "hv", "width": 2, "color": colour}
        data.append(
            {"type": "scatter", "mode": "lines", "name": name, **_points(points), "line": line}
        )
        x, y = points[-1]
        label = {"x": x, "y": y, "text": name, "showarrow": False, "font": {"color": colour}}
        labels.append(
            {**label, "xanchor": "left", "yanchor": "bottom" if is_mars else "top", "xshift": 4}
        )
    layout = _layout(theme, "seconds of decoding", "tokens")
    layout["margin"]["r"] = 62
    return {"data": data, "layout": layout | {"annotations": labels}}


def _steps(trace: Trace) -> list[RowStep]:
    return [step for step, _ in row_steps(trace.events)]


def _points(points: list[tuple[Any, Any]]) -> dict[str, list[Any]]:
    return {"x": [x for x, _ in points], "y": [y for _, y in points]}


def _dash(colour: str) -> dict[str, Any]:
    return {"symbol": "line-ew-open", "size": 6, "color": colour, "line": {"width": 2}}


def _move_marks(trace: Trace, theme: Theme) -> dict[str, Any]:
    """Dotted lines between the forwards where tau or B moved, named at the top."""
    warm = palette(theme)["warm"]
    shapes, labels = [], []
    for move in tau_moves(trace.events):
        x = move.step + 0.5
        line = {"color": warm, "width": 1, "dash": "dot"}
        shapes.append(
            {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line}
        )
        place = {"x": x, "y": 1, "yref": "paper", "xanchor": "left", "yanchor": "top"}
        font = {"size": 11, "color": warm}
        labels.append({**place, "text": move_text(move), "showarrow": False, "font": font})
    return {"shapes": shapes, "annotations": labels}


def move_text(move: SettingsMove) -> str:
    """What moved: ``τ .5``, ``B 4`` or both."""
    parts = []
    if move.after.tau != move.before.tau:
        parts.append(f"τ {f'{move.after.tau:.2f}'.rstrip('0').rstrip('.').removeprefix('0') or 0}")
    if move.after.block_size != move.before.block_size:
        parts.append(f"B {move.after.block_size}")
    return " ".join(parts)


def plain_layout(colours: Mapping[str, str], x_title: str, y_title: str) -> Figure:
    """What every figure here has: no ground, few grid lines, units on the axes, no legend."""
    axis = {
        "color": colours["muted"],
        "gridcolor": colours["grid"],
        "linecolor": colours["line"],
        "zeroline": False,
        "tickmode": "auto",
        "nticks": 7,
    }
    return {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": colours["sans"], "size": 12, "color": colours["muted"]},
        "margin": {"l": 52, "r": 16, "t": 8, "b": 40},
        "showlegend": False,
        "xaxis": {**axis, "title": {"text": x_title}},
        "yaxis": {**axis, "title": {"text": y_title}},
    }


def _layout(theme: Theme, x_title: str, y_title: str) -> Figure:
    layout = plain_layout(palette(theme), x_title, y_title)
    layout["margin"]["r"] = 38
    layout["yaxis"]["rangemode"] = "tozero"
    return layout | {"uirevision": "keep"}


def _variables(css: str) -> dict[str, str]:
    return dict(re.findall(r"--rv-([\w-]+):\s*([^;]+);", css))
