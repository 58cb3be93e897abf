"""The examples that a tab opens with and pages through, for whatever checkpoint is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.examples.book import ExampleBook, set_for
from app.examples.openings import Openings
from app.serving.engines import Engines


class ExamplePages:
    """What a tab opens with, then ``count`` prompts a page, of each family in turn."""

    def __init__(
        self,
        engines: Engines,
        book: ExampleBook,
        count: int,
        openings: Openings,
        as_text: Callable[[Sequence[str]], str],
    ) -> None:
        self._engines = engines
        self._book = book
        self._count = count
        self._openings = openings
        self._as_text = as_text

    def text(self, page: int, checkpoint: object) -> str:
        """What is in the box; another checkpoint than those listed gets the default's examples."""
        chosen = set_for(self._engines.entry_or_default(checkpoint))
        opening = self._openings.get(chosen)
        if opening and not page:
            return self._as_text(opening)
        before = page - 1 if opening else page
        return self._as_text(self._book.several(chosen, before * self._count, self._count))

    def kept(self, text: object, page: int, checkpoint: object) -> object:
        """What is in the box, or this checkpoint's examples where it holds those of another."""
        others = [self.text(page, name) for name in self._engines.entries]
        return self.text(page, checkpoint) if text in others else text
