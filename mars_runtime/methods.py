"""Which ways of decoding there are: the table that settings, commands, endpoints and page read.

A new method is a name in ``Method`` and a line in ``METHODS``, of which ``tools/wire_types.py``
writes the page's own. Knows how none of them decodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Method = Literal["mars", "ar", "jacobi", "speculative", "block_diffusion"]


@dataclass(frozen=True, slots=True)
class MethodFacts:
    """What can be said of a method without running it.

    title: what people read. obeys: the fields of ``DecodeSettings`` that act on it beside the
    metric, the limit and the draws, which act on all. refuses: of those that act on all, what it
    can't do. has_auto: B may be left to be chosen. is_exact: it writes AR's own text, whatever is
    set. needs: what a checkpoint must have for it, in words that follow "needs"; empty where any
    will do. is_alone: its runs share no forward.
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
            {"tau", "block_size", "lossless", "groups", "lookup", "threshold", "target", "aim"}
        ),
        has_auto=True,
        needs="a mask token",
    ),
    "ar": MethodFacts("plain AR", is_exact=True),
    "jacobi": MethodFacts("Jacobi", frozenset({"block_size"}), is_exact=True),
    "speculative": MethodFacts(
        "speculative",
        frozenset({"tau", "block_size", "groups", "lookup", "draft", "masked"}),
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
"""In the order in which people are offered them."""

LOOKUP = "lookup"
"""The lane of plain AR that verifies drafts of prompt lookup: no masks are fed. It is no method of
its own; ``settings.AR_LOOKUP`` are its settings."""
LANES: dict[str, MethodFacts] = {
    "mars": METHODS["mars"],
    "ar": METHODS["ar"],
    LOOKUP: MethodFacts("AR + lookup", is_exact=True),
    **{str(name): facts for name, facts in METHODS.items()},
}
"""What can be run side by side: the methods, and plain AR with prompt lookup."""
