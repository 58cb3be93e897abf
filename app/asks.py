"""What a view of the page asks for: the prompt of the run on show, and tokens to go on from.

It arrives as JSON of the page's own script, or of anybody. Knows no gradio and no engine.
"""

from __future__ import annotations

import json
from typing import Any

from app.controls import RefusalError

ASKED = ("prompt", "checkpoint", "given")


def read_asked(value: object) -> dict[str, Any]:
    """The controls that it stands in for, as raw as any other. Raises RefusalError."""
    try:
        asked = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise RefusalError("given", "What was asked for cannot be read: press Run instead.")
    return {name: asked.get(name) for name in ASKED}
