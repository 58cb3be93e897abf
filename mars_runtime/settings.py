"""What a visitor may choose about decoding, checked once. Knows no model, tokenizer or torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, get_args

from mars_runtime.methods import METHODS, Method

Metric = Literal["probability", "margin", "entropy"]
Groups = Literal["one", "every"]
Masked = Literal["both", "draft", "target", "none"]
Threshold = Literal["fixed", "entropy", "agreement"]
BlockSize = int | Literal["auto"]

METRICS: tuple[Metric, ...] = get_args(Metric)
GROUPS: tuple[Groups, ...] = get_args(Groups)
MASKED: tuple[Masked, ...] = get_args(Masked)
THRESHOLDS: tuple[Threshold, ...] = get_args(Threshold)
AUTO: Literal["auto"] = "auto"
MAX_BLOCK_SIZE = 16
MAX_DRAFTS = MAX_BLOCK_SIZE - 1  # that one step verifies, whoever proposed them
MAX_FED = 64  # tokens that one step feeds a row: pending ones and masks
MAX_NEW_TOKENS = 4096
MAX_NAME = 200  # characters of a checkpoint's name
MIN_TOP_P = 0.01


class SettingsError(ValueError):
    """A setting out of range; the message is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    """How one row is decoded (paper section 3.3; design section 2).

    method: ``ar`` takes one token per forward, ``mars`` accepts proposals left to right, ``jacobi``
        verifies guesses that are the forward before's own answers (``decoders/plan.py``),
        ``speculative`` what a second, smaller model drafted (``decoders/draft_model.py``),
        ``block_diffusion`` fills blocks in order of confidence (``decoders/diffusion.py``).
    tau: threshold in 0..1 on the confidence; the first proposal is always taken.
    block_size: B, proposals per forward (B - 1 masks, or guesses), or ``auto``: what promises the
        most tokens per second by the costs of the device and what the row's masks foresaw so far.
        Under ``speculative`` also the number of tokens to draft.
    metric: which confidence is compared with tau (``acceptance.py``).
    lossless: emit only tokens that AR would have chosen; tau then says how boldly to draft.
    max_new_tokens: at most this many tokens, EOS included.
    temperature: 0 is greedy; above 0 tokens are drawn with noise keyed by (seed, position).
    top_p: above temperature 0 only the most probable tokens are drawn, as few as have together at
        least this probability; 1 leaves all.
    groups: where masks stand: ``one``, B - 1 of them after the last pending token; ``every``, as
        many after each draft too, so that whichever draft is the last good one, its successors have
        been proposed (lossless only: unverified there is nothing but the last pending token).
    lookup: draft also what followed where the last tokens occurred before (lossless only).
    draft: name of the checkpoint that drafts under ``speculative``, empty for the target's own.
    masked: which of the two models is fed masks as well, if it was trained for them: the draft, to
        propose several tokens per forward of its own; the target, to propose what the draft goes on
        behind.
    threshold: how tau is held: ``fixed``; or as the floor of one that rises with the ``entropy`` of
        AR's own token, or until the share of accepted tokens that AR would have chosen too is the
        ``target`` (``agreement``; ``decoders/plan.py``). Unverified mars alone.
    Raises SettingsError.
    """

    method: Method = "mars"
    tau: float = 0.95
    block_size: BlockSize = 4
    metric: Metric = "probability"
    lossless: bool = False
    max_new_tokens: int = 256
    temperature: float = 0.0
    seed: int = 0
    groups: Groups = "one"
    lookup: bool = False
    draft: str = ""
    masked: Masked = "both"
    top_p: float = 1.0
    threshold: Threshold = "fixed"
    target: float = 0.95

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise SettingsError(f"Choose a method among {', '.join(METHODS)}.")
        if self.metric not in METRICS:
            raise SettingsError(f"Choose a confidence metric among {', '.join(METRICS)}.")
        if self.groups not in GROUPS:
            raise SettingsError(f"Choose mask groups among {', '.join(GROUPS)}.")
        if self.masked not in MASKED:
            raise SettingsError(f"Choose which model is fed masks among {', '.join(MASKED)}.")
        if not isinstance(self.draft, str) or len(self.draft) > MAX_NAME:
            raise SettingsError("The draft is the name of a checkpoint.")
        if self.threshold not in THRESHOLDS:
            raise SettingsError(f"Choose how τ is held among {', '.join(THRESHOLDS)}.")
        for what, value in (("Lossless", self.lossless), ("Lookup", self.lookup)):
            if not isinstance(value, bool):
                raise SettingsError(f"{what} is either on or off.")
        _check_real("The threshold τ", self.tau, 0.0, 1.0)
        _check_real("The target of agreement", self.target, 0.5, 0.999)
        _check_real("The temperature", self.temperature, 0.0, 2.0)
        _check_real("Top-p", self.top_p, MIN_TOP_P, 1.0)
        if self.block_size != AUTO:
            _check_whole("The block size B", self.block_size, 1, MAX_BLOCK_SIZE, f", or {AUTO}")
        elif not METHODS[self.method].has_auto and "block_size" in METHODS[self.method].obeys:
            raise SettingsError(f"{METHODS[self.method].title} needs a number as B.")
        _check_whole("The number of tokens to generate", self.max_new_tokens, 1, MAX_NEW_TOKENS)
        _check_whole("The seed", self.seed, 0, 2**31 - 1)

    @property
    def num_proposals(self) -> int:
        """Proposals a forward: AR's own and, for mars and a speculative target that is fed masks,
        B - 1 by masks; 1 also where B is left to be chosen, until somebody does."""
        has_masks = self.method == "mars" or (
            self.method == "speculative" and self.masked in ("both", "target")
        )
        if not has_masks or self.block_size == "auto":
            return 1
        return self.block_size

    @property
    def num_drafts(self) -> int:
        """Tokens that a draft model drafts up to, before each verification."""
        if self.method != "speculative" or self.block_size == "auto":
            return 0
        return min(self.block_size, MAX_DRAFTS)

    @property
    def num_guesses(self) -> int:
        """Guesses that jacobi feeds a forward: B - 1, and none of any other method."""
        if self.method != "jacobi" or self.block_size == "auto":
            return 0
        return self.block_size - 1

    @property
    def is_verified(self) -> bool:
        """Whether drafts are verified before they leave, so that the output is AR's; AR has
        none."""
        facts = METHODS[self.method]
        is_chosen = self.lossless and "lossless" in facts.obeys
        return self.method != "ar" and (facts.is_exact or is_chosen)

    @property
    def is_adaptive(self) -> bool:
        """Whether tau is but the floor of a threshold that adapts."""
        return self.threshold != "fixed" and self.method == "mars" and not self.lossless

    @property
    def is_auto(self) -> bool:
        """Whether B is to be chosen at each forward."""
        return self.block_size == AUTO and METHODS[self.method].has_auto


def _check_real(what: str, value: object, low: float, high: float) -> None:
    is_real = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_real or not low <= value <= high:  # type: ignore[operator]  # NaN compares false
        raise SettingsError(f"{what} must be a number from {low:g} to {high:g}.")


def _check_whole(what: str, value: object, low: int, high: int, other: str = "") -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise SettingsError(f"{what} must be a whole number from {low} to {high}{other}.")


CAPTURED: Mapping[str, Any] = MappingProxyType(
    {"groups": "one", "lookup": False, "threshold": "fixed"}
)
"""What these settings are held at on a GPU, whatever is asked: a step is one captured graph there,
in which a tree of masks has no shape of its own, the text to look things up in is on the host, and
τ cannot wait for what a forward said."""


@lru_cache(maxsize=64)
def captured(settings: DecodeSettings) -> DecodeSettings:
    """The settings as far as a captured step obeys them, which is what its events say was in
    force."""
    return replace(settings, **CAPTURED)


RECOMMENDED = DecodeSettings(tau=0.0, lossless=True, block_size=AUTO, groups="every", lookup=True)
"""What the page and its endpoints begin with: AR's own text, drafted as boldly as pays here."""
