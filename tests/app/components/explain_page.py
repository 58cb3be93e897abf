"""A page of its own for "How it works" and the tour: one document, nothing to fetch.

``python explain_page.py FILE [dark]`` writes it, to look at.
"""

from __future__ import annotations

import sys
from pathlib import Path

from app.ui import assets
from app.ui.recordings import script_element
from app.ui.views import ExplainView

BODY = "margin: 0; padding: 24px 32px; background: var(--body, #fff)"


def document(theme: str = "light") -> str:
    """The whole page; its view is mounted when it has loaded."""
    dark = ' class="dark" ' if theme == "dark" else " "
    ground = "#101419" if theme == "dark" else "#ffffff"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>How it works</title>'
        f'<meta name="viewport" content="width=device-width">{script_element()}{assets.head()}'
        f'</head><body{dark}style="{BODY}; --body: {ground}">'
        '<main><button id="present" onclick="mars.mountPresenter()">Present</button>'
        f"{ExplainView.template('')}</main>"
        "<script>mars.mountExplain(document.body);</script></body></html>"
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document(*sys.argv[2:3]), encoding="utf-8")
