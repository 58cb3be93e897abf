"""``python -m app.site --out DIR``: writes a site of recorded runs that needs no server.

For a static Space, and for the day on which the network fails on stage.
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
"""Stands in a shell where its data go; the last one counts (assets/web/export/files.js)."""


def main() -> int:
    """Write the site; the exit code."""
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
    """Write the site into ``folder``; returns the pages. Raises RecordingsError."""
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
    """How it works and the tour, with the recordings that they show."""
    main = assets.template("views/replay/how.html") + assets.explain_page() + script_element()
    return document(main, "mountHow", addresses=[SCRIPT])


def _address(recording: Recording) -> str:
    return f"{recording.name}.html"


def _listed(recording: Recording, found: Measured) -> dict[str, Any]:
    """What the list says of a recording."""
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
    """On what a recording was made, and when."""
    threads = f"{header.threads} {'thread' if header.threads == 1 else 'threads'}"
    parts = [header.checkpoint, header.hardware, header.dtype, threads]
    return " · ".join(filter(None, [*parts, f"recorded {header.date[:10]}"]))


@lru_cache(maxsize=1)
def shell() -> str:
    """A replay page without its data, for runs of the server to be saved in: some 5 MB, nearly all
    of it plotly.js."""
    plotly = assets.plotly_file()
    scripts = [plotly.read_text("utf-8")] if plotly else []
    view = assets.template("views/race/view.html", plotly="", replay="", opens="passes")
    return document(view, "mountReplay", [*scripts, assets.bundle(ENTRIES)])


def filled(page: str, data: Mapping[str, Any]) -> str:
    """The page with its data; nothing in them can end the element that they stand in."""
    before, _, after = page.rpartition(PLACE)
    return before + assets.script_data(data) + after


def document(
    main: str, mount: str, scripts: Sequence[str] = (), addresses: Sequence[str] = ()
) -> str:
    """A whole document around ``main``, where its data are not filled in yet: they travel as JSON
    in an element that no browser runs, and reach the page as text alone. Every script that may run
    is named by its hash, and nothing may be fetched.

    mount: the function of the bundle that is called at the end. scripts stand in the document,
    those at ``addresses`` beside it, so that pages share them; styles stand in every page, so that
    one opened from a disk may read them to draw a picture of itself.
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


if __name__ == "__main__":
    sys.exit(main())
