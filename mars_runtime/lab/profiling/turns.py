"""``python -m mars_runtime turns``: what it saves a conversation that its earlier turns are kept.

Each prompt is served twice: as a visitor's, with what is kept of earlier turns, then alone, which
reads all of it. Tokens that had to be read come first in the table, because they are the same on
any machine; seconds to the first token are the median of the conversations.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

from mars_runtime.lab.commands import run_or_say
from mars_runtime.lab.evaluation.prompts import PromptError
from mars_runtime.lab.tables import Table
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Turn

if TYPE_CHECKING:
    from mars_runtime.engine import Engine, Run
    from mars_runtime.text import Tokenizer

QUESTIONS = (
    "Why is the sky blue?",
    "Explain how bread is baked.",
    "Tell me a short story about a fox.",
    "How do I sleep better?",
    "Describe a walk by the sea.",
)
MORE = "Say more about that."


@dataclass(frozen=True, slots=True)
class TimedTurn:
    """A prompt of ``num_tokens``, of which ``num_reused`` were kept; seconds to the first token
    with that and without. is_equal: whether both answers are the same, token for token."""

    num_tokens: int
    num_reused: int
    warm: float
    cold: float
    is_equal: bool


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``turns`` command."""
    parser = subparsers.add_parser("turns", help="what kept turns save a conversation")
    add = parser.add_argument
    add("--checkpoint", default="mars-smollm2", help="a name or a folder (%(default)s)")
    add("--turns", type=int, default=4, help="of each conversation (%(default)s)")
    add("--conversations", type=int, default=3, help=f"1 to {len(QUESTIONS)} (%(default)s)")
    add("--max-new-tokens", type=int, default=64, help="of an answer (%(default)s)")
    add("--dtype", default="auto", help="auto, int8 or int4 (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Converse and print. Returns the exit code."""
    return run_or_say(lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    settings = DecodeSettings(
        tau=0.0, block_size="auto", lossless=True, max_new_tokens=args.max_new_tokens
    )
    if args.turns < 1 or not 1 <= args.conversations <= len(QUESTIONS):
        raise PromptError(f"Ask for at least 1 turn and 1 to {len(QUESTIONS)} conversations.")
    from mars_runtime.engine import Engine
    from mars_runtime.model.load import load_checkpoint

    checkpoint = load_checkpoint(args.checkpoint, device="cpu", dtype=args.dtype)
    if not checkpoint.model.is_bitwise:
        raise PromptError("Nothing is kept where arithmetic is not bitwise: choose --dtype int8.")
    with Engine(checkpoint, max_runs=1) as engine:
        engine.costs()
        found = [
            converse(engine, checkpoint.tokenizer, question, args.turns, settings)
            for question in QUESTIONS[: args.conversations]
        ]
    Console().print(table_of(checkpoint.name, found).to_rich(), crop=False)
    return 0


def converse(
    engine: Engine, tokenizer: Tokenizer, question: str, num_turns: int, settings: DecodeSettings
) -> list[TimedTurn]:
    """The turns of one conversation. Raises PromptError when one fails."""
    from mars_runtime.engine import Request
    from mars_runtime.folds import accepted_tokens

    history: list[Turn] = []
    found = []
    for prompt in [question, *[MORE] * (num_turns - 1)]:
        request = Request(tokenizer.encode_prompt(prompt, history), settings)
        warm = engine.submit(request)
        found.append(_turn(warm, engine.submit(request, is_alone=True)))
        written = accepted_tokens(warm.events_since(0))
        answer = tuple(token for token in written if token not in tokenizer.eos_ids)
        history.append(Turn(prompt, answer))
    return found


def _turn(warm: Run, cold: Run) -> TimedTurn:
    from mars_runtime.events import Prefill
    from mars_runtime.folds import accepted_tokens, ttft

    first, *rest = list(warm)
    others = list(cold)
    ours, theirs = ttft([first, *rest]), ttft(others)
    if not isinstance(first, Prefill) or ours is None or theirs is None:
        raise PromptError("A turn could not be decoded: ask for fewer turns or shorter answers.")
    is_equal = accepted_tokens(rest) == accepted_tokens(others)
    return TimedTurn(first.num_tokens + 1, first.num_reused, ours, theirs, is_equal)


def table_of(name: str, conversations: Sequence[Sequence[TimedTurn]]) -> Table:
    """One line per turn, over all conversations."""
    lines = []
    for number, turns in enumerate(zip(*conversations, strict=True), 1):
        warm = statistics.median(turn.warm for turn in turns)
        cold = statistics.median(turn.cold for turn in turns)
        lines.append(
            (
                str(number),
                _mean([turn.num_tokens for turn in turns]),
                _mean([turn.num_tokens - turn.num_reused for turn in turns]),
                f"{1000 * warm:.1f}",
                f"{1000 * cold:.1f}",
                f"{statistics.median(turn.warm / turn.cold for turn in turns):.2f}",
                f"{sum(turn.is_equal for turn in turns)} of {len(turns)}",
            )
        )
    columns = ("turn", "prompt tokens", "computed", "ms, kept", "ms, not kept", "ratio", "equal")
    return Table(f"Time to the first token: {name}", columns, tuple(lines))


def _mean(counts: Sequence[int]) -> str:
    return f"{statistics.mean(counts):.0f}"
