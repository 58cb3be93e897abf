"""The Review tab. The browser reads and stores sets and votes; the server only serves the bundled
study and parses files of prompts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from app.ui.views import ReviewView
from mars_runtime.files.json_values import as_mapping, as_text
from mars_runtime.review.prompts import PromptError, read_prompts

MAX_CHARS = 500_000
NO_TURNS = "On the page, prompts have no earlier turns. Use the command for these prompts."


def review_tab(checkpoints: Iterable[str]) -> None:
    ReviewView(parse_prompts, json.dumps(list(checkpoints)), elem_id="review")


def parse_prompts(posted: object) -> dict[str, Any]:
    """Return ``{"items": prompts}`` or ``{"error": sentence}`` for a posted file.

    posted: JSON with the keys ``text`` and ``name``.
    """
    try:
        values = as_mapping(json.loads(as_text(posted)))
        text, name = as_text(values.get("text")), as_text(values.get("name"))
    except (ValueError, RecursionError):
        return {"error": "The prompts must be text."}
    if len(text) > MAX_CHARS:
        return {"error": f"The file has more than {MAX_CHARS:,} characters. Split it."}
    try:
        items = read_prompts(text, name[:200])
    except PromptError as error:
        return {"error": str(error)}
    if any(item.turns for item in items):
        return {"error": NO_TURNS}
    return {
        "items": [{"id": item.id, "prompt": item.prompt, "system": item.system} for item in items]
    }
