"""Which runs are recorded, and why each is worth seeing. Knows no engine and no page.

Prompts are examples of the page. The reasons say what to look at and no figure: those are measured
anew with every recording.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.controls import DEFAULTS, TITLES, settings_for
from mars_runtime.settings import DecodeSettings

CACHE_BLOCK = 16
CHAT, TINY = "mars-smollm2", "mars-tiny"


@dataclass(frozen=True, slots=True)
class Move:
    """Once a lane has emitted ``num_tokens``, this tau is in force."""

    num_tokens: int
    tau: float


@dataclass(frozen=True, slots=True)
class ScenarioLane:
    """One lane: what it is called and how it decodes; ``cache_block`` 0 means the cursor."""

    name: str
    title: str
    settings: DecodeSettings
    cache_block: int = 0
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run to record: the prompt is the example ``number`` of ``family``, a request of the chat
    model or a task of the tiny one (``checkpoint``)."""

    name: str
    title: str
    why: str
    family: str
    number: int
    lanes: tuple[ScenarioLane, ...]
    checkpoint: str = CHAT


def race(settings: DecodeSettings, *moves: Move) -> tuple[ScenarioLane, ...]:
    """MARS with these settings, and moves of them, against plain AR."""
    return (
        ScenarioLane("mars", TITLES["mars"], settings_for("mars", settings), moves=moves),
        ScenarioLane("ar", TITLES["ar"], settings_for("ar", settings)),
    )


def caches(settings: DecodeSettings) -> tuple[ScenarioLane, ...]:
    """The cursor against the paper's block cache, both with these settings."""
    return (
        ScenarioLane("mars", "cursor cache", settings),
        ScenarioLane("block", f"block cache {CACHE_BLOCK}", settings, CACHE_BLOCK),
    )


AS_THE_PAGE_OPENS = DEFAULTS
LOSSLESS = replace(DEFAULTS, max_new_tokens=160)
BOLD = DecodeSettings(tau=0.5, block_size=8, max_new_tokens=160)
USUAL = DecodeSettings(tau=0.95, block_size=8)
EXACT = DecodeSettings(tau=0.0, block_size=8, lossless=True)

SCENARIOS = (
    Scenario(
        "summary",
        "A summary",
        "It quotes the text that it sums up, and a quotation can be foreseen once it has begun.",
        "summarise",
        0,
        race(AS_THE_PAGE_OPENS),
    ),
    Scenario(
        "sky",
        "Why is the sky blue?",
        "Each shaded group came from one forward; plain AR needs a forward for every token, and "
        "writes the same text.",
        "explain",
        0,
        race(LOSSLESS),
    ),
    Scenario(
        "bank-account",
        "A Python class",
        "Code is easy to foresee: see how much comes from single forwards.",
        "code",
        0,
        race(LOSSLESS),
    ),
    Scenario(
        "json",
        "A JSON object",
        "Braces, keys and quotation marks come in groups; look where the model decides.",
        "extract",
        0,
        race(LOSSLESS),
    ),
    Scenario(
        "rewrite",
        "A mail made formal",
        "Polite phrases are long and fixed: whole ones come from a forward.",
        "rewrite",
        0,
        race(LOSSLESS),
    ),
    Scenario(
        "bold",
        "Too bold: τ 0.5, unverified",
        "Nothing is checked against AR here, and a low τ takes what the masks are unsure of: see "
        "where the text leaves AR's, and what becomes of it.",
        "bold",
        0,
        race(BOLD),
    ),
    Scenario(
        "python",
        "A Python function",
        "Code is easy to foresee: see how much comes from single forwards.",
        "python_functions",
        4,
        race(DecodeSettings()),
        TINY,
    ),
    Scenario(
        "tale",
        "A tale, where nothing helps",
        "A small model cannot foresee free prose: hardly a second token is taken, and the masks "
        "cost time. Not every text gets faster.",
        "natural",
        3,
        race(replace(USUAL, max_new_tokens=72)),
        TINY,
    ),
    Scenario(
        "lossless",
        "Lossless: the text of plain AR, token for token",
        "Every draft is checked against AR by the next forward; both texts are the same.",
        "symbolic",
        5,
        race(EXACT),
        TINY,
    ),
    Scenario(
        "word-problem",
        "A word problem",
        "Names and phrases of the question come back in chunks; look where the forwards are short.",
        "word_problems",
        1,
        race(USUAL),
        TINY,
    ),
    Scenario(
        "sorting",
        "Sorting, step by step",
        "Each step repeats what is left of the list, so much of it can be foreseen.",
        "symbolic",
        5,
        race(USUAL),
        TINY,
    ),
    Scenario(
        "tau-moved",
        "τ moved while it runs",
        "τ goes from 0.95 to 0.5 and back: see the chunks grow, and whether the text stays AR's.",
        "symbolic",
        0,
        race(USUAL, Move(12, 0.5), Move(34, 0.95)),
        TINY,
    ),
    Scenario(
        "block-cache",
        "The cursor against the block cache",
        "The same method with the paper's cache: it waits at the end of each block and spends a "
        "forward on committing it.",
        "symbolic",
        5,
        caches(USUAL),
        TINY,
    ),
)
"""In the order in which they are listed. The first is what the page shows before any run, with the
settings that its controls open with: Run repeats it."""
