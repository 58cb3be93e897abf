"""What each control of the Grid tab does. Knows no gradio type, no component and no drawing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.controls import RefusalError
from app.examples.book import ExampleBook
from app.examples.openings import GRID
from app.examples.pages import ExamplePages
from app.feed import Feed, Feeds
from app.grid.order import BLOCK_SIZES, MAX_TOKENS, read_grid_order
from app.grid.run import GridRun
from app.serving.engines import Engines
from app.stream import TabHandlers


class GridHandlers(TabHandlers[GridRun]):
    """The tab's behaviour; one object serves every visitor, told apart by session."""

    def __init__(self, engines: Engines, feeds: Feeds, book: ExampleBook) -> None:
        super().__init__(engines, feeds)
        self._book = book
        self.examples = ExamplePages(engines, book, 1, GRID, "".join)

    @property
    def max_tokens(self) -> int:
        """The end of the slider of tokens per cell."""
        return min(MAX_TOKENS, self._engines.settings.max_new_tokens)

    def block_sizes(self, checkpoint: object) -> list[int]:
        """The values of B that a checkpoint was trained for."""
        try:
            depth = self._engines.limits(checkpoint).block_size
        except RefusalError:
            return list(BLOCK_SIZES)
        return [block_size for block_size in BLOCK_SIZES if block_size <= depth] or [depth]

    def read(self, values: Mapping[str, Any]) -> GridRun:
        """What these controls ask for, not begun yet. Raises RefusalError."""
        order = read_grid_order(values, self._engines.limits(values.get("checkpoint")))
        return GridRun(order, self._book, self._engines.settings.max_seconds)

    def blank(self) -> Feed:
        """The feed of what cannot be begun."""
        return Feed({"prompt": "", "rows": [], "columns": []})
