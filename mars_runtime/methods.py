"""The table of decoding methods, used by settings, commands, endpoints and the page.

To add a method, add its name to ``Method`` and its properties to ``METHODS``;
``tools/wire_types.py`` copies them to the page's scripts. Decoders are in ``decoders/``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Method = Literal["mars", "ar", "jacobi", "speculative", "block_diffusion"]


@dataclass(frozen=True, slots=True)
class MethodFacts:
    """Properties of a decoding method.

    title: the displayed name.
    obeys: fields of ``DecodeSettings`` that this method uses, but some methods do not.
    refuses: fields of ``DecodeSettings`` that this method rejects and all other methods use.
    has_auto: whether B may be ``auto``.
    is_exact: whether the text always equals AR's.
    needs: what the checkpoint must have, as the object of "needs"; empty for no requirement.
    is_alone: whether runs of this method never share forward passes with other runs.
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
"""Properties of each method, in the order in which the page shows them."""

LOOKUP = "lookup"
"""Name of the lane that decodes by plain AR with drafts from prompt lookup, without masks.

This lane is not a method; its settings are ``settings.AR_LOOKUP``.
"""
LANES: dict[str, MethodFacts] = {
    "mars": METHODS["mars"],
    "ar": METHODS["ar"],
    LOOKUP: MethodFacts("AR + lookup", is_exact=True),
    **{str(name): facts for name, facts in METHODS.items()},
}
"""Properties of each lane of a race: all methods, and plain AR with prompt lookup."""
