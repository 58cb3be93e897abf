"""The demo page: a leaf that renders what the runtime says. Deleting it breaks nothing below."""

from app import stubs

stubs.write_none()
