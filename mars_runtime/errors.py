"""The base class of the errors that a caller of the library handles."""

from __future__ import annotations


class MarsError(Exception):
    """Something cannot be done; the message is one sentence with the remedy."""
