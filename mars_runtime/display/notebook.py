"""Show runs in a notebook, or in a browser if there is no notebook.

A cell's output is an ``iframe`` with its own document, so text inside it cannot run code in the
notebook.
"""

from __future__ import annotations

import html
import os
import sys
import tempfile
import webbrowser
from pathlib import Path

HEIGHT = 240
"""Height of the frame in pixels until its script adjusts it."""
FRAME = (
    '<div><pre data-mars-text style="white-space: pre-wrap">{text}</pre>'
    '<iframe title="{title}" srcdoc="{page}" '
    'style="display: block; width: 100%; height: {height}px; border: 0"></iframe></div>'
)


def framed(page: str, title: str, text: str) -> str:
    parts = {"text": text, "title": title, "page": page}
    escaped = {name: html.escape(part) for name, part in parts.items()}
    return FRAME.format(**escaped, height=HEIGHT)


def display(page: str, title: str, text: str) -> None:
    """Show a document in the current notebook, or save it to a file and open a browser."""
    if _is_notebook():
        from IPython import display as ipython

        shown = {"text/plain": text, "text/html": framed(page, title, text)}
        ipython.display(shown, raw=True)
        return
    path = Path(tempfile.mkdtemp(prefix="mars-")) / "replay.html"
    path.write_text(page, encoding="utf-8")
    print(f"The replay was saved to {path}.", flush=True)
    if _has_display():
        webbrowser.open(path.as_uri())


def _has_display() -> bool:
    """Return whether a browser can open a window; without one, a text browser would block."""
    names = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, names))


def _is_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return hasattr(shell, "kernel")
