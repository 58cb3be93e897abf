"""Decoders turn prompts and settings into events, one per forward pass."""

from mars_runtime.decoders.cursor import CursorBatch
from mars_runtime.decoders.factory import decode

__all__ = ["CursorBatch", "decode"]
