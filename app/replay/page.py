"""Pages of their own: the race view and its data in one file that opens anywhere, network or not.

What is shown travels as JSON in an element that no browser runs, and reaches the page as text
alone. Every script that may run is named by its hash, and nothing may be fetched. Knows no gradio
and no trace.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from app.components import assets

ENTRIES = ("views/race/view.js", "views/replay/page.js", "views/replay/site.js")
STYLE = "views/replay/page.css"
PLACE = "@data"
"""Stands in a shell where its data go; the last one counts (assets/web/export/replay.js)."""


@lru_cache(maxsize=1)
def shell() -> str:
    """A replay page without its data: some 5 MB, nearly all of it plotly.js."""
    plotly = assets.plotly_file()
    scripts = [plotly.read_text("utf-8")] if plotly else []
    view = assets.template("views/race/view.html", plotly="", replay="", opens="")
    return document(view, "mountReplay", [*scripts, assets.bundle(ENTRIES)])


def filled(page: str, data: Mapping[str, Any]) -> str:
    """The page with its data; nothing in them can end the element that they stand in."""
    before, _, after = page.rpartition(PLACE)
    return before + assets.script_data(data) + after


def document(
    main: str, mount: str, scripts: Sequence[str] = (), addresses: Sequence[str] = ()
) -> str:
    """A whole document around ``main``, where its data are not filled in yet.

    mount: the function of the bundle that is called at the end. scripts stand in the document,
    those at ``addresses`` beside it.
    """
    start = f"mars.{mount}();"
    style = assets.styles() + (assets.WEB / STYLE).read_text("utf-8")
    linked = [f'<script src="{address}"></script>' for address in addresses]
    inline = [f"<script>{script}</script>" for script in scripts]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy([*scripts, start])}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>MARS live</title>\n<style>{style}</style>",
            *linked,
            *inline,
            '</head>\n<body class="mars-page">',
            assets.template("views/replay/page.html").replace("@main", main),
            f'<script type="application/json" id="data">{PLACE}</script>',
            f"<script>{start}</script>\n</body>\n</html>\n",
        ]
    )


def _policy(scripts: Sequence[str]) -> str:
    """What a page may do: run these scripts and those beside it, draw, and fetch nothing."""
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
