"""The scripts and styles of the page."""

from __future__ import annotations

from mars_runtime.display import web


def head() -> str:
    return f"<style>{web.styles()}</style>\n<script>{web.script('page')}</script>"
