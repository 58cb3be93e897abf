"""Turn logits into predictions: penalties, sampling, confidence and runners-up."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mars_runtime.errors import DecodeError
from mars_runtime.model.transfers import to_device
from mars_runtime.runs.events import Proposal
from mars_runtime.settings import DecodeSettings, Metric

NUM_RUNNERS_UP = 3
NUM_BEST = NUM_RUNNERS_UP + 1
STRIP_WIDTH = 128  # of the strips into which ``best_of`` divides a large vocabulary on CUDA
NEVER = 2**31 - 1
NO_NUMBER = (
    "The model returned logits that are not finite numbers. Reload the checkpoint, or use fp32."
)


@dataclass(frozen=True, slots=True)
class Draw:
    """positions: for each slot, the absolute position (prompt included) that it predicts."""

    temperature: float
    seed: int
    positions: Sequence[int]
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    @classmethod
    def of(cls, settings: DecodeSettings, positions: Sequence[int]) -> Draw | None:
        if settings.temperature == 0:
            return None
        filters = settings.top_p, settings.top_k, settings.min_p
        return cls(settings.temperature, settings.seed, positions, *filters)


@dataclass(frozen=True, slots=True)
class Addition:
    """Added to the logits of one slot. ids: int32 [N], ascending. amounts: fp32 [N]."""

    ids: Tensor
    amounts: Tensor

    @classmethod
    def of(
        cls,
        settings: DecodeSettings,
        answer: Sequence[int],
        vocab_size: int,
        banned: Collection[int] = (),
    ) -> Addition:
        """The logit bias minus the penalties on ``answer``; ``banned`` tokens get -inf."""
        bias = [pair for pair in settings.logit_bias if pair[0] < vocab_size]
        written, counts = np.unique(np.array(answer, np.int64), return_counts=True)
        penalties = settings.presence_penalty + settings.frequency_penalty * counts
        bias += [(token, -math.inf) for token in banned]
        changed = np.concatenate([written, [token for token, _ in bias]]).astype(np.int32)
        ids, indices = np.unique(changed, return_inverse=True)
        changes = np.concatenate([-penalties, [amount for _, amount in bias]])
        amounts = np.bincount(indices, weights=changes, minlength=len(ids)).astype(np.float32)
        return cls(torch.from_numpy(ids), torch.from_numpy(amounts))


@dataclass(frozen=True, slots=True)
class Penalty:
    """The repetition penalty (arXiv 1909.05858, section 4.1, without its temperature; as in
    transformers), then ``additions``, one for each slot, or empty.

    first_at: int32 [V], the first position of each token in the text (prompt included), or NEVER.
    known: for each slot, the number of text tokens before the predicted position.
    """

    factor: float
    first_at: Tensor | None
    known: Sequence[int]
    additions: Sequence[Addition] = ()

    @classmethod
    def of(
        cls,
        settings: DecodeSettings,
        text: Sequence[int],
        num_prompt: int,
        known: Sequence[int],
        vocab_size: int,
        eos_ids: frozenset[int] = frozenset(),
        positions: Sequence[int] = (),
    ) -> Penalty | None:
        """text: with drafts. num_prompt: prompt tokens, which additive penalties and ``min_tokens``
        do not count. positions: that slots predict; for masks they differ from ``known``.
        """
        factor, first_at = settings.repetition_penalty, None
        if factor != 1:
            first = np.full(vocab_size, NEVER, np.int32)
            # Reversed, because numpy stores the last value of a repeated index, not the first.
            first[np.array(text)[::-1]] = np.arange(len(text), dtype=np.int32)[::-1]
            first_at = torch.from_numpy(first)
        additions: list[Addition] = []
        if settings.has_additive_penalty or settings.logit_bias or settings.min_tokens:
            counts = known if settings.has_additive_penalty else [num_prompt] * len(known)
            first_end = num_prompt + settings.min_tokens
            banned = [
                eos_ids if position < first_end else frozenset[int]()
                for position in positions or known
            ]
            by_case = {
                case: Addition.of(settings, text[num_prompt : case[0]], vocab_size, case[1])
                for case in set(zip(counts, banned, strict=True))
            }
            additions = [by_case[case] for case in zip(counts, banned, strict=True)]
        if first_at is None and not any(len(addition.ids) for addition in additions):
            return None
        return cls(factor, first_at, known, additions)


Rank = Callable[[Tensor, Tensor], None]
"""Reorders the best candidates of each slot in place: their probabilities and ids, [R, H, 4]."""


def proposals_from_logits(
    logits: Tensor,
    forbidden: Tensor,
    metrics: Sequence[Metric],
    draws: Sequence[Draw | None] = (),
    penalties: Sequence[Penalty | None] = (),
    rank: Rank | None = None,
) -> list[list[Proposal]]:
    """logits: [R, H, V] of any float dtype, on any device; the host waits for the device once.

    The confidence is the softmax probability of the token, this minus the probability of the
    second-best token (at least 0), or 1 - H / ln V over the V allowed tokens; always at temperature
    1, so tau keeps its meaning. Raises DecodeError for NaN or infinite logits.
    """
    table = logits.to(torch.float32, copy=True)
    if any(penalties):
        penalise(table, penalties)
    table.index_fill_(-1, forbidden, -math.inf)
    probabilities = table.softmax(-1)
    count = min(NUM_BEST, table.shape[-1])
    best, ids = best_of(probabilities, count) if table.is_cuda else probabilities.topk(count)
    if rank is not None:
        rank(best, ids)
    parts = [best, ids.float()]
    is_drawn = any(draws)
    if is_drawn:
        tokens = _drawn_tokens(table, draws)
        parts += [tokens.float(), probabilities.gather(-1, tokens)]
    if "entropy" in metrics:
        parts.append(certainty(probabilities, table.shape[-1] - len(forbidden)))
    numbers = torch.cat(parts, -1).cpu().tolist()  # fp32 represents ids below 2**24 exactly.
    width = best.shape[-1]
    broken = [row for row, slots in enumerate(numbers) if any(slot[0] != slot[0] for slot in slots)]
    if broken:
        raise DecodeError(NO_NUMBER, tuple(broken))
    return [
        [
            proposal_of(
                [(int(slot[width + i]), slot[i]) for i in range(width)],
                *(metric, slot[-1]),
                (int(slot[2 * width]), slot[2 * width + 1]) if is_drawn else None,
            )
            for slot in slots
        ]
        for slots, metric in zip(numbers, metrics, strict=True)
    ]


def best_of(table: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest values of [..., V] and their indices, equal values in any order.

    They are in the ``count`` strips with the largest maxima, so a large V needs one pass for the
    maxima and a search in a few strips.
    """
    strip = math.gcd(table.shape[-1], STRIP_WIDTH)
    if table.shape[-1] // strip < count or strip < count:
        best, ids = table.topk(count)
        return best, ids
    strips = table.view(*table.shape[:-1], -1, strip)
    which = strips.amax(-1).topk(count).indices
    candidates = strips.gather(-2, which.unsqueeze(-1).expand(*which.shape, strip)).flatten(-2)
    best, positions = candidates.topk(count)
    return best, which.gather(-1, positions // strip) * strip + positions % strip


def penalise(table: Tensor, penalties: Sequence[Penalty | None]) -> None:
    """Changes fp32 logits [R, H, V]."""
    device = table.device
    for logits, penalty in zip(table, penalties, strict=True):
        if penalty is None:
            continue
        if penalty.first_at is not None:
            first_at = penalty.first_at.numpy()
            occurring = np.flatnonzero(first_at != NEVER)
            slots = logits[: len(penalty.known)]
            known = to_device(penalty.known[: len(slots)], device).unsqueeze(1)
            is_known = to_device(torch.from_numpy(first_at[occurring]), device) < known
            ids = to_device(torch.from_numpy(occurring), device)
            factor = to_device(penalty.factor, device, torch.float32)
            values = slots.index_select(1, ids)
            less = torch.where(values < 0, values * factor, values / factor)
            slots.index_copy_(1, ids, torch.where(is_known, less, values))
        for slot, addition in zip(logits, penalty.additions, strict=False):
            ids = to_device(addition.ids, device)
            slot.index_add_(0, ids, to_device(addition.amounts, device))


def proposal_of(
    ranked: Sequence[tuple[int, float]],
    metric: Metric,
    certainty: float,
    drawn: tuple[int, float] | None = None,
) -> Proposal:
    """ranked: ids and probabilities, the best first; forbidden ids have probability 0. drawn: the
    sampled one, which may not be among them.
    """
    pairs = [pair for pair in ranked if pair[1]]
    token, confidence = drawn or pairs[0]
    others = tuple([pair for pair in pairs if pair[0] != token][:NUM_RUNNERS_UP])
    if metric == "margin":
        confidence = max(0.0, confidence - (others[0][1] if others else 0.0))
    elif metric == "entropy":
        confidence = certainty
    return Proposal(token, confidence, others)


def certainty(probabilities: Tensor, num_allowed: int) -> Tensor:
    """Return 1 - H / ln V, [..., 1], clamped against rounding."""
    entropy = torch.special.entr(probabilities).sum(-1, keepdim=True)
    value: Tensor = 1.0 - entropy / math.log(max(num_allowed, 2))
    return value.clamp_(0.0, 1.0)


def _drawn_tokens(table: Tensor, draws: Sequence[Draw | None]) -> Tensor:
    """Return argmax(logits / T + Gumbel noise), [R, H, 1]: a sample from softmax(logits / T).

    table: fp32 logits [R, H, V]. Rows without a draw get their best token.
    The noise depends only on seed, position and token (Gumbel-max trick), so every forward pass,
    slot and batch draws the same sample for a position.
    """
    device, width = table.device, table.shape[1]
    rows = [draw or Draw(0.0, 0, ()) for draw in draws]
    positions = [([*row.positions] + [0] * width)[:width] for row in rows]
    top_ps, top_ks = [row.top_p for row in rows], [row.top_k for row in rows]
    min_ps = [row.min_p for row in rows]
    temperatures = to_device([row.temperature for row in rows], device).float().view(-1, 1, 1)
    is_drawn = temperatures > 0
    scaled = filtered(
        table / temperatures.where(is_drawn, 1.0),
        to_device(top_ps, device) if min(top_ps) < 1.0 else None,
        top_ks if max(top_ks) > 0 else (),
        to_device(min_ps, device) if max(min_ps) > 0.0 else None,
    )
    seeds = to_device([row.seed for row in rows], device)
    noise = gumbel(seeds.unsqueeze(1), to_device(positions, device), table.shape[-1])
    return scaled.add_(noise.mul_(is_drawn)).argmax(-1, keepdim=True)


def filtered(
    table: Tensor, top_ps: Tensor | None, top_ks: Sequence[int], min_ps: Tensor | None
) -> Tensor:
    """Return logits [R, H, V] with -inf for the tokens that must not be sampled. As in
    transformers' ``generate``: top_k, then top_p of the rest, renormalised, then min_p relative to
    the best token. Each filter includes ties.
    """
    if top_ks:
        table = table.masked_fill(~most_probable(table, top_ks), -math.inf)
    if top_ps is not None:
        table = table.masked_fill(~nucleus(table, top_ps), -math.inf)
    if min_ps is not None:
        least = table.amax(-1, keepdim=True) + min_ps.log().view(-1, 1, 1)
        table = table.masked_fill(table < least, -math.inf)
    return table


def most_probable(table: Tensor, top_ks: Sequence[int]) -> Tensor:
    """A k below 1 allows all."""
    _, slots, size = table.shape
    most = min(max(1, *top_ks), size)
    best = table.topk(most).values
    last = to_device([min(max(number, 1), most) - 1 for number in top_ks], table.device)
    least = best.gather(-1, last.view(-1, 1, 1).expand(-1, slots, 1))
    is_off = to_device([number < 1 for number in top_ks], table.device).view(-1, 1, 1)
    return (table >= least) | is_off


def nucleus(table: Tensor, top_ps: Tensor) -> Tensor:
    """Return the most probable tokens until their sum reaches ``top_ps`` [R], with ties."""
    probabilities = table.softmax(-1)
    ranked = probabilities.sort(-1, descending=True).values
    is_in = ranked.cumsum(-1) - ranked < top_ps.float().view(-1, 1, 1)
    is_in[..., 0] = True
    least = ranked.masked_fill(~is_in, math.inf).amin(-1, keepdim=True)
    return (probabilities >= least) | (top_ps >= 1.0).view(-1, 1, 1)


def gumbel(seeds: Tensor, positions: Tensor, vocab_size: int) -> Tensor:
    """Return noise [..., V], the same on every device: a counter-based hash (the finaliser of
    splitmix64) of seed, position and token id.
    """
    tokens = torch.arange(vocab_size, device=positions.device)
    key = mix(mix(seeds + 1).bitwise_xor(positions))
    bits = mix(key.unsqueeze(-1) + tokens * -0x61C8864680B583EB)
    uniform = ((bits >> 20) & 0x7FFFFF).float().add_(0.5).mul_(2.0**-23)  # strictly between 0 and 1
    return uniform.log_().neg_().log_().neg_()


def mix(value: Tensor) -> Tensor:
    value = (value ^ ((value >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    value = (value ^ ((value >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return value ^ ((value >> 31) & 0x1FFFFFFFF)
