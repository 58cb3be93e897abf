"""What a caller is told of a run: a fold over its events, token by token.

The number of tokens per forward changes neither the text, nor where a stop string cuts it, nor the
number of tokens that are counted. Knows no HTTP and no JSON.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from mars_runtime.events import End, Event, Proposal, Step
from mars_runtime.folds import visible_tokens
from mars_runtime.serving.stops import StopCutter
from mars_runtime.text import Detokenizer, Tokenizer


@dataclass(frozen=True, slots=True)
class Told:
    """A token of the answer: ``start`` and ``end`` are the places in the text, in characters, that
    it fills; nothing for one that leaves a character incomplete. ``proposal``: as it was predicted.
    """

    token: int
    start: int
    end: int
    proposal: Proposal


@dataclass(frozen=True, slots=True)
class Piece:
    """What is new: text, and the tokens that it is made of."""

    text: str = ""
    tokens: tuple[Told, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens)


class Answer:
    """One run, as far as it was read. ``is_over``: nothing more will be told of it, though its run
    may go on where a stop string cut it."""

    def __init__(self, tokenizer: Tokenizer, stops: Iterable[str]) -> None:
        self.events: list[Event] = []
        self.end: End | None = None
        self.num_tokens = 0
        self._detokenizer = Detokenizer(tokenizer.token_bytes)
        self._cutter = StopCutter(tuple(stops))
        self._length = self._num_shown = 0  # characters written, and told
        self._waiting: deque[Told] = deque()

    @property
    def is_cut(self) -> bool:
        """Whether a stop string ended it."""
        return self._cutter.is_cut

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be told."""
        return self.is_cut or self.end is not None

    @property
    def finish_reason(self) -> str:
        """``stop`` or ``length`` in OpenAI's words; empty while it goes on."""
        if not self.is_over:
            return ""
        is_whole = self.is_cut or (self.end is not None and self.end.reason == "eos")
        return "stop" if is_whole else "length"

    def read(self, events: Iterable[Event]) -> Piece:
        """What these events add."""
        text, tokens = "", []
        for event in events:
            if self.is_over:
                break
            self.events.append(event)
            if isinstance(event, End):
                self.end = event
                text += self._cutter.push(self._detokenizer.flush()) + self._cutter.flush()
            elif isinstance(event, Step):
                text += self._read_step(event)
        self._num_shown += len(text)
        while self._waiting and self._is_told(self._waiting[0]):
            tokens.append(self._waiting.popleft())
        return Piece(text, tuple(tokens))

    def _read_step(self, step: Step) -> str:
        (row,) = step.rows
        text = ""
        for token, proposal in zip(visible_tokens(row), row.proposals, strict=False):
            self.num_tokens += 1
            written = self._detokenizer.push([token])
            start, self._length = self._length, self._length + len(written)
            self._waiting.append(Told(token, start, self._length, proposal))
            text += self._cutter.push(written)
            if self.is_cut:
                return text
        self.num_tokens += row.stop == "eos"
        return text

    def _is_told(self, token: Told) -> bool:
        """Whether its text was shown: all of it, or its beginning where a stop string cut it."""
        if self.end is not None and not self.is_cut:
            return True
        is_begun = token.start < self._num_shown
        return is_begun and (self.is_cut or token.end <= self._num_shown)
