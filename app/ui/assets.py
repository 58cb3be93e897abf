"""The scripts and styles of the page."""

from __future__ import annotations

from mars_runtime.display import web


def head() -> str:
    """Return the HTML elements with the scripts and styles, for the head of a document."""
    return f"<style>{web.styles()}</style>\n<script>{web.script('page')}</script>"
