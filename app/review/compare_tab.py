"""The Compare tab: the pinned runs, and a race view that shows one of them."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app.ui.files import file_address
from app.ui.imported_runs import read_import
from app.ui.views import CompareView, RaceView
from app.ui.wiring import owner_of


def compare_tab(max_import_bytes: int) -> None:
    """Build the tab. It has no events, because the browser stores and draws everything."""

    def judge(text: str, request: gr.Request) -> dict[str, Any]:
        return read_import(text, max_import_bytes, owner_of(request))

    CompareView(judge, max_import_bytes, elem_id="compare")
    RaceView("", file_address("replay.html"), elem_id="opened")
