"""HTML documents that draw a recorded run without a server: exported runs, and the pages of a site
(``tools/make_site.py``).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from mars_runtime import web

ENTRIES = ("views/race/view.js", "views/replay/page.js")
STYLE = "views/replay/page.css"
PLACE = "@data"
"""Placeholder for the data of a page; the last occurrence counts (assets/web/export/files.js)."""


@lru_cache(maxsize=1)
def shell() -> str:
    """Return a replay page without data, which the page uses to export runs: some 5 MB, mostly
    plotly.js.
    """
    plotly = web.plotly_file()
    scripts = [plotly.read_text("utf-8")] if plotly else []
    view = web.template("views/race/view.html", plotly="", replay="", opens="passes")
    return document(view, "mountReplay", [*scripts, web.bundle(ENTRIES)])


def filled(page: str, data: Mapping[str, Any]) -> str:
    """Insert the data into a page, escaped so that they cannot end their script element."""
    before, _, after = page.rpartition(PLACE)
    return before + web.script_data(data) + after


def document(
    main: str, mount: str, scripts: Sequence[str] = (), addresses: Sequence[str] = ()
) -> str:
    """Return a whole HTML document around ``main``, with a placeholder for its data.

    The data are JSON in an element that no browser runs, and are only shown as text. The content
    security policy lists the hash of every script and forbids all requests.

    mount: function of the bundle that is called at the end. scripts: inlined. addresses: scripts in
    the same folder, shared by pages. Styles are inlined in every page, so that one opened from disk
    can read them to export a picture of itself.
    """
    start = f"mars.{mount}();"
    style = web.styles() + (web.WEB / STYLE).read_text("utf-8")
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
            web.template("views/replay/page.html").replace("@main", main),
            f'<script type="application/json" id="data">{PLACE}</script>',
            f"<script>{start}</script>\n</body>\n</html>\n",
        ]
    )


def _policy(scripts: Sequence[str]) -> str:
    """Return the content security policy: allow these scripts and those in the folder; forbid
    requests.
    """
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
