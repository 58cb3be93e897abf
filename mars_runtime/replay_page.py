"""HTML documents that draw recorded runs without a server.

Uses: exported runs, the pages of a static site (``tools/make_site.py``) and notebook cells.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from mars_runtime import web
from mars_runtime.methods import METHODS
from mars_runtime.trace import Header, Trace

RESULT_ENTRIES = ("views/notebook/result.js",)
RESULT_STYLES = (
    "core/tokens.css",
    "views/race/layout.css",
    "text/text.css",
    "text/rendered.css",
    "views/race/passes.css",
    "views/replay/page.css",
    "views/notebook/result.css",
)
ENTRIES = ("views/race/view.js", "views/replay/page.js")
STYLE = "views/replay/page.css"
PLACE = "@data"
"""Placeholder for the data of a document. Only the last occurrence is replaced, as in files.js."""


@lru_cache(maxsize=1)
def shell() -> str:
    """Return a replay page without data, about 5 MB with plotly.js.

    ``filled`` and the scripts of the page insert the data of runs.
    """
    plotly = web.plotly_file()
    scripts = [plotly.read_text("utf-8")] if plotly else []
    view = web.template("views/race/view.html", plotly="", replay="", opens="passes")
    return document(view, "mountReplay", [*scripts, web.bundle(ENTRIES)])


def replay(traces: Sequence[Trace]) -> str:
    """Return an HTML document that replays these runs side by side."""
    title = " against ".join(title for _, title in _titles(traces))
    return filled(shell(), {"title": title, "value": race_value(traces)})


@lru_cache(maxsize=1)
def _result_shell() -> str:
    body = web.template("views/notebook/result.html")
    return bare_document(
        body, "mars-page mars-result", "mountResult", RESULT_STYLES, [web.bundle(RESULT_ENTRIES)]
    )


def result(traces: Sequence[Trace]) -> str:
    """Return a small HTML document with the headline, texts and forward passes of these runs."""
    return filled(_result_shell(), {"value": race_value(traces)})


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
    """Return a unique lane name and a title for each run."""
    lanes: list[tuple[str, str]] = []
    for trace in traces:
        method = trace.header.settings.method
        number = sum(name.startswith(method) for name, _ in lanes)
        name = f"{method}-{number + 1}" if number else method
        lanes.append((name, trace.header.name or METHODS[method].title))
    return lanes


def recorded_note(header: Header) -> str:
    """Return the date and the hardware of a recorded run, for its label on the page."""
    return ", on ".join(part for part in (header.date[:10], header.hardware) if part)


def filled(page: str, data: Mapping[str, Any]) -> str:
    """Replace the placeholder of a document by data, escaped for a script element."""
    before, _, after = page.rpartition(PLACE)
    return before + web.script_data(data) + after


def document(
    main: str, mount: str, scripts: Sequence[str] = (), addresses: Sequence[str] = ()
) -> str:
    """Return an HTML document that contains ``main``, a title, a theme switch and a footer.

    Styles are inlined, because the export of a picture reads them, and a page opened from disk
    cannot read linked style sheets. Other parameters: see ``bare_document``.
    """
    body = web.template("views/replay/page.html").replace("@main", main)
    return bare_document(body, "mars-page", mount, [*web.STYLES, STYLE], scripts, addresses)


def bare_document(
    body: str,
    body_class: str,
    mount: str,
    styles: Sequence[str],
    scripts: Sequence[str] = (),
    addresses: Sequence[str] = (),
) -> str:
    """Return an HTML document with a placeholder for its data.

    The data are JSON in a script element that browsers do not execute. The content security policy
    allows only the scripts of the document and forbids all requests.

    mount: name of the function of ``window.mars`` that draws the data. styles: paths of style
    sheets to inline. scripts: sources of scripts to inline. addresses: scripts to link, in the
    document's folder.
    """
    start = f"mars.{mount}();"
    style = "\n".join((web.WEB / name).read_text("utf-8") for name in styles)
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
            f'</head>\n<body class="{body_class}">',
            body,
            f'<script type="application/json" id="data">{PLACE}</script>',
            f"<script>{start}</script>\n</body>\n</html>\n",
        ]
    )


def _policy(scripts: Sequence[str]) -> str:
    """Return a content security policy that allows only scripts by hash or from the same origin."""
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
