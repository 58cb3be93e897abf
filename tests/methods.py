"""Decoding with a fixed method, regardless of the settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mars_runtime.decoders.base import SettingsSource, Vocabulary
from mars_runtime.decoders.cursor import decode
from mars_runtime.decoders.methods import Method
from mars_runtime.model.forward import CausalModel
from mars_runtime.runs.events import Event


def decode_as(
    method: Method,
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
) -> Iterator[Event]:
    """``decode`` by this method."""
    return decode(model, vocabulary, prompts, lambda: replace(settings(), method=method))
