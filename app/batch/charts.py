"""Pure: the events of batches to plotly figures as plain Python values.

Colours are named after the style sheet's variables (``PAGE_COLOURS``), which the browser fills in
for light and dark. Knows no gradio, torch, plotly package or model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mars_runtime.batch_folds import num_accepted, steps, timeline
from mars_runtime.events import Event, Step

Figure = dict[str, Any]
NAMES = ("mars", "ar", "ink", "muted", "grid", "line", "warm", "bar-1", "ramp-2", "ramp-4", "sans")
PAGE_COLOURS = {name: f"@{name}" for name in NAMES}
MAX_POINTS = 400  # of a line; more cannot be told apart on a page


@dataclass(frozen=True, slots=True)
class Side:
    """One method's run: its title, whether it is plain AR, and its events."""

    title: str
    is_ar: bool
    events: Sequence[Event]


def time_figure(sides: Sequence[Side], colours: Mapping[str, str] = PAGE_COLOURS) -> Figure:
    """Tokens of all rows against seconds of decoding, one line per method, named lower right."""
    data: list[dict[str, Any]] = []
    labels = []
    for index, side in enumerate(sides):
        points = _thinned(timeline(side.events))
        colour, dash = _line_of(index, side, colours)
        line = {"shape": "hv", "width": 2, "color": colour, "dash": dash}
        x, y = [round(second, 5) for second, _ in points], [count for _, count in points]
        about = {"name": side.title, "hovertemplate": "%{y} tokens after %{x:.2f} s<extra></extra>"}
        data.append({"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, **about})
        # Curves of tokens end at the upper right, often close together: below there is room.
        text = f"{'╌╌' if dash == 'dash' else '━━'} {side.title}"
        place = {"x": 1, "y": 0.13 - 0.1 * index, "xref": "paper", "yref": "paper"}
        label = {"text": text, "showarrow": False, "font": {"color": colour, "size": 12}}
        labels.append({**place, **label, "xanchor": "right", "yanchor": "bottom"})
    layout = _plain_layout(colours, "time of decoding (s)", "tokens of all rows")
    layout["yaxis"]["range"] = [0, 1.15 * max((trace["y"][-1] for trace in data), default=1) or 1]
    layout["xaxis"]["range"] = [0, 1.02 * max((trace["x"][-1] for trace in data), default=1) or 1]
    return {"data": data, "layout": layout | {"annotations": labels}}


def forwards_figure(sides: Sequence[Side], colours: Mapping[str, str] = PAGE_COLOURS) -> Figure:
    """For each forward the tokens it gave (upwards) and the rows it left idle (downwards).

    One strip a method on a shared axis of forwards; commits are a darker bar.
    """
    layout = _plain_layout(colours, "forward", "")
    del layout["yaxis"]
    data: list[dict[str, Any]] = []
    titles, gap = [], 0.14 if len(sides) > 1 else 0.0
    height = (1 - gap * (len(sides) - 1)) / max(len(sides), 1)
    for index, side in enumerate(sides):
        top = 1 - index * (height + gap)
        axis = "y" if index == 0 else f"y{index + 1}"
        bars = _strip(steps(side.events), axis, colours)
        layout[f"yaxis{axis[1:]}"] = _count_axis(colours, [max(0.0, top - height), top], bars)
        data += bars
        title = {"x": 0, "xref": "paper", "xanchor": "left", "y": top, "yref": "paper"}
        font = {"color": colours["ar" if side.is_ar else "mars"], "size": 12}
        text = {"text": side.title, "yanchor": "bottom", "showarrow": False, "font": font}
        titles.append({**title, **text})
    longest = max((len(steps(side.events)) for side in sides), default=0)
    layout["xaxis"] |= {"range": [0.4, max(longest, 24) + 0.6], "showgrid": False}
    layout["xaxis"]["anchor"] = "free" if len(sides) > 1 else "y"
    layout["xaxis"]["position"] = 0
    more = {"annotations": titles, "barmode": "relative", "bargap": 0.12}
    layout["margin"] |= {"t": 24}
    return {"data": data, "layout": layout | more}


def _strip(forwards: Sequence[Step], axis: str, colours: Mapping[str, str]) -> list[dict[str, Any]]:
    """Bars of one method: tokens up, idle rows down, by what they waited for."""
    x = list(range(1, len(forwards) + 1))
    fills = [colours["mars" if step.is_commit else "ramp-4"] for step in forwards]
    taken = {
        "name": "tokens accepted",
        "y": [num_accepted(step) for step in forwards],
        "marker": {"color": fills, "line": {"width": 0}},
        "hovertemplate": "forward %{x}: %{y} tokens<extra></extra>",
    }
    bars = [taken]
    for wait, title, colour in (
        ("block", "waiting for the block", "warm"),
        ("finished", "finished", "bar-1"),
    ):
        counts = [sum(idle.wait == wait for idle in step.idle) for step in forwards]
        bars.append(
            {
                "name": title,
                "y": [-count for count in counts],
                "customdata": counts,
                "marker": {"color": colours[colour], "line": {"width": 0}},
                "hovertemplate": f"forward %{{x}}: %{{customdata}} rows {title}<extra></extra>",
            }
        )
    return [{"type": "bar", "x": x, "yaxis": axis, **bar} for bar in bars]


def _line_of(index: int, side: Side, colours: Mapping[str, str]) -> tuple[str, str]:
    """Plain AR is grey, MARS the ramp's hue; a second MARS method is dashed."""
    if side.is_ar:
        return colours["ar"], "solid"
    return colours["mars"], "dash" if index else "solid"


def _thinned(points: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """At most MAX_POINTS of them, the last one among them."""
    stride = -(-len(points) // MAX_POINTS)
    kept = points[::stride]
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def _count_axis(
    colours: Mapping[str, str], domain: list[float], bars: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Tokens above zero, rows below it, both counted without a sign."""
    high = max((count for count in bars[0]["y"]), default=1)
    low = max((-a - b for a, b in zip(bars[1]["y"], bars[2]["y"], strict=True)), default=0)
    step = max(1, -(-(high + low) // 4))
    ticks = [*range(-step * (low // step), 0, step), *range(0, high + 1, step)]
    return {
        "domain": domain,
        "range": [-1.1 * low - 0.1, 1.1 * high],
        "tickvals": ticks,
        "ticktext": [str(abs(tick)) for tick in ticks],
        "color": colours["muted"],
        "gridcolor": colours["grid"],
        "zeroline": True,
        "zerolinecolor": colours["muted"],
        "title": {"text": "idle | tokens" if low else "tokens", "font": {"size": 11}},
    }


def _plain_layout(colours: Mapping[str, str], x_title: str, y_title: str) -> Figure:
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
