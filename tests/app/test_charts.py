"""Static figures: what the traces say, in plain values that plotly accepts."""

from __future__ import annotations

import json
from itertools import pairwise

import plotly.graph_objects as go
import pytest
import sample_traces as samples

from app import charts
from mars_runtime import folds
from mars_runtime.settings import DecodeSettings

START = DecodeSettings(tau=0.95, block_size=8)
MOVED = DecodeSettings(tau=0.5, block_size=4)
TRACE = samples.run(samples.Script(samples.PROSE, START, moves={10: MOVED}))
PLAIN = samples.run(samples.Script(samples.PROSE, DecodeSettings(method="ar")))
FIGURES = {
    "forwards": charts.forwards_figure(TRACE),
    "confidence": charts.confidence_figure(TRACE),
    "time": charts.time_figure({"MARS": TRACE, "plain AR": PLAIN}),
}


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two colours."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_plain_values_that_plotly_accepts(name: str) -> None:
    assert json.loads(json.dumps(FIGURES[name])) == FIGURES[name]
    go.Figure(FIGURES[name])
    layout = FIGURES[name]["layout"]
    for axis in ("xaxis", "yaxis"):
        assert layout[axis]["title"]["text"]
        assert layout[axis]["tickmode"] in {"auto", "linear"}
    assert layout["paper_bgcolor"] == "rgba(0,0,0,0)"


def test_a_bar_is_a_forward_and_wears_the_colour_of_its_count() -> None:
    bars = FIGURES["forwards"]["data"][0]
    assert len(bars["y"]) == folds.num_forwards(TRACE.events)
    assert sum(bars["y"]) == folds.num_tokens(TRACE.events)
    for count, colour in zip(bars["y"], bars["marker"]["color"], strict=True):
        assert colour == charts.bar_colour(count)


def test_moves_are_marked_where_they_bit() -> None:
    for name in ("forwards", "confidence"):
        layout = FIGURES[name]["layout"]
        assert [shape["x0"] for shape in layout["shapes"]] == [10.5]
        assert [label["text"] for label in layout["annotations"]] == ["τ .5 B 4"]


def test_every_accepted_token_has_its_confidence_and_the_threshold_follows_the_moves() -> None:
    accepted, refused, threshold = FIGURES["confidence"]["data"]
    assert len(accepted["y"]) == folds.num_tokens(TRACE.events)
    assert refused["y"]
    assert threshold["y"][9:11] == [0.95, 0.5]


def test_time_lines_end_at_the_measured_seconds() -> None:
    mars, plain = FIGURES["time"]["data"]
    seconds = folds.decode_seconds(TRACE.events)
    assert mars["x"][-1] == pytest.approx(seconds)
    assert mars["y"][-1] == plain["y"][-1] == folds.num_tokens(TRACE.events)


def test_a_run_without_steps_draws_empty_figures() -> None:
    empty = samples.run(samples.Script("", START, end=None))
    assert charts.forwards_figure(empty)["data"][0]["y"] == []
    go.Figure(charts.confidence_figure(empty))
    go.Figure(charts.time_figure({"MARS": empty}))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_on_every_step_of_the_ramp_is_readable(theme: charts.Theme) -> None:
    colours = charts.palette(theme)
    for step in range(1, 6):
        assert contrast(colours["ramp-ink"], colours[f"ramp-{step}"]) >= 4.5
    for name in ("ink", "muted", "mars", "ar", "warm", "error"):
        assert contrast(colours[name], colours["surface"]) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_ramp_goes_one_way_and_its_steps_can_be_told_apart(theme: charts.Theme) -> None:
    colours = charts.palette(theme)
    levels = [luminance(colours[f"ramp-{step}"]) for step in range(1, 6)]
    assert levels == sorted(levels, reverse=theme == "light")
    for one, other in pairwise(levels):
        low, high = sorted((one, other))
        assert (high + 0.05) / (low + 0.05) >= 1.15
