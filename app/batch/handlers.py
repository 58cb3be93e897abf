"""What each control of the Batch tab does. Knows no gradio type, no component and no drawing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.batch.order import MAX_TOKENS, prompts_as_text, read_batch_order
from app.batch.run import BatchRun, new_feed
from app.examples.book import ExampleBook
from app.examples.openings import BATCH
from app.examples.pages import ExamplePages
from app.feed import Feed, Feeds
from app.serving.engines import Engines
from app.stream import TabHandlers

NUM_EXAMPLES = 8


class BatchHandlers(TabHandlers[BatchRun]):
    """The tab's behaviour; one object serves every visitor, told apart by session."""

    def __init__(self, engines: Engines, feeds: Feeds, book: ExampleBook) -> None:
        super().__init__(engines, feeds)
        self._book = book
        self.examples = ExamplePages(engines, book, NUM_EXAMPLES, BATCH, prompts_as_text)

    @property
    def max_tokens(self) -> int:
        """The end of the slider of tokens per row."""
        return min(MAX_TOKENS, self._engines.settings.max_new_tokens)

    def read(self, values: Mapping[str, Any]) -> BatchRun:
        """What these controls ask for, not begun yet. Raises RefusalError."""
        order = read_batch_order(values, self._engines.limits(values.get("checkpoint")))
        return BatchRun(order, self._book, self._engines.settings.max_seconds)

    def blank(self) -> Feed:
        """The feed of what cannot be begun."""
        return new_feed({}, [], [])
