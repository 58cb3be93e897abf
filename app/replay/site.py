"""A site of recorded runs: plain files that need no server, opened from a disk or put anywhere.

A list and a page for each recording share their scripts; styles stand in every page, so that one
opened from a disk may read them to draw a picture of itself. Knows no gradio and no engine.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.components import assets, explain_facts, recorded
from app.replay.page import ENTRIES, document, filled
from app.replay.recordings import Measured, Recording, measured
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
    view = assets.template("views/race/view.html", plotly="", replay="", opens="")
    page = document(view, "mountReplay", addresses=[PLOTLY, SCRIPT] if plotly else [SCRIPT])
    for recording in recordings:
        data = {"title": recording.title, "why": recording.why, "value": recording.value}
        pages[_address(recording)] = filled(page, {**data, "isListed": True})
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in pages]


def _how() -> str:
    """How it works and the tour, with the recordings that they show."""
    main = assets.template("views/replay/how.html") + explain_facts.page() + recorded.element()
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
