"""Terminal output: the text of a run as it is generated, its statistics, and progress bars."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.style import Style
from rich.text import Text

from mars_runtime.runs import folds
from mars_runtime.runs.events import End, Event, Step
from mars_runtime.runs.trace import Header
from mars_runtime.settings import EXACTNESS, DecodeSettings, describe
from mars_runtime.text import Detokenizer

# Background colours for passes of 2, 3, ... tokens. Two ramps alternate from pass to pass.
_RAMPS = (
    ("#dbe9f6", "#b5d1e8", "#8ab8da", "#5f9bc9", "#3a7cb4", "#215f9a", "#0f437c"),
    ("#d9f0e3", "#b3dfc8", "#88cbab", "#5eb18d", "#3a946f", "#217654", "#0d573b"),
)
_FIRST_DARK = 4
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class TextView:
    """Prints the text of row 0; in a colour terminal, tokens of one forward pass share a colour."""

    def __init__(self, console: Console, token_bytes: Callable[[int], bytes]) -> None:
        self._console = console
        self._detokenizer = Detokenizer(token_bytes)
        self._num_forwards = 0
        self._ends_line = True

    def show(self, events: Iterable[Event]) -> None:
        """Print the complete characters of new events and flush."""
        line = Text()
        for event in events:
            if isinstance(event, Step):
                row = event.rows[0]
                piece = self._detokenizer.push(folds.visible_tokens(row))
                line.append(self._clean(piece), self._style(len(row.accepted)))
                self._num_forwards += 1
            elif isinstance(event, End):
                line.append(self._clean(self._detokenizer.flush()))
        if line:
            self._ends_line = line.plain.endswith("\n")
            self._print(line)

    def finish(self) -> None:
        if not self._ends_line:
            self._print(Text("\n"))

    def _print(self, text: Text) -> None:
        if self._console.is_terminal:
            self._console.print(text, end="", soft_wrap=True)
        else:  # rich would replace tabs by spaces
            self._console.file.write(text.plain)
        self._console.file.flush()

    def _clean(self, piece: str) -> str:
        """Replace control characters, which a terminal would execute."""
        return (
            _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", piece)
            if self._console.is_terminal
            else piece
        )

    def _style(self, num_tokens: int) -> Style:
        if num_tokens < 2:
            return Style()
        ramp = _RAMPS[self._num_forwards % 2]
        shade = min(num_tokens - 2, len(ramp) - 1)
        return Style(bgcolor=ramp[shade], color="white" if shade >= _FIRST_DARK else "black")


def figures(events: Sequence[Event]) -> str:
    """Describe speed and counts in one line, without a repetition loop."""
    ttft, loops_at = folds.ttft(events), folds.loops_at(events)
    counted = folds.up_to_loop(events)
    loop = (
        ""
        if loops_at is None
        else f"the text repeats itself after token {loops_at}; up to that point: "
    )
    parts = [
        f"{loop}TPF {folds.tpf(events):.2f}",
        f"{folds.tokens_per_second(events):.0f} tokens/s",
        "TTFT -" if ttft is None else f"TTFT {1000 * ttft:.1f} ms",
        f"{folds.ms_per_forward(events):.2f} ms per forward pass",
        f"{folds.num_tokens(counted)} tokens in {folds.num_forwards(counted)} forward passes",
    ]
    if drafting := folds.num_draft_forwards(events):
        parts.append(f"{drafting} forward passes of the draft model")
    if declined := folds.declined(events):
        tokens, cost = declined
        parts.append(
            f"masks would not have paid here: {tokens:.1f} tokens per pass at {cost:.1f} times the "
            "cost"
        )
    return " · ".join(parts)


def circumstances(header: Header) -> str:
    threads = f"{header.threads} {'thread' if header.threads == 1 else 'threads'}"
    torch = f"torch {header.versions.get('torch', '?')}"
    parts = [header.checkpoint, method(header.settings), header.dtype, threads, torch]
    settings = header.settings
    if settings.is_verified and not header.is_bitwise:
        parts.append(EXACTNESS[False])
    return " · ".join([*parts, header.hardware])


def method(settings: DecodeSettings) -> str:
    drawn = f", temperature {settings.temperature:g}" if settings.temperature else ""
    if drawn:
        drawn += f", top-k {settings.top_k}" if settings.top_k > 0 else ""
        drawn += f", top-p {settings.top_p:g}" if settings.top_p < 1 else ""
        drawn += f", min-p {settings.min_p:g}" if settings.min_p else ""
    return f"{describe(settings)}{drawn}"


def progress_bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
