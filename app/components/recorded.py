"""The recorded runs that come with a page, as one script element of data in its head.

Its scripts read them by name (``assets/explain/recordings.js``), so pictures and the tour need no
server. Knows no gradio, and not what the runs show.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from app.components.bundle import ASSETS

NAMES = ("python", "lossless", "tau-moved", "tale", "block-cache")
"""What "How it works" and the tour show."""


def element(names: Sequence[str] = NAMES) -> str:
    """``<script type="application/json">`` with name -> value of the race view."""
    folder = ASSETS / "recordings"
    values = {name: (folder / f"{name}.txt").read_text("utf-8") for name in names}
    data = json.dumps(values, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="mars-recorded">{data}</script>'
