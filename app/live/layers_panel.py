"""The Layers panel: what each layer of the model predicts in one forward pass of a run.

The page stores the run and posts the inputs of the forward pass. The server stores nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import TimeoutError as NotYet
from dataclasses import asdict
from typing import Any

from app.engines.engines import Engines, Served, UnavailableError
from app.engines.limits import RefusalError
from app.ui.stream import USER_ERRORS
from mars_runtime.engine.backend import sentence
from mars_runtime.layers import Column, Fed, Layers, counted_masks
from mars_runtime.settings import MAX_FED

WAIT_SECONDS = 45.0
UNREADABLE = "The layers of this pass cannot be shown. Select another pass."
LATE = "The server is busy with other runs. Wait a moment, then select the pass again."
LOADING = "{} is still loading. Wait a moment, then select the pass again."


def layers_response(engines: Engines, posted: object, owner: str) -> dict[str, Any]:
    """Return ``{"columns", "real", "counted", "vocabulary"}`` for the posted forward pass, or
    ``{"error": sentence}``.

    columns: one ``Column`` as JSON per fed position, with ``settled``, the layer from which the
    prediction no longer changes.
    real: one ``Column`` for each token that the answer has at the position of a mask.
    counted: indices of the mask columns that are included in the totals.
    vocabulary: the text of each token id, as in a trace.
    owner: the client's address, which may have only a few requests at a time.
    """
    try:
        checkpoint, fed = read_fed(posted)
        engines.entry(checkpoint)
        with engines.kept(checkpoint):
            served = engines.get(checkpoint, timeout=0.0)
            if served is None:
                return {"error": LOADING.format(checkpoint)}
            return _computed_layers(served, fed, owner)
    except (RefusalError, UnavailableError, *USER_ERRORS) as error:
        return {"error": str(error)}
    except Exception as error:
        return {"error": sentence(error)}


def _computed_layers(served: Served, fed: Fed, owner: str) -> dict[str, Any]:
    """Compute the response. Raises EngineError, RequestError, DecodeError or RefusalError."""
    if max(len(fed.ids), len(fed.text)) > served.engine.capacity:
        raise RefusalError("prompt", UNREADABLE)
    outcome = served.engine.read_layers(fed, owner)
    try:
        layers = outcome.result(WAIT_SECONDS)
    except NotYet:
        outcome.cancel()
        return {"error": LATE}
    columns = [*layers.columns, *layers.real]
    ids = sorted({token for column in columns for token, _ in column.says})
    spelled = served.checkpoint.tokenizer.token_bytes
    return {
        "columns": [_column(column) for column in layers.columns],
        "real": [_column(column) for column in layers.real],
        "counted": _counted(fed, layers),
        "vocabulary": {str(token): spelled(token).decode("latin-1") for token in ids},
    }


def _column(column: Column) -> dict[str, Any]:
    says = [(token, round(chance, 4)) for token, chance in column.says]
    return {**asdict(column), "says": says, "settled": column.settled}


def _counted(fed: Fed, layers: Layers) -> list[int]:
    masks = counted_masks(fed, layers.columns)
    return [index for index, column in enumerate(layers.columns) if column in masks]


def read_fed(posted: object) -> tuple[str, Fed]:
    """Validate the checkpoint's name and the inputs of the forward pass. Raises RefusalError."""
    values: Mapping[str, Any] = posted if isinstance(posted, dict) else {}
    checkpoint, cursor = values.get("checkpoint"), values.get("cursor")
    if not isinstance(checkpoint, str) or type(cursor) is not int:
        raise RefusalError("prompt", UNREADABLE)
    ids, groups, text = (
        _non_negative_integers(values.get(name)) for name in ("ids", "groups", "text")
    )
    if not ids or not 1 <= len(groups) <= MAX_FED:
        raise RefusalError("prompt", UNREADABLE)
    return checkpoint, Fed(ids, cursor, groups, text)


def _non_negative_integers(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
        raise RefusalError("prompt", UNREADABLE)
    return tuple(value)
