"""The text of an answer, from the events of its run."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mars_runtime.runs.events import FINAL, End, Event, Proposal, Step
from mars_runtime.runs.folds import visible_tokens
from mars_runtime.text import Detokenizer, Tokenizer


@dataclass(frozen=True, slots=True)
class AnswerToken:
    """start, end: the range of characters that the token adds; empty for a part of a character."""

    token: int
    start: int
    end: int
    proposal: Proposal


@dataclass(frozen=True, slots=True)
class Piece:
    text: str = ""
    tokens: tuple[AnswerToken, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens)


class StreamedAnswer:
    """stop_ids: tokens that end the answer; like EOS, they are counted but add no text. min_tokens:
    number of tokens before which stops are ignored.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: Iterable[str],
        stop_ids: frozenset[int] = frozenset(),
        min_tokens: int = 0,
    ) -> None:
        self.events: list[Event] = []
        self.end: End | None = None
        self.num_tokens = 0
        self._detokenizer = Detokenizer(tokenizer.token_bytes)
        self._cutter = StopCutter(tuple(stops))
        self._stop_ids, self._eos_ids = stop_ids, tokenizer.eos_ids
        self._min_tokens = min_tokens
        self._has_stop_token = False
        self._length = self._num_shown = 0  # numbers of characters decoded and returned
        self._waiting: deque[AnswerToken] = deque()  # tokens with text that is not returned yet

    @property
    def is_cut(self) -> bool:
        return self._cutter.is_cut or self._has_stop_token

    @property
    def is_over(self) -> bool:
        return self.is_cut or self.end is not None

    @property
    def finish_reason(self) -> str:
        if not self.is_over:
            return ""
        is_whole = self.is_cut or (self.end is not None and self.end.reason == "eos")
        return "stop" if is_whole else "length"

    def read(self, events: Iterable[Event]) -> Piece:
        text, tokens = "", []
        for event in events:
            if self.is_over:
                break
            before = self.num_tokens
            if isinstance(event, End):
                self.end = event
                text += self._flush()
            elif isinstance(event, Step):
                text += self._read_step(event)
                event = _up_to(event, self.num_tokens - before)
            self.events.append(event)
        self._num_shown += len(text)
        while self._waiting and self._is_returned(self._waiting[0]):
            tokens.append(self._waiting.popleft())
        return Piece(text, tuple(tokens))

    def _flush(self) -> str:
        return self._cutter.push(self._detokenizer.flush()) + self._cutter.flush()

    def _read_step(self, step: Step) -> str:
        (row,) = step.rows
        text = ""
        for token, proposal in zip(visible_tokens(row), row.proposals, strict=False):
            self.num_tokens += 1
            can_stop = self.num_tokens > self._min_tokens
            if can_stop and token in self._stop_ids:
                self._has_stop_token = True
                return text + self._flush()
            written = "" if token in self._eos_ids else self._detokenizer.push([token])
            start, self._length = self._length, self._length + len(written)
            self._waiting.append(AnswerToken(token, start, self._length, proposal))
            text += self._cutter.push(written) if can_stop else written
            if self.is_cut:
                return text
        self.num_tokens += row.stop == "eos"
        return text

    def _is_returned(self, token: AnswerToken) -> bool:
        if self.is_over and not self._cutter.is_cut:
            return True
        is_begun = token.start < self._num_shown
        return is_begun and (self.is_cut or token.end <= self._num_shown)


def _up_to(step: Step, num_tokens: int) -> Step:
    (row,) = step.rows
    if num_tokens == len(row.accepted):
        return step
    stop = "limit" if row.stop in FINAL else row.stop
    return replace(step, rows=(replace(row, accepted=row.accepted[:num_tokens], stop=stop),))


class StopCutter:
    """Cuts text before the stop string that ends first, of several before the longest. How the text
    is split into pieces makes no difference.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(sorted(stops))
        self._longest = max(map(len, stops), default=1)
        self._held, self.is_cut = "", False

    def push(self, text: str) -> str:
        """Add text; return the text that can no longer be part of a stop string."""
        if self.is_cut:
            return ""
        held = self._held + text
        ends = [(at + len(stop), at) for stop in self._stops if (at := held.find(stop)) >= 0]
        if ends:
            self.is_cut, self._held = True, ""
            return held[: min(ends)[1]]
        num_shown = len(held) - self._num_open(held)
        self._held = held[num_shown:]
        return held[:num_shown]

    def flush(self) -> str:
        remainder, self._held = self._held, ""
        return remainder

    def _num_open(self, text: str) -> int:
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            tail = text[len(text) - length :]
            index = bisect_left(self._stops, tail)  # first stop that could begin with tail
            if index < len(self._stops) and self._stops[index].startswith(tail):
                return length
        return 0


def spelled(token_bytes: bytes) -> str:
    """Return the text of a token or, if its bytes are no text, the bytes as OpenAI escapes them.
    Different bytes have different spellings.
    """
    try:
        return token_bytes.decode("utf-8")
    except UnicodeDecodeError:
        plain = range(0x20, 0x7F)
        shown = (
            chr(byte) if byte in plain and byte != 0x5C else f"\\x{byte:02x}"
            for byte in token_bytes
        )
        return "bytes:" + "".join(shown)
