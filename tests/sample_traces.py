"""Races written by hand: real trace lines of texts, without a model, for tests and pictures."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from mars_runtime.runs.events import End, EndReason, Event, Prefill, Proposal, RowStep, Step, Stop
from mars_runtime.runs.trace import Header, Trace
from mars_runtime.settings import DecodeSettings

EOS = "<|im_end|>"
NUM_PROMPT = 13
PIECE = re.compile(r"<[^<>\n]*>|&\w+;| ?[A-Za-z]{1,6}|[0-9]|\n+| +(?= )|[ ]?[^\sA-Za-z0-9]|\s")

PROSE = (
    "Once upon a time a fisherman lived with his wife in a small hut by the sea. Every morning he "
    "went out to cast his nets, and every evening he came home with a few fish, and they were "
    "content.\n\nOne day his line went deep, deep down, and when he drew it up he brought out a "
    "great golden fish. “Let me live,” said the fish, “for I am no common fish; put me back into "
    "the water, and I will give you whatever you ask.” The man said: “You need not make so many "
    "words about it. A fish that can talk I would surely let swim away.”\n\nAnd he put it back "
    "into the clear water, and it went to the bottom and left a long streak of light behind it."
)
EMOJI = (
    "The parcels: 📦📦📦 and one 🎁. Weather in München: ☀️ 21 °C, 東京: 🌧️. Family: 👩‍👩‍👧. Done ✅"
)
HOSTILE = (
    "Set ${HOME}<b>x</b> and {{7*7}}, then `${alert(1)}` and <script>alert(2)</script> & &amp; "
    "C:\\u{zz} <img src=x onerror=alert(3)>\n<!-- {{#each value}} --> \u202eturned\u202c end"
)
MATHS = (
    "Tom has 3 boxes with 4 apples each, so he has 3 * 4 = 12 apples.\n"
    "He gives 5 of them away, so 12 - 5 = 7 apples are left.\n#### 7"
)


@dataclass
class Vocabulary:
    """Token ids for pieces of text as they come; bytes outside ASCII are one token each."""

    ids: dict[bytes, int] = field(default_factory=dict)

    def encode(self, text: str) -> list[int]:
        pieces = (piece.encode() for piece in PIECE.findall(text))
        return [self.id(token) for piece in pieces for token in _split(piece)]

    def id(self, token: bytes) -> int:
        return self.ids.setdefault(token, len(self.ids))

    def token_bytes(self, token: int) -> bytes:
        return list(self.ids)[token]


def _split(piece: bytes) -> list[bytes]:
    return [piece] if piece.isascii() else [bytes([byte]) for byte in piece]


@dataclass(frozen=True)
class Script:
    """What a run does. moves: forward -> settings from then on; end: how it ends; change: (place,
    text) put in place of the token there; num_given: how many of the first tokens are given."""

    text: str
    settings: DecodeSettings = field(default_factory=DecodeSettings)
    moves: dict[int, DecodeSettings] = field(default_factory=dict)
    end: EndReason | None = "eos"
    change: tuple[int, str] | None = None
    forward_seconds: float = 0.005
    num_given: int = 0


def run(script: Script) -> Trace:
    vocabulary = Vocabulary()
    ids = vocabulary.encode(script.text)
    if script.change:
        ids[script.change[0]] = vocabulary.id(script.change[1].encode())
    if script.end == "eos":
        ids.append(vocabulary.id(EOS.encode()))
    given, ids = ids[: script.num_given], ids[script.num_given :]
    num_prompt = NUM_PROMPT + len(given)
    steps = _steps(script, ids, vocabulary, num_prompt)
    events: list[Event] = [Prefill(num_prompt - 1, 0.004), *steps]
    if script.end is not None:
        events.append(End(script.end))
    header = Header(
        checkpoint="mars-tiny",
        prompt="Write.",
        prompt_ids=(*range(NUM_PROMPT), *given),
        settings=script.settings,
        hardware="2 cores of a test machine",
        dtype="float32",
        versions={"torch": "2.13.0", "mars_runtime": "0.1.0"},
        threads=1,
        num_given=len(given),
    )
    return Trace.of(header, events, vocabulary.token_bytes)


def _steps(
    script: Script, ids: Sequence[int], vocabulary: Vocabulary, num_prompt: int
) -> Iterator[Step]:
    rng = random.Random(1)
    settings, start, index, count = script.settings, 0, 0, 1
    pending, drafts = 1, 0
    while start < len(ids):
        settings = script.moves.get(index, settings)
        row = _row(rng, settings, ids, start, vocabulary, script.end)
        fed = pending + max(1, len(row.proposals) - drafts) - 1
        cursor = num_prompt + start - (pending - drafts)
        row = replace(row, cursor=cursor, num_pending=pending, num_fed=fed)
        row = _checked(row, ids, count, vocabulary, random.Random(f"1 {start}"))
        count = len(row.accepted)
        yield Step(
            (row,), script.forward_seconds * rng.uniform(0.9, 1.2) * (1 + 0.03 * len(row.proposals))
        )
        start += len(row.accepted)
        agreed = min(drafts, len(row.accepted))
        pending, drafts = len(row.accepted) - agreed + row.num_drafted, row.num_drafted
        index += 1


def _row(
    rng: random.Random,
    settings: DecodeSettings,
    ids: Sequence[int],
    start: int,
    vocabulary: Vocabulary,
    end: EndReason | None,
) -> RowStep:
    depth = min(settings.num_proposals, len(ids) - start)
    count = min(depth, rng.choices(range(1, 9), (30, 22, 16, 12, 8, 5, 4, 3))[0])
    is_over = start + count == len(ids)
    stop: Stop = "block" if count == settings.num_proposals else "threshold"
    if is_over and end in ("eos", "limit", "repeats"):
        stop = end
    drafted = 0
    if settings.lossless and not is_over:
        stop, drafted = ("mismatch", 0) if rng.random() < 0.25 else (stop, min(2, depth - count))
    accepted = tuple(ids[start : start + count])
    proposals = [_proposal(rng, token, settings.tau, 1.0, vocabulary) for token in accepted]
    for place in range(start + count, start + depth):
        guess = (
            ids[place]
            if rng.random() < 0.5
            else vocabulary.id(rng.choice([b" and", b" the", b"ing"]))
        )
        proposals.append(_proposal(rng, guess, 0.0, max(settings.tau, 0.05), vocabulary))
    return RowStep(0, start, 0, 0, 0, tuple(proposals), accepted, drafted, settings, stop)


def _checked(
    row: RowStep, ids: Sequence[int], pending: int, vocabulary: Vocabulary, rng: random.Random
) -> RowStep:
    """The row with the ``pending`` tokens of the step before it, most of them AR's choice too."""
    if row.settings.lossless or row.settings.method == "ar":
        return row
    others = [vocabulary.id(b" so"), vocabulary.id(b",")]
    checks = tuple(
        (ids[place] if rng.random() < 0.8 else rng.choice(others), 0.4 + 0.6 * rng.random())
        for place in range(row.start - pending + 1, row.start)
    )
    return replace(row, checks=checks)


def _proposal(
    rng: random.Random, token: int, low: float, high: float, vocabulary: Vocabulary
) -> Proposal:
    p = low + (high - low) * rng.random() ** 0.4
    others = [vocabulary.id(b" a"), vocabulary.id(b"\n"), vocabulary.id(b" other")]
    return Proposal(token, p, tuple((other, (1 - p) / (2 + i)) for i, other in enumerate(others)))


def lanes(script: Script) -> dict[str, list[str]]:
    plain = replace(script.settings, method="ar")
    ar = replace(script, settings=plain, moves={}, change=None)
    both = {"mars": script, "ar": ar}
    return {name: list(run(item).lines()) for name, item in both.items()}
