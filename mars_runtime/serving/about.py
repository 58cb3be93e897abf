"""What a page that has a model on another machine is told of it, and reads again.

Its tokenizer travels whole, so that the page needs none of the checkpoint's files. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from mars_runtime.engine.header import Facts
from mars_runtime.json_values import as_mapping, as_whole
from mars_runtime.serving.models import Model
from mars_runtime.text import Tokenizer


@dataclass(frozen=True, slots=True)
class About:
    """A model elsewhere. block_size, capacity: as of a Model. is_captured: whether some settings
    are held there (``settings.CAPTURED``)."""

    facts: Facts
    tokenizer: Tokenizer
    block_size: int
    capacity: int
    is_captured: bool = False

    @property
    def name(self) -> str:
        """What it is called there."""
        return self.facts.checkpoint


def about(model: Model) -> dict[str, Any]:
    """As JSON; waits until the engine is warm."""
    return {
        "facts": asdict(model.facts),
        "tokenizer": model.tokenizer.parts(),
        "block_size": model.block_size,
        "capacity": model.capacity,
        "is_captured": model.is_captured,
    }


def read_about(value: Any) -> About:
    """Back again; numbers of rows in ``rho`` were names in JSON. Raises ValueError, KeyError,
    TypeError or TextError for what is not one."""
    posted = as_mapping(value)
    facts = as_mapping(posted["facts"])
    known = {field.name: facts[field.name] for field in fields(Facts)}
    known["rho"] = _rho(as_mapping(known["rho"]))
    return About(
        Facts(**known),
        Tokenizer.from_parts(as_mapping(posted["tokenizer"])),
        as_whole(posted["block_size"]),
        as_whole(posted["capacity"]),
        posted.get("is_captured") is True,
    )


def _rho(curves: Mapping[str, Any]) -> dict[int, tuple[float, ...]]:
    return {int(rows): tuple(map(float, curve)) for rows, curve in curves.items()}
