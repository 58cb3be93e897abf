"""The base class of all errors that a caller of the library may handle, and the decoders' error."""

from __future__ import annotations


class MarsError(Exception):
    """An error with a one-sentence message for the user: what is wrong and what to do."""


class DecodeError(MarsError, RuntimeError):
    """Decoding cannot start or continue. ``rows`` contains the rows that caused the error: indices
    of the batch, or row numbers if a decoder has translated them; none if it concerns all rows.
    """

    def __init__(self, message: str, rows: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.rows = rows
