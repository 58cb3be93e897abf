"""MARS: several proposals per forward, accepted from left to right, optionally lossless.

Relatives of the lossless mode: I-DLM (arXiv 2604.11035), TiDAR (2511.08923), BiTA (2401.12522) and
speculative decoding (2211.17192). Knows no more than ``factory.py``.
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
    """``factory.decode`` with the method held at mars, whatever the settings say."""
    return factory.decode(model, vocabulary, prompts, always("mars", settings))
