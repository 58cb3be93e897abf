"""Static files of the page: bundled scripts and styles, HTML templates and plotly.js."""

from __future__ import annotations

import html
import importlib.util
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from mars_runtime.files.paths import ASSETS

WEB = ASSETS / "web"
STYLES = (
    "core/tokens.css",
    "views/race/layout.css",
    "text/text.css",
    "views/race/player.css",
    "views/race/drawer.css",
    "views/conversation/conversation.css",
    "views/throughput/throughput.css",
    "export/menu.css",
    "views/review/review.css",
    "explain/explain.css",
    "tour/present.css",
    "views/grid/grid.css",
)


@lru_cache(maxsize=4)
def script(name: str) -> str:
    """Return a bundle, ``page`` or ``replay``, which adds its functions ``mount...`` to
    ``window.mars``. It has no ``</script``, so it can be inlined.
    """
    return (ASSETS / "built" / f"{name}.js").read_text("utf-8")


def styles() -> str:
    return "\n".join((WEB / name).read_text("utf-8") for name in STYLES)


def template(page: str, **addresses: str) -> str:
    """Return a template of ``assets/web/`` with each ``@name`` replaced by ``addresses[name]``,
    escaped.
    """
    text = (WEB / page).read_text("utf-8")
    for name, address in addresses.items():
        text = text.replace(f"@{name}", html.escape(address))
    return text


def script_data(data: Mapping[str, Any]) -> str:
    """Return ``data`` as JSON that is safe inside a script element: each < is escaped."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def plotly_file() -> Path | None:
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    return path.resolve() if path.is_file() else None
