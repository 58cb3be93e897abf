"""``python -m app.site --out DIR``: writes a site of recorded runs that needs no server.

For a static Space, and for presentations without a network.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from app.components import assets
from app.recordings import (
    FOLDER,
    Measured,
    Recording,
    RecordingsError,
    load,
    measured,
    script_element,
)
from mars_runtime.outputs import path_of
from mars_runtime.trace import Header

ENTRIES = ("views/race/view.js", "views/replay/page.js")
SITE_ENTRIES = (*ENTRIES, "views/replay/how.js")
SCRIPT, PLOTLY = "mars.js", "plotly.min.js"
TITLE = "MARS live, recorded"
README = f"""---
title: {TITLE}
emoji: 🪐
colorFrom: indigo
colorTo: yellow
sdk: static
app_file: index.html
pinned: false
license: apache-2.0
short_description: Recorded races of multi-token decoding
---

Recorded runs of MARS live, forward by forward. Open `index.html`; it needs
no server and no network.
"""
STYLE = "views/replay/page.css"
PLACE = "@data"
"""Placeholder for the data of a page; the last occurrence counts (assets/web/export/files.js)."""


def main() -> int:
    """Write the site and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m app.site", description=__doc__)
    parser.add_argument("--out", type=path_of, required=True, help="folder to write")
    parser.add_argument(
        "--recordings", type=Path, default=FOLDER, help="folder that app.record wrote (%(default)s)"
    )
    args = parser.parse_args()
    try:
        pages = build_site(args.out, load(args.recordings))
    except (RecordingsError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{len(pages)} pages; open {pages[0]}")
    return 0


def build_site(folder: Path, recordings: Sequence[Recording]) -> list[Path]:
    """Write the site into ``folder`` and return the pages. Raises RecordingsError."""
    figures = [measured(recording) for recording in recordings]
    folder.mkdir(parents=True, exist_ok=True)
    plotly = assets.plotly_file()
    if plotly is not None:
        shutil.copyfile(plotly, folder / PLOTLY)
    (folder / SCRIPT).write_text(assets.bundle(SITE_ENTRIES), encoding="utf-8")
    (folder / "README.md").write_text(README, encoding="utf-8")
    listed = [_listed(*pair) for pair in zip(recordings, figures, strict=True)]
    index = document(assets.template("views/replay/site.html"), "mountSite", addresses=[SCRIPT])
    pages = {"index.html": filled(index, {"title": TITLE, "recordings": listed})}
    pages["how.html"] = filled(_how(), {"title": "How it works"})
    view = assets.template("views/race/view.html", plotly="", replay="", opens="passes")
    page = document(view, "mountReplay", addresses=[PLOTLY, SCRIPT] if plotly else [SCRIPT])
    for recording in recordings:
        data = {"title": recording.title, "why": recording.why, "value": recording.value}
        pages[_address(recording)] = filled(page, {**data, "isListed": True})
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in pages]


def _how() -> str:
    """Return the page with "How it works" and the tour, including their recordings."""
    main = assets.template("views/replay/how.html") + assets.explain_page() + script_element()
    return document(main, "mountHow", addresses=[SCRIPT])


def _address(recording: Recording) -> str:
    return f"{recording.name}.html"


def _listed(recording: Recording, found: Measured) -> dict[str, Any]:
    """Return the list's entry for a recording."""
    return {
        "address": _address(recording),
        "title": recording.title,
        "why": recording.why,
        "settings": asdict(found.header.settings),
        "tpf": found.tpf,
        "speedup": found.speedup,
        "against": found.against,
        "num_tokens": found.num_tokens,
        "counts": found.counts,
        "circumstances": _circumstances(found.header),
    }


def _circumstances(header: Header) -> str:
    """Return the machine and the date of a recording as text."""
    threads = f"{header.threads} {'thread' if header.threads == 1 else 'threads'}"
    parts = [header.checkpoint, header.hardware, header.dtype, threads]
    return " · ".join(filter(None, [*parts, f"recorded {header.date[:10]}"]))


@lru_cache(maxsize=1)
def shell() -> str:
    """Return a replay page without data, which the page uses to export runs: some 5 MB, mostly
    plotly.js.
    """
    plotly = assets.plotly_file()
    scripts = [plotly.read_text("utf-8")] if plotly else []
    view = assets.template("views/race/view.html", plotly="", replay="", opens="passes")
    return document(view, "mountReplay", [*scripts, assets.bundle(ENTRIES)])


def filled(page: str, data: Mapping[str, Any]) -> str:
    """Insert the data into a page, escaped so that they cannot end their script element."""
    before, _, after = page.rpartition(PLACE)
    return before + assets.script_data(data) + after


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


if __name__ == "__main__":
    sys.exit(main())
