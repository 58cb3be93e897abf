"""What each control of the Load lab tab does. Knows no gradio type, no component and no drawing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.feed import Feed
from app.load.order import MAX_TOKENS, read_load_order
from app.load.run import LoadRun
from app.stream import TabHandlers

USUAL_RATE, CHAT_RATE = 12.0, 3.0
"""Requests per second that the tab opens with: near what two cores can do."""


class LoadHandlers(TabHandlers[LoadRun]):
    """The tab's behaviour; one object serves every visitor, told apart by session."""

    @property
    def max_tokens(self) -> int:
        """The end of the slider of tokens per answer."""
        return min(MAX_TOKENS, self._engines.settings.max_new_tokens)

    def rate(self, checkpoint: object) -> float:
        """Requests per second to begin with; a chat model is larger."""
        return USUAL_RATE if self._engines.entry_or_default(checkpoint).gguf is None else CHAT_RATE

    def read(self, values: Mapping[str, Any]) -> LoadRun:
        """What these controls ask for, not begun yet. Raises RefusalError."""
        order = read_load_order(values, self._engines.limits(values.get("checkpoint")))
        return LoadRun(order, self._engines.settings.max_seconds)

    def blank(self) -> Feed:
        """The feed of what cannot be begun."""
        return Feed({"ways": []})
