"""What a visitor may choose about decoding, checked once. Knows no model, tokenizer or torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Method = Literal["ar", "mars"]
Metric = Literal["probability", "margin", "entropy"]
Groups = Literal["one", "every"]
BlockSize = int | Literal["auto"]

METHODS: tuple[Method, ...] = get_args(Method)
METRICS: tuple[Metric, ...] = get_args(Metric)
GROUPS: tuple[Groups, ...] = get_args(Groups)
AUTO: Literal["auto"] = "auto"
MAX_BLOCK_SIZE = 16
MAX_DRAFTS = MAX_BLOCK_SIZE - 1  # that one step verifies, whoever proposed them
MAX_FED = 64  # tokens that one step feeds a row: pending ones and masks
MAX_NEW_TOKENS = 4096


class SettingsError(ValueError):
    """A setting out of range; the message is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    """How one row is decoded (paper section 3.3; design section 2).

    method: ``ar`` takes one token per forward, ``mars`` accepts proposals left to right.
    tau: threshold in 0..1 on the confidence; the first proposal is always taken.
    block_size: B, proposals per forward (B - 1 masks), or ``auto``: what promises the most tokens
        per second by the costs of the device and what the row's masks foresaw so far.
    metric: which confidence is compared with tau (``acceptance.py``).
    lossless: emit only tokens that AR would have chosen; tau then says how boldly to draft.
    max_new_tokens: at most this many tokens, EOS included.
    temperature: 0 is greedy; above 0 tokens are drawn with noise keyed by (seed, position).
    groups: where masks stand: ``one``, B - 1 of them after the last pending token; ``every``, as
        many after each draft too, so that whichever draft is the last good one, its successors have
        been proposed (lossless only: unverified there is nothing but the last pending token).
    lookup: draft also what followed where the last tokens occurred before (lossless only).
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

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise SettingsError(f"Choose a method among {', '.join(METHODS)}.")
        if self.metric not in METRICS:
            raise SettingsError(f"Choose a confidence metric among {', '.join(METRICS)}.")
        if self.groups not in GROUPS:
            raise SettingsError(f"Choose mask groups among {', '.join(GROUPS)}.")
        for what, value in (("Lossless", self.lossless), ("Lookup", self.lookup)):
            if not isinstance(value, bool):
                raise SettingsError(f"{what} is either on or off.")
        _check_real("The threshold τ", self.tau, 0.0, 1.0)
        _check_real("The temperature", self.temperature, 0.0, 2.0)
        if self.block_size != AUTO:
            _check_whole("The block size B", self.block_size, 1, MAX_BLOCK_SIZE, f", or {AUTO}")
        _check_whole("The number of tokens to generate", self.max_new_tokens, 1, MAX_NEW_TOKENS)
        _check_whole("The seed", self.seed, 0, 2**31 - 1)

    @property
    def num_proposals(self) -> int:
        """Proposals a forward: B for mars, 1 for ar; 1 also where B is left to be chosen, until
        somebody does."""
        if self.method == "ar" or self.block_size == "auto":
            return 1
        return self.block_size

    @property
    def is_auto(self) -> bool:
        """Whether B is to be chosen at each forward."""
        return self.block_size == AUTO and self.method == "mars"


def _check_real(what: str, value: object, low: float, high: float) -> None:
    is_real = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_real or not low <= value <= high:  # type: ignore[operator]  # NaN compares false
        raise SettingsError(f"{what} must be a number from {low:g} to {high:g}.")


def _check_whole(what: str, value: object, low: int, high: int, other: str = "") -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise SettingsError(f"{what} must be a whole number from {low} to {high}{other}.")


RECOMMENDED = DecodeSettings(tau=0.0, lossless=True, block_size=AUTO, groups="every", lookup=True)
"""What the page and its endpoints begin with: AR's own text, drafted as boldly as pays here."""
