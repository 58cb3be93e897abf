"""Writes a site of recorded runs that needs no server: ``python -m tools.make_site --out DIR``.

For a static Space, and for presentations without a network.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.ui import assets
from app.ui.recordings import (
    FOLDER,
    Recording,
    RecordingFigures,
    RecordingsError,
    load,
    measured,
    script_element,
)
from mars_runtime import web
from mars_runtime.outputs import path_of
from mars_runtime.replay_page import ENTRIES, document, filled
from mars_runtime.trace import Header

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


def main() -> int:
    """Write the site and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.make_site", description=__doc__)
    parser.add_argument("--out", type=path_of, required=True, help="folder to write")
    parser.add_argument(
        "--recordings", type=Path, default=FOLDER, help="folder of recordings (%(default)s)"
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
    plotly = web.plotly_file()
    if plotly is not None:
        shutil.copyfile(plotly, folder / PLOTLY)
    (folder / SCRIPT).write_text(web.bundle(SITE_ENTRIES), encoding="utf-8")
    (folder / "README.md").write_text(README, encoding="utf-8")
    listed = [_listed(*pair) for pair in zip(recordings, figures, strict=True)]
    index = document(web.template("views/replay/site.html"), "mountSite", addresses=[SCRIPT])
    pages = {"index.html": filled(index, {"title": TITLE, "recordings": listed})}
    pages["how.html"] = filled(_how(), {"title": "How it works"})
    view = web.template("views/race/view.html", plotly="", replay="", opens="passes")
    page = document(view, "mountReplay", addresses=[PLOTLY, SCRIPT] if plotly else [SCRIPT])
    for recording in recordings:
        data = {"title": recording.title, "why": recording.why, "value": recording.value}
        pages[_address(recording)] = filled(page, {**data, "isListed": True})
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in pages]


def _how() -> str:
    """Return the page with "How it works" and the tour, including the recordings that they show."""
    main = web.template("views/replay/how.html") + assets.explain_page() + script_element()
    return document(main, "mountHow", addresses=[SCRIPT])


def _address(recording: Recording) -> str:
    return f"{recording.name}.html"


def _listed(recording: Recording, figures: RecordingFigures) -> dict[str, Any]:
    """Return the entry of a recording in the list."""
    return {
        "address": _address(recording),
        "title": recording.title,
        "why": recording.why,
        "settings": asdict(figures.header.settings),
        "tpf": figures.tpf,
        "speedup": figures.speedup,
        "against": figures.against,
        "num_tokens": figures.num_tokens,
        "counts": figures.counts,
        "circumstances": _circumstances(figures.header),
    }


def _circumstances(header: Header) -> str:
    """Return the machine and the date of a recording as text."""
    threads = f"{header.threads} {'thread' if header.threads == 1 else 'threads'}"
    parts = [header.checkpoint, header.hardware, header.dtype, threads]
    return " · ".join(filter(None, [*parts, f"recorded {header.date[:10]}"]))


if __name__ == "__main__":
    sys.exit(main())
