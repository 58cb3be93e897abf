"""Show runs in a notebook, or in a browser outside of one.

A cell's output is an ``iframe`` with a document of its own, so its script and styles do not touch
the notebook, and its text can run nothing. Where a notebook shows no frames (an untrusted one, or
one rendered by a code host), the plain text is left.
"""

from __future__ import annotations

import html
import sys
import tempfile
import webbrowser
from pathlib import Path

HEIGHT = 240
"""Pixels of a frame until its script has fitted it."""
FRAME = (
    '<div><pre data-mars-text style="white-space: pre-wrap">{text}</pre>'
    '<iframe title="{title}" srcdoc="{page}" '
    'style="display: block; width: 100%; height: {height}px; border: 0"></iframe></div>'
)


def framed(page: str, title: str, text: str) -> str:
    """Return HTML that shows a document, or ``text`` where frames are not shown."""
    parts = {"text": text, "title": title, "page": page}
    escaped = {name: html.escape(part) for name, part in parts.items()}
    return FRAME.format(**escaped, height=HEIGHT)


def display(page: str, title: str, text: str) -> None:
    """Show a document in the current notebook, or write it to a file and open a browser."""
    if _is_notebook():
        from IPython import display as ipython

        ipython.display(ipython.HTML(framed(page, title, text)))
        return
    path = Path(tempfile.mkdtemp(prefix="mars-")) / "replay.html"
    path.write_text(page, encoding="utf-8")
    webbrowser.open(path.as_uri())
    print(f"The replay was saved to {path}.")


def _is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return hasattr(shell, "kernel")
