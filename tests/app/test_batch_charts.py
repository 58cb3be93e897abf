"""The figures of a batch, from events made by hand."""

from __future__ import annotations

import json

import plotly.graph_objects as go
import pytest
from palette import palette
from test_batch_folds import EVENTS

from app.batch.run import MAX_POINTS, NAMES, PAGE_COLOURS, Side, forwards_figure, time_figure
from mars_runtime.events import Prefill, Step

SIDES = [Side("MARS, block cache 4", False, EVENTS), Side("plain AR", True, EVENTS[:2])]


def test_tokens_against_time_for_both() -> None:
    first, second = time_figure(SIDES)["data"]
    assert (first["x"], first["y"]) == ([0, 0.5, 1.5, 2.5, 3, 4], [0, 2, 6, 8, 9, 10])
    assert (second["x"], second["y"]) == ([0, 0.5], [0, 2])
    assert (first["line"]["color"], second["line"]["color"]) == ("@mars", "@ar")
    labels = [label["text"] for label in time_figure(SIDES)["layout"]["annotations"]]
    assert labels[0].endswith("MARS, block cache 4")


def test_accepted_up_and_idle_down_with_commits_marked() -> None:
    figure = forwards_figure(SIDES[:1])
    taken, waiting, finished = figure["data"]
    assert taken["y"] == [2, 4, 2, 1, 1]
    assert waiting["y"] == [0, 0, -1, 0, 0]
    assert finished["y"] == [0, 0, 0, -1, 0]
    colours = taken["marker"]["color"]
    assert [colour == "@mars" for colour in colours] == [True, False, False, True, False]
    assert not any("-" in tick for tick in figure["layout"]["yaxis"]["ticktext"])


@pytest.mark.parametrize("make", [time_figure, forwards_figure])
@pytest.mark.parametrize(
    "sides", [[], [Side("x", False, [])], [Side("x", False, [Prefill(3)])], SIDES]
)
def test_plotly_takes_every_figure_in_any_colours(make, sides) -> None:
    for colours in (palette("light"), palette("dark"), PAGE_COLOURS):
        figure = make(sides, colours)
        json.dumps(figure, allow_nan=False)
        if colours is not PAGE_COLOURS:
            go.Figure(figure)


def test_the_page_fills_in_variables_that_exist() -> None:
    assert set(NAMES) <= set(palette("light"))


def test_a_long_run_has_few_points_and_keeps_its_last() -> None:
    events = [EVENTS[1]] * 1501
    (line,) = time_figure([Side("x", False, events)])["data"]
    assert len(line["x"]) <= MAX_POINTS + 1
    assert line["y"][-1] == 3002
    assert isinstance(events[0], Step)
