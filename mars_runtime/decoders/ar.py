"""Autoregressive decoding: the cursor forward with one token per forward and no masks.

It is its own method, not MARS with tau = 1: a confidence can round to exactly 1. Knows no more than
``factory.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mars_runtime.decoders import factory
from mars_runtime.decoders.base import CausalModel, SettingsSource, Vocabulary, always
from mars_runtime.events import Event


def decode(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
) -> Iterator[Event]:
    """``factory.decode`` with the method held at ar, whatever the settings say."""
    return factory.decode(model, vocabulary, prompts, always("ar", settings))
