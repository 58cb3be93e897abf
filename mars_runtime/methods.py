"""The methods of decoding: the table used by settings, commands, endpoints and the page.

A new method is a name in ``Method`` and a row in ``METHODS``, from which ``tools/wire_types.py``
generates the page's copy. The decoders are implemented elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Method = Literal["mars", "ar", "jacobi", "speculative", "block_diffusion"]


@dataclass(frozen=True, slots=True)
class MethodFacts:
    """Properties of a method.

    title: its displayed name. obeys: the fields of ``DecodeSettings`` that it uses, in addition to
    the metric, the limit and the sampling settings, which all methods use. refuses: settings of the
    latter kind that it does not support. has_auto: whether it supports automatic B. is_exact:
    whether it always generates AR's own text. needs: what a checkpoint must have, as words that
    follow "needs"; empty if any will do. is_alone: whether its runs share no forwards.
    """

    title: str
    obeys: frozenset[str] = field(default_factory=frozenset)
    refuses: frozenset[str] = field(default_factory=frozenset)
    has_auto: bool = False
    is_exact: bool = False
    needs: str = ""
    is_alone: bool = False


METHODS: dict[Method, MethodFacts] = {
    "mars": MethodFacts(
        "MARS",
        frozenset(
            {
                *("tau", "block_size", "lossless", "mask_layout", "lookup"),
                *("tau_policy", "agreement_target", "auto_objective"),
            }
        ),
        has_auto=True,
        needs="a mask token",
    ),
    "ar": MethodFacts("plain AR", is_exact=True),
    "jacobi": MethodFacts("Jacobi", frozenset({"block_size"}), is_exact=True),
    "speculative": MethodFacts(
        "speculative",
        frozenset({"tau", "block_size", "mask_layout", "lookup", "draft", "masked"}),
        is_exact=True,
        needs="a draft model that shares its vocabulary",
    ),
    "block_diffusion": MethodFacts(
        "block diffusion",
        frozenset({"tau", "block_size"}),
        refuses=frozenset(
            {
                *("repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias"),
                "min_tokens",
            }
        ),
        has_auto=True,
        needs="a checkpoint trained to fill blocks in any order",
        is_alone=True,
    ),
}
"""The methods, in the order in which they are shown."""

LOOKUP = "lookup"
"""The lane of plain AR that verifies drafts of prompt lookup, without masks.

It is not a method; its settings are ``settings.AR_LOOKUP``.
"""
LANES: dict[str, MethodFacts] = {
    "mars": METHODS["mars"],
    "ar": METHODS["ar"],
    LOOKUP: MethodFacts("AR + lookup", is_exact=True),
    **{str(name): facts for name, facts in METHODS.items()},
}
"""What can be run next to each other: the methods, and plain AR with prompt lookup."""
