"""Costs of whole steps, measured once per engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mars_runtime.settings import MAX_FED


class Curve(NamedTuple):
    """Costs of 1, 2, 3 ... tokens per row, and what 0, 1, 2 ... masks add."""

    plain: Sequence[float]
    masks: Sequence[float] = (0.0,) * (MAX_FED + 1)

    def of(self, width: int, num_masks: int) -> float:
        return self.plain[width - 1] + self.masks[num_masks]


@dataclass(frozen=True, slots=True)
class ForwardCosts:
    """Costs by number of rows, relative to one token per row.

    spread: median of the one-token steps, relative to ``seconds``, their minimum.
    """

    depth: int
    rho: Mapping[int, tuple[float, ...]]
    seconds: float = 0.0
    masks: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    spread: float = field(default=1.0, compare=False)
    _curves: dict[int, Curve] = field(default_factory=dict, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        names = ("depth", "rho", "seconds", "masks")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ForwardCosts:
        """Raises ValueError, TypeError or KeyError."""
        rho, masks = (
            {int(rows): tuple(map(float, costs)) for rows, costs in values[name].items()}
            for name in ("rho", "masks")
        )
        if not rho or not all(rho.values()) or not all(min(costs) >= 1 for costs in rho.values()):
            raise ValueError("no costs")
        return cls(int(values["depth"]), rho, float(values["seconds"]), masks)

    def curve(self, num_rows: int) -> Curve:
        if num_rows not in self._curves:
            nearest = min((rows for rows in self.rho if rows >= num_rows), default=max(self.rho))
            costs = self.rho[nearest]
            # Cost depends on the total number of tokens, so extra rows count as more tokens.
            times = max(1.0, num_rows / nearest)
            unit = _between(costs, times)
            plain = [_between(costs, times * length) / unit for length in range(1, MAX_FED + 1)]
            masks = [0.0, *(cost / unit for cost in self.masks.get(nearest, ()))]
            masks += masks[-1:] * (MAX_FED + 1 - len(masks))
            self._curves[num_rows] = Curve(plain, masks)
        return self._curves[num_rows]


def _between(costs: Sequence[float], length: float) -> float:
    if length >= len(costs):
        return costs[-1] * length / len(costs)
    below = int(length)
    return costs[below - 1] + (length - below) * (costs[below] - costs[below - 1])
