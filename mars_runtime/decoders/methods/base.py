"""The interface of a decoding method. No torch, because ``settings.py`` validates with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Protocol

from mars_runtime.acceptance import accept_prefix

MAX_BLOCK_SIZE = 16
MAX_DRAFTS = MAX_BLOCK_SIZE - 1
"""Drafts that one forward pass verifies at most."""
AUTO: Literal["auto"] = "auto"

Source = Literal["ar", "masks", "look-up", "draft model", "guesses"]
"""What produced a token. ``ar``: the prediction at the position that AR reads. ``guesses``: Jacobi.
"""


class MethodSettings(Protocol):
    @property
    def tau(self) -> float: ...
    @property
    def block_size(self) -> int | Literal["auto"]: ...
    @property
    def metric(self) -> str: ...
    @property
    def lossless(self) -> bool: ...
    @property
    def mask_layout(self) -> str: ...
    @property
    def lookup(self) -> bool: ...
    @property
    def draft(self) -> str: ...
    @property
    def masked(self) -> str: ...
    @property
    def tau_policy(self) -> str: ...
    @property
    def agreement_target(self) -> float: ...
    @property
    def is_ar_lookup(self) -> bool: ...


def fixed_size(settings: MethodSettings) -> int:
    """Return B; 1 for automatic B until it is chosen."""
    return 1 if settings.block_size == AUTO else settings.block_size


class Method:
    """obeys: fields of ``DecodeSettings`` that this method uses, but some methods do not.
    refuses: fields of ``DecodeSettings`` that this method rejects and all other methods use.
    drafts: what proposes tokens, in words; empty for AR.
    has_auto: whether B may be ``auto``.
    is_exact: whether the text always equals AR's.
    is_reference: whether this is AR, to which all other methods are compared.
    needs: what the checkpoint must have, as the object of "needs".
    is_alone: whether a decoder of its own runs it, one row at a time, and may accept in any order.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    obeys: ClassVar[frozenset[str]] = frozenset()
    refuses: ClassVar[frozenset[str]] = frozenset()
    drafts: ClassVar[str] = "masks"
    has_auto: ClassVar[bool] = False
    is_exact: ClassVar[bool] = False
    is_reference: ClassVar[bool] = False
    needs: ClassVar[str] = ""
    needs_draft_model: ClassVar[bool] = False
    is_alone: ClassVar[bool] = False

    def describe(self, settings: MethodSettings) -> str:
        size = f" B={settings.block_size}" if "block_size" in self.obeys else ""
        return f"{self.title}{size}"

    def is_verified(self, settings: MethodSettings) -> bool:
        """Return whether drafts are verified, so that the text is AR's. False for AR."""
        is_chosen = settings.lossless and "lossless" in self.obeys
        return (self.is_exact or is_chosen) and not self.is_reference

    def num_proposals(self, settings: MethodSettings) -> int:
        """Return the number of proposals of one group: AR's and one for each mask."""
        return fixed_size(settings)

    def num_guesses(self, settings: MethodSettings) -> int:
        """Return the maximum number of drafts that come neither from masks nor from the text."""
        return 0

    def max_fed(self, settings: MethodSettings, trained: int) -> tuple[int, int]:
        """Return the maximum numbers of drafts and of masks per group; ``trained``: B of the
        training.
        """
        num_drafts = MAX_DRAFTS if self.is_verified(settings) else 0
        return num_drafts, self.num_proposals(settings) - 1

    def num_accepted(
        self, confidences: Sequence[float], settings: MethodSettings, remaining: int
    ) -> int:
        return accept_prefix(confidences, settings.tau)

    def guesses(
        self, last: int, drafts: Sequence[int], count: int, ends: frozenset[int]
    ) -> list[int] | None:
        """Return guesses after ``drafts``, ``count`` tokens together, or None if other drafts are
        used. Nothing is guessed after a token of ``ends``.
        """
        return None

    @property
    def is_guessing(self) -> bool:
        return self.draft_source(is_guessed=False, is_looked_up=False) == "guesses"

    def source(self, index: int) -> Source:
        """Return what predicted a token that was not a draft, by its index in the step."""
        return "masks" if index else "ar"

    def draft_source(self, *, is_guessed: bool, is_looked_up: bool) -> Source:
        return "look-up" if is_looked_up else "masks"
