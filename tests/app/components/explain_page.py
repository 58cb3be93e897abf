"""A page of its own for "How it works" and the presentation: one document, nothing to fetch."""

from __future__ import annotations

from app.ui import assets
from app.ui.recordings import recorded
from app.ui.views import ExplainView
from mars_runtime.display import web

BODY = "margin: 0; padding: 24px 32px; background: #fff"


def document() -> str:
    """The whole page; its view is mounted when it has loaded."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>How it works</title>'
        f'<meta name="viewport" content="width=device-width">'
        f'<script type="application/json" id="mars-recorded">{recorded()}</script>{assets.head()}'
        f'</head><body style="{BODY}">'
        '<main><button id="present" onclick="mars.mountPresenter()">Present</button>'
        f"{web.template(ExplainView.page)}</main>"
        "<script>mars.mountExplain(document.body);</script></body></html>"
    )
