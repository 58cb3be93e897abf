"""The HTML document that replays recorded runs without a server, for Share, notebooks and
``show``.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from mars_runtime.decoders.methods import METHODS
from mars_runtime.display import web
from mars_runtime.runs.trace import Header, Trace

STYLE = "views/replay/page.css"
START = "mars.mountReplay();"
PLACE = "@data"
"""Placeholder for the data of a document. Only the last occurrence is replaced, as in files.js."""


@lru_cache(maxsize=2)
def shell(has_charts: bool = True) -> str:
    """Return a replay page without data, about 5 MB with plotly.js. The content security policy
    allows only the document's scripts and forbids all requests.
    """
    plotly = web.plotly_file() if has_charts else None
    scripts = [plotly.read_text("utf-8")] if plotly else []
    scripts.append(web.script("replay"))
    view = web.template("views/race/view.html", plotly="", replay="", opens="passes")
    body = web.template("views/replay/page.html").replace("@main", view)
    style = "\n".join((web.WEB / name).read_text("utf-8") for name in (*web.STYLES, STYLE))
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy([*scripts, START])}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>MARS live</title>\n<style>{style}</style>",
            *(f"<script>{script}</script>" for script in scripts),
            '</head>\n<body class="mars-page">',
            body,
            f'<script type="application/json" id="data">{PLACE}</script>',
            f"<script>{START}</script>\n</body>\n</html>\n",
        ]
    )


def replay(traces: Sequence[Trace], has_charts: bool = True) -> str:
    title = " against ".join(title for _, title in _titles(traces))
    return filled(shell(has_charts), {"title": title, "value": race_value(traces)})


def race_value(traces: Sequence[Trace]) -> str:
    """Convert runs to the format that the race view reads (assets/web/core/wire.js)."""
    titles = _titles(traces)
    header = traces[0].header
    head = {
        "run": "recorded",
        "lanes": [{"lane": lane, "title": title} for lane, title in titles],
        "recorded": recorded_note(header) or True,
    }
    lines = [
        f"{lane}\t{line}"
        for (lane, _), trace in zip(titles, traces, strict=True)
        for line in trace.lines()
    ]
    return "\n".join([json.dumps(head), *lines, ""])


def _titles(traces: Sequence[Trace]) -> list[tuple[str, str]]:
    lanes: list[tuple[str, str]] = []
    for trace in traces:
        method = trace.header.settings.method
        number = sum(name.startswith(method) for name, _ in lanes)
        name = f"{method}-{number + 1}" if number else method
        lanes.append((name, trace.header.name or METHODS[method].title))
    return lanes


def recorded_note(header: Header) -> str:
    return ", on ".join(part for part in (header.date[:10], header.hardware) if part)


def filled(page: str, data: Mapping[str, Any]) -> str:
    before, _, after = page.rpartition(PLACE)
    return before + web.script_data(data) + after


def _policy(scripts: Sequence[str]) -> str:
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
