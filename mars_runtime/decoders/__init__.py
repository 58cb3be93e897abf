"""Decoders: prompts and settings in, one event per forward out. One file per method."""

from mars_runtime.decoders.cursor import CursorBatch
from mars_runtime.decoders.factory import decode, new_batch

__all__ = ["CursorBatch", "decode", "new_batch"]
