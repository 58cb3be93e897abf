"""The base class of all errors that a caller of the library may handle."""

from __future__ import annotations


class MarsError(Exception):
    """An error with a one-sentence message for the user: what is wrong and what to do."""
