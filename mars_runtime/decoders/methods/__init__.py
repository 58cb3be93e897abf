"""The decoding methods. To add one, write its class in a file of this folder and add it to
``METHODS``; ``tools/wire_types.py`` copies its facts to the page's scripts.
"""

from __future__ import annotations

from mars_runtime.decoders.methods.ar import Autoregression
from mars_runtime.decoders.methods.base import AUTO, MAX_BLOCK_SIZE, MAX_DRAFTS, Method, Source
from mars_runtime.decoders.methods.block_diffusion import BlockDiffusion
from mars_runtime.decoders.methods.jacobi import Jacobi
from mars_runtime.decoders.methods.mars import AR_LOOKUP, Mars
from mars_runtime.decoders.methods.speculative import Speculative

__all__ = ["AUTO", "LANES", "LOOKUP", "MAX_BLOCK_SIZE", "MAX_DRAFTS", "METHODS", "Method", "Source"]

METHODS: dict[str, Method] = {
    method.name: method
    for method in (Mars(), Autoregression(), Jacobi(), Speculative(), BlockDiffusion())
}
"""In the order in which the page shows them."""

LOOKUP = "lookup"
"""Lane of plain AR with drafts from prompt lookup. Not a method; its settings are
``settings.AR_LOOKUP``.
"""


class _ArLookup(Autoregression):
    title = AR_LOOKUP
    drafts = "prompt lookup"
    is_reference = False


LANES: dict[str, Method] = {
    "mars": METHODS["mars"],
    "ar": METHODS["ar"],
    LOOKUP: _ArLookup(),
    **METHODS,
}
"""Facts of each lane of a race."""
