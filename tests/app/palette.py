"""The values of the style sheet's variables, which figures and texts of the page wear."""

from __future__ import annotations

import re
from collections.abc import Mapping

from app.components.assets import ASSETS

TOKENS = ASSETS / "web" / "core" / "tokens.css"


def palette(theme: str) -> Mapping[str, str]:
    """Name -> value, the dark ones over the light ones."""
    light, dark = map(_variables, TOKENS.read_text("utf-8").split(".dark .mars-race", 1))
    return light if theme == "light" else light | dark


def _variables(css: str) -> dict[str, str]:
    return dict(re.findall(r"--rv-([\w-]+):\s*([^;]+);", css))
