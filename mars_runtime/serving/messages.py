"""The messages of a conversation as posted, in the words of the tokenizer. Knows no tokenizer."""

from __future__ import annotations

from typing import Any

from mars_runtime.serving.fields import Fields, checked_text
from mars_runtime.text import Said

MAX_MESSAGES, MAX_PARTS = 1000, 100
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def read_messages(fields: Fields) -> list[Said]:
    """(role, text) of each, the last one the user's. Raises ApiError."""
    messages = [
        _read_message(message, f"messages.{index}.", fields)
        for index, message in enumerate(fields.items("messages", MAX_MESSAGES))
    ]
    if messages[-1][0] != "user":
        fields.refuse("messages", "must end with one of the role user")
    return messages


def _read_message(message: Any, inside: str, fields: Fields) -> Said:
    if not isinstance(message, dict):
        fields.refuse("messages", "must hold objects with role and content")
    one = Fields(message, inside)
    role = one.raw("role")
    if not isinstance(role, str) or role not in ROLES:
        one.refuse("role", f"must be one of {', '.join(ROLES)}")
    if one.raw("tool_calls"):
        one.refuse("tool_calls", "are not supported here: leave them out")
    return ROLES[role], _content(one)


def _content(message: Fields) -> str:
    """A text, or the parts of one."""
    if not isinstance(message.raw("content"), list):
        return message.text("content")
    texts = []
    for part in message.items("content", MAX_PARTS):
        is_text = isinstance(part, dict) and part.get("type") == "text"
        if not is_text or not isinstance(part.get("text"), str):
            message.refuse("content", "must be a text, or parts of the type text")
        texts.append(checked_text(part["text"], "messages"))
    return "".join(texts)
