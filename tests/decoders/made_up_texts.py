"""Made-up texts with known predictability, and made-up costs of forwards."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from mars_runtime.decoders.drafting import Drafter, choose
from mars_runtime.decoders.forward_costs import Curve
from mars_runtime.decoders.plan import FeedLimits, group_sizes
from mars_runtime.runs.events import Proposal
from mars_runtime.settings import MAX_FED, DecodeSettings

AUTO = DecodeSettings(
    tau=0.0, block_size="auto", lossless=True, mask_layout="every", max_new_tokens=200
)
MOST_MASKS = 7
CURVES = {
    "flat": [1 + 0.02 * q for q in range(MAX_FED)],
    "gentle": [1 + 0.06 * q for q in range(MAX_FED)],
    "steep": [1 + 0.4 * q for q in range(MAX_FED)],
    "cliff": [1.0, 1.05, 1.1, 1.15, *[1.8] * 4, *[2.2] * 8, *[3.0] * 48],
}
NOTHING, CHAT, MATHS, SURE = [0.01] * 7, [0.46, 0.42, *[0.35] * 5], [0.62, *[0.5] * 6], [0.97] * 7


@dataclass
class Text:
    """A simulated text: masks predict position j with probability ``chances[j]``, with roughly
    calibrated confidence.
    """

    chances: Sequence[float]
    seed: int = 0
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def group(self, place: int, size: int) -> list[Proposal]:
        """Proposals for ``place`` on; a token is its place, a wrong one is -1."""
        actual, is_right = [], True
        for chance in self.chances[:size]:
            sure = self.rng.betavariate(1.2 * chance, 1.2 * (1 - chance))
            is_right = is_right and self.rng.random() < sure
            actual.append(Proposal(place + len(actual) if is_right else -1, sure, ()))
        return actual


def write(
    drafter: Drafter,
    text: Text,
    curve: Curve,
    length: int,
    settings: DecodeSettings = AUTO,
) -> tuple[float, int]:
    """Return cost and number of masks of writing ``length`` tokens."""
    place, cost, num_masks, drafts = 0, 0.0, 0, [0][:0]
    while place < length:
        offers = drafter.offers(settings, 1, len(drafts), curve)
        feed = FeedLimits.of_offer(choose([drafter], [offers], curve, 1)[0])
        fed = drafts[: feed.num_drafts]
        sizes = group_sizes(settings, feed, 10**6, len(fed))
        cost += curve.of(1 + len(fed) + sum(sizes), sum(sizes))
        num_masks += sum(sizes)
        num_agreed = 0
        while num_agreed < len(fed) and fed[num_agreed] == place + num_agreed:
            num_agreed += 1
        emitted = list(range(place, place + num_agreed + 1))
        place += len(emitted)
        group = text.group(place, sizes[num_agreed])
        drafts, _ = drafter.update(settings, emitted, group, [], 0, curve)
    return cost, num_masks
