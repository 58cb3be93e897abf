"""The recorded runs that come with a page: one script element of data.

Its scripts read them by name (``assets/web/explain/recordings.js``), so pictures and the tour need
no server. Knows no gradio, and not what the runs show.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.components import assets
from app.components.assets import ASSETS

NAMES = ("python", "lossless", "tau-moved", "tale", "block-cache")
"""What "How it works" and the tour show."""


def element(names: Sequence[str] = NAMES) -> str:
    """``<script type="application/json">`` with ``runs``: name -> value of the race view."""
    folder = ASSETS / "recordings"
    values = {name: (folder / f"{name}.txt").read_text("utf-8") for name in names}
    text = assets.script_data({"runs": values})
    return f'<script type="application/json" id="mars-recorded">{text}</script>'
