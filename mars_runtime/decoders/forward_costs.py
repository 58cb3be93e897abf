"""Costs of whole steps on one device, by the numbers of rows, tokens per row and masks per row.

``engine/costs.py`` measures them once per engine. They do not change while the engine runs, so the
same prompt takes the same forward passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mars_runtime.settings import MAX_FED


class Curve(NamedTuple):
    """Costs of steps for a fixed number of rows. The unit is a step of one token per row.

    plain: cost of a step of 1, 2, 3 ... tokens per row.
    masks: additional cost if 0, 1, 2 ... of them are masks, for which an adapter computes more.
    """

    plain: Sequence[float]
    masks: Sequence[float] = (0.0,) * (MAX_FED + 1)

    def of(self, width: int, num_masks: int) -> float:
        """Return the cost of ``width`` tokens per row, of which ``num_masks`` are masks."""
        return self.plain[width - 1] + self.masks[num_masks]


@dataclass(frozen=True, slots=True)
class ForwardCosts:
    """Costs of steps on one device.

    depth: the B that the model was trained with, an upper bound on automatic B.
    rho: number of rows -> time of a step of 1, 2, 3 ... tokens per row, relative to 1 token.
    seconds: time of a step of one token for the smallest number of rows; 0 if unknown.
    masks: number of rows -> additional cost of 1, 2, 3 ... masks per row, in the unit of ``rho``.
    """

    depth: int
    rho: Mapping[int, tuple[float, ...]]
    seconds: float = 0.0
    masks: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    _curves: dict[int, Curve] = field(default_factory=dict, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the costs as JSON values."""
        names = ("depth", "rho", "seconds", "masks")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ForwardCosts:
        """Return the costs in JSON values. Raises ValueError, TypeError or KeyError for others."""
        rho, masks = (
            {int(rows): tuple(map(float, costs)) for rows, costs in values[name].items()}
            for name in ("rho", "masks")
        )
        if not rho or not all(rho.values()) or not all(min(costs) >= 1 for costs in rho.values()):
            raise ValueError("no costs")
        return cls(int(values["depth"]), rho, float(values["seconds"]), masks)

    def curve(self, num_rows: int) -> Curve:
        """Return the costs for ``num_rows`` rows of up to MAX_FED tokens.

        Uses the measurement with the next larger number of rows, or the largest one. Lengths beyond
        the measured ones are extrapolated in proportion, masks at the cost of the largest number.
        """
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
    """Return the cost of a step of ``length`` tokens, given ``costs`` of 1, 2, 3 ... tokens.

    The cost is interpolated between these lengths, and proportional to ``length`` beyond them.
    """
    if length >= len(costs):
        return costs[-1] * length / len(costs)
    below = int(length)
    return costs[below - 1] + (length - below) * (costs[below] - costs[below - 1])
