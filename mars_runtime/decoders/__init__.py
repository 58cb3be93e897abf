"""Decoders: prompts and settings in, one event per forward out."""

from mars_runtime.decoders.cursor import CursorBatch
from mars_runtime.decoders.factory import decode

__all__ = ["CursorBatch", "decode"]
