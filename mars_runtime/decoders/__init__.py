"""Decoders: prompts and settings in, one event a forward out. One file a method."""

from mars_runtime.decoders.cursor import CursorBatch, decode

__all__ = ["CursorBatch", "decode"]
