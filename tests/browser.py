"""Debian's chromium for tests: how it is started, when tests are left out, whom a page may ask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

try:
    from playwright import sync_api as playwright
except ImportError:
    playwright = None

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

needs_browser = pytest.mark.skipif(
    playwright is None or not CHROMIUM.exists(), reason="chromium or playwright is not installed"
)


@contextmanager
def chromium() -> Iterator[playwright.Browser]:
    """A browser of its own, closed at the end."""
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=str(CHROMIUM), args=ARGS)
        yield launched
        launched.close()


def is_foreign(url: str, address: str) -> bool:
    """Whether a page at ``address`` asked somebody else."""
    return not url.startswith((address.rstrip("/"), "data:", "blob:"))
