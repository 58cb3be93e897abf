"""The grid that a visitor is running: its cells in turn, and the lines the page reads of them.

The first line of a value (``components/race_value.py``) names rows and columns; further lines are
a cell's trace lines, whole, so that any cell can be opened as a run. Knows no gradio, drawing or
model.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from app.feed import Feed
from app.grid_order import GridOrder
from app.runs import Lane

EMPTY = {"prompt": "", "rows": [], "columns": []}


def new_feed(head: Mapping[str, Any]) -> Feed:
    """A feed for a grid with this head; each is a run of its own to the component."""
    return Feed({"run": uuid.uuid4().hex, **head})


class LiveGrid:
    """What one visitor is running in the Grid tab."""

    def __init__(self, order: GridOrder) -> None:
        self.order = order
        self.feed = new_feed(order.head())
        self.lanes: list[Lane] = []
        self.is_cancelled = False

    @property
    def num_done(self) -> int:
        """Cells that ran to their end, the reference apart."""
        return sum(is_done(lane) for lane in self.lanes[1:])

    def begin(self, lane: Lane) -> None:
        """Go on with another cell; one that comes after Stop ends at once."""
        self.lanes.append(lane)
        if self.is_cancelled:
            lane.run.cancel()

    def collect(self) -> None:
        """Move new events of the running cell into the feed."""
        lane = self.lanes[-1]
        for line in lane.collect():
            self.feed.add(lane.name, line)

    def cancel(self) -> None:
        """End the running cell within one forward, and begin no other; a second call is nothing."""
        self.is_cancelled = True
        for lane in list(self.lanes):
            lane.run.cancel()


def is_done(lane: Lane) -> bool:
    """Whether its text came to an end of its own."""
    return lane.end is not None and lane.end.reason in ("eos", "limit")
