"""Thresholds that adapt: τ of an unverified forward, from what the run itself has told.

Both rules start from the floor that the settings name as τ and never go below it.

- By entropy: a forward whose own AR token was uncertain is not to be trusted with more. How
  uncertain, by what is known of its rivals, falls into a class, and each class goes a share of the
  way from the floor to 1.
- By agreement: accepted tokens come back as real ones, and the same forward says for free what AR
  would have chosen in their places. Each that AR would not have chosen raises the threshold, each
  other lowers it, in such proportion that the two balance where the share of agreement is the
  target (adaptive conformal inference, arXiv 2106.00193, is the same rule).

Everything that decides is in the events of the run, so it can be worked out again from its trace.
Pure numbers: knows no tensors, model or rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from mars_runtime.events import Proposal
from mars_runtime.settings import DecodeSettings

CLASSES = ((0.05, 0.0), (0.3, 0.5), (1.0, 0.8), (math.inf, 0.95))
"""Entropies in nats up to which a class goes, and the share of the way from the floor to 1."""
RATE = 0.2  # of the way, for a target of 1, that one token moves the threshold
MOST = 0.98  # of the way: at 1 itself nothing more would be taken, and nothing learnt


def entropy(own: Proposal) -> float:
    """Of a distribution in nats, by the runners-up of its token and all the rest as if it were one:
    they are probabilities whatever the confidence is."""
    shares = [share for _, share in own.runners_up]
    shares.append(max(0.0, 1.0 - sum(shares)))
    return -sum(share * math.log(share) for share in shares if share > 0)


def threshold_for(settings: DecodeSettings, own: Proposal, raised: float) -> float:
    """τ of a forward whose own AR token is ``own``; ``raised``: of the way, by agreement."""
    share = raised
    if settings.threshold == "entropy":
        uncertain = entropy(own)
        share = next(share for most, share in CLASSES if uncertain <= most)
    return settings.tau + (1.0 - settings.tau) * share


def raised_after(raised: float, agreed: Iterable[bool], target: float) -> float:
    """How far the threshold stands after tokens of which AR would have chosen those that
    ``agreed``."""
    for is_same in agreed:
        raised += -RATE * (1.0 - target) if is_same else RATE * target
        raised = min(MOST, max(0.0, raised))
    return raised
