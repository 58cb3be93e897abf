"""The scripts and styles of the page."""

from __future__ import annotations

from mars_runtime.show import web

ENTRIES = (
    "views/race/view.js",
    "views/conversation/view.js",
    "views/throughput/view.js",
    "core/recordings.js",
    "explain/explain.js",
    "tour/tour.js",
    "views/grid/view.js",
    "views/review/view.js",
    "views/page/page.js",
)
"""Modules whose exported functions ``mount...`` become functions of ``window.mars``, such as
``mars.mountRaceView``.
"""


def head() -> str:
    """Return the HTML elements with the scripts and styles, for the head of a document."""
    return f"<style>{web.styles()}</style>\n<script>{web.bundle(ENTRIES)}</script>"
