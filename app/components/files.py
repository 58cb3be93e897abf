"""The static files of components: HTML with addresses filled in, and the wheel's own plotly.js.

Knows no gradio, so that pages without a server are made of the same files.
"""

from __future__ import annotations

import html
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.components.bundle import WEB


def template(page: str, **addresses: str) -> str:
    """The HTML of ``page`` under ``assets/web/``, each ``@name`` in it replaced by its address."""
    text = (WEB / page).read_text("utf-8")
    for name, address in addresses.items():
        text = text.replace(f"@{name}", html.escape(address))
    return text


def script_data(data: Mapping[str, Any]) -> str:
    """JSON to stand in a script element: nothing in it can end that element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def plotly_file() -> Path | None:
    """plotly.js of the installed wheel; None when there is none."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    return path.resolve() if path.is_file() else None
