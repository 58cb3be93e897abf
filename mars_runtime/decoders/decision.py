"""Decide what one forward pass emits and what the next one verifies, for one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mars_runtime.acceptance import common_prefix_length, up_to_end
from mars_runtime.runs.events import Proposal, Stop
from mars_runtime.runs.loops import up_to_loop
from mars_runtime.settings import DecodeSettings


@dataclass(frozen=True, slots=True)
class Acceptance:
    """num_agreed: number of drafts of this forward pass that AR confirmed.
    drafts: tokens to verify in the next forward pass.
    has_continuation: whether the proposals after the emitted tokens can be drafts; false if masks
        were fed only after a rejected draft.
    """

    emitted: list[int]
    num_agreed: int
    drafts: list[int]
    stop: Stop
    proposals: tuple[Proposal, ...] = ()
    has_continuation: bool = True


def accept(
    choices: Sequence[Proposal],
    groups: Sequence[Sequence[Proposal]],
    drafts: Sequence[int],
    settings: DecodeSettings,
    remaining: int,
    eos_ids: frozenset[int],
    written: Sequence[int] = (),
) -> Acceptance:
    """Verify the drafts of a forward pass, then accept its proposals from left to right.

    choices: AR's choices from the first position not emitted yet: one for each draft and one more.
    groups: for each choice, the proposals of the masks after it.
    written: tokens emitted before; needed for ``stop_loops``.

    Without ``lossless``, accepted proposals are emitted (arXiv 2604.07023). With it, only AR's
    choices are, and the accepted proposals after them become drafts. The row ends at the first EOS
    token, at the limit, or with the token that completes a loop.
    """
    eos_ids = eos_in_force(settings, eos_ids)
    num_agreed = common_prefix_length(drafts, [choice.token for choice in choices])
    is_confirmed = num_agreed == len(drafts)
    proposals = (*choices[: num_agreed + 1], *groups[num_agreed])
    confidences = [proposal.confidence for proposal in proposals[num_agreed:]]
    end = num_agreed + settings.facts.num_accepted(confidences, settings, remaining - num_agreed)
    stop: Stop = "threshold" if end < len(proposals) else "block"
    has_continuation = is_confirmed or bool(groups[num_agreed])
    if not is_confirmed:
        stop = "mismatch"
        if not has_continuation:  # Predictions after a rejected draft are recorded but not used.
            proposals = (*choices, *groups[-1])
    tokens = [proposal.token for proposal in proposals[:end]]
    num_emitted = num_agreed + 1 if settings.is_verified else end
    emitted, after_emitted = up_to_end(tokens[:num_emitted], eos_ids), tokens[num_emitted:]
    if settings.stop_loops and (count := up_to_loop(written, emitted[:remaining])) is not None:
        return Acceptance(emitted[:count], min(num_agreed, count), [], "repeats", proposals)
    if emitted[-1] in eos_ids:
        return Acceptance(emitted, num_agreed, [], "eos", proposals)
    if len(emitted) >= remaining:
        return Acceptance(emitted[:remaining], num_agreed, [], "limit", proposals)
    drafts = up_to_end(after_emitted, eos_ids)
    return Acceptance(emitted, num_agreed, drafts, stop, proposals, has_continuation)


def num_proposals(
    settings: DecodeSettings, remaining: int, num_drafts: int, chosen: int | None = None
) -> int:
    """Return B, at most as many proposals as can be emitted. In lossless mode the drafts and one
    token of AR are emitted before them.
    """
    num_useful = remaining - num_drafts - 1 if settings.is_verified else remaining
    return max(1, min(settings.num_proposals if chosen is None else chosen, num_useful))


def eos_in_force(settings: DecodeSettings, eos_ids: frozenset[int]) -> frozenset[int]:
    return frozenset() if settings.ignore_eos else eos_ids
