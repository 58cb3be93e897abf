"""Conversations to token ids, as the base's own chat template writes them, and back to text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tokenizers

from mars_runtime.training.backbone import BaseError

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""What the template of SmolLM2 puts first where a conversation has no system turn."""


class ChatEncoder:
    """ChatML with control tokens put in by id; what is typed never becomes one."""

    def __init__(self, folder: Path) -> None:
        """Raises BaseError where the folder has no tokenizer with ChatML's tokens."""
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the tokenizers library raises bare Exception
            raise BaseError(f"No tokenizer.json that can be read in {folder}.") from error
        start, end = (self._tokenizer.token_to_id(f"<|im_{at}|>") for at in ("start", "end"))
        if start is None or end is None:
            raise BaseError(f"The tokenizer in {folder} has no ChatML tokens: choose a chat model.")
        self.im_start_id, self.im_end_id = start, end

    def conversation(self, turns: Sequence[str]) -> list[int]:
        """Ids of the system turn and ``turns`` (user first), open for the assistant."""
        ids = self._turn("system", SYSTEM)
        for index, text in enumerate(turns):
            ids += self._turn("assistant" if index % 2 else "user", text)
        return [*ids, self.im_start_id, *self._plain("assistant\n")]

    def open_user_turn(self) -> list[int]:
        """Ids up to where a user begins to write."""
        return [*self._turn("system", SYSTEM), self.im_start_id, *self._plain("user\n")]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids`` without control tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def _turn(self, role: str, text: str) -> list[int]:
        body = self._plain(f"{role}\n{text}")
        return [self.im_start_id, *body, self.im_end_id, *self._plain("\n")]

    def _plain(self, text: str) -> list[int]:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [token for token in ids if token not in (self.im_start_id, self.im_end_id)]
