"""Draft models of one checkpoint for its engine: checked when asked for, loaded at the first time.

Knows names and files through ``model.drafts``; decodes nothing. Torch is imported when it is used.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mars_runtime.engine.request import Asked, RequestError, Solo
from mars_runtime.model.registry import REGISTRY, usual_draft
from mars_runtime.settings import DecodeSettings

if TYPE_CHECKING:
    from mars_runtime.decoders.draft_model import DraftModel, DraftModels
    from mars_runtime.model.load import Checkpoint

ONLY_CPU = "Speculative decoding runs on a CPU here: choose another method."


def named(settings: DecodeSettings, target: str) -> DecodeSettings:
    """The settings with the usual draft of a target by its name, where they leave it open, so that
    a trace says which it was."""
    if settings.method != "speculative" or settings.draft:
        return settings
    return replace(settings, draft=usual_draft(target))


def draft_models(checkpoint: Checkpoint, registry_path: Path = REGISTRY) -> DraftModels:
    """The draft models of a checkpoint, as decoders ask for them."""
    from mars_runtime.acceptance import DecodeError
    from mars_runtime.decoders.draft_model import DraftModel, DraftModels
    from mars_runtime.model.config import CheckpointError
    from mars_runtime.model.drafts import Drafts

    drafts = Drafts(checkpoint, registry_path)

    def find(name: str) -> DraftModel:
        try:
            found = drafts.load(name)
        except CheckpointError as error:
            raise DecodeError(str(error)) from None
        return DraftModel(found.model, found.tokenizer, found.block_size)

    return DraftModels(find, checkpoint.block_size)


def check_draft(models: DraftModels, asked: Asked) -> None:
    """Load the draft model that is asked for, if any. Raises RequestError, one sentence."""
    from mars_runtime.acceptance import DecodeError

    settings = asked.settings
    if isinstance(asked, Solo) or settings.method != "speculative":
        return
    try:
        draft = models.find(settings.draft)
    except DecodeError as error:
        raise RequestError(str(error)) from None
    most, length = draft.model.config.max_positions, len(asked.prompt_ids)
    if length + settings.max_new_tokens > most:
        raise RequestError(
            f"The draft model holds {most} tokens, prompt and answer together: shorten the prompt "
            "or ask for fewer."
        )


def can_warm(models: DraftModels, kind: DecodeSettings) -> bool:
    """Whether a method can be run here at all: the speculative one needs a draft model."""
    from mars_runtime.acceptance import DecodeError

    if kind.method != "speculative":
        return True
    try:
        return models.find("").model.device.type == "cpu"
    except DecodeError:
        return False
