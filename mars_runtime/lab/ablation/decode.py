"""Decode many prompts at once with a transformers model, for all variants of an ablation.

The decoders of the runtime support only MARS, but in some variants masks also attend to later
masks, or predict the token at their own position instead of the next one. For MARS, this module and
the runtime emit the same tokens in the same number of forward passes; a test checks that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mars_runtime.lab.training.recipe import Noise
from mars_runtime.settings import DecodeSettings


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """The ids of the mask token, of EOS, and of all tokens that must never be emitted.

    forbidden: [F] int64 on the model's device.
    """

    mask: int
    eos: int
    forbidden: Tensor


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded answer. tokens: its token ids, including EOS if the model emitted it."""

    tokens: tuple[int, ...]
    num_forwards: int


class PositionedKVCache:
    """KV cache of R rows for a transformers model, in which each row writes at its own positions.

    Before a forward pass, set ``at`` to the positions to write, [R, Q], and ``end`` to the number
    of positions that attention reads.
    """

    def __init__(self, model: Any, rows: int, capacity: int, device: torch.device) -> None:
        config = model.config
        head_dim = config.hidden_size // config.num_attention_heads
        shape = (config.num_hidden_layers, rows, capacity, config.num_key_value_heads, head_dim)
        self.keys = torch.zeros(shape, dtype=model.dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        self.rows = torch.arange(rows, device=device)[:, None]
        self.at, self.end = self.rows, 0

    def update(
        self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the keys and values of a layer, both [R, H, Q, D], at the positions ``at``.

        Return all keys and values of the layer up to ``end``, both [R, H, end, D].
        """
        self.keys[layer][self.rows, self.at] = keys.transpose(1, 2)
        self.values[layer][self.rows, self.at] = values.transpose(1, 2)
        read = self.keys[layer][:, : self.end], self.values[layer][:, : self.end]
        return read[0].transpose(1, 2), read[1].transpose(1, 2)

    def keep(self, rows: Tensor) -> None:
        """Remove all rows except ``rows``."""
        self.keys, self.values = self.keys[:, rows], self.values[:, rows]
        self.rows = self.rows[: len(rows)]


class GreedyBatch:
    """Decodes a batch of prompts with AR, MARS or lossless MARS, and a fixed B.

    Each row gets at most ``limit`` new tokens. The tokens before a row's ``cursor`` have final keys
    and values. A forward pass feeds ``pending`` tokens, starting at the cursor, and then masks.
    """

    def __init__(
        self,
        model: Any,
        prompts: Sequence[Sequence[int]],
        settings: DecodeSettings,
        noise: Noise,
        ids: SpecialIds,
        limit: int,
    ) -> None:
        self.model, self.noise, self.ids, self.limit = model, noise, ids, limit
        self.tau, self.is_verified = settings.tau, settings.is_verified
        self.size = size = settings.num_proposals
        device = ids.forbidden.device
        # If masks predict the token at their own position, the first proposal needs a mask too.
        self.num_masks = size - (1 if noise.is_shifted or size == 1 else 0)
        self.num_fed = size + self.num_masks
        lengths = [len(prompt) for prompt in prompts]
        width = max(lengths)
        capacity = width + limit + 2 * self.num_fed
        self.text = torch.zeros(len(prompts), capacity, dtype=torch.long, device=device)
        for row, prompt in enumerate(prompts):
            self.text[row, : len(prompt)] = torch.tensor(prompt, device=device)
        self.cache = PositionedKVCache(model, len(prompts), capacity, device)
        self.cursor = torch.tensor(lengths, device=device) - 1
        self.pending = torch.ones_like(self.cursor)
        self.begin, self.written = self.cursor + 1, torch.zeros_like(self.cursor)
        self.forwards = torch.zeros_like(self.cursor)
        self.number = torch.arange(len(prompts), device=device)
        self.is_live = torch.ones_like(self.cursor, dtype=torch.bool)
        self.done: list[Decoded] = [Decoded((), 0)] * len(prompts)

    @torch.inference_mode()
    def decoded(self) -> list[Decoded]:
        """Decode all prompts to the end; return the answers in the order of the prompts."""
        width = int(self.begin.max())
        at = torch.arange(width, device=self.text.device).expand(len(self.text), -1)
        no_mask = torch.full_like(self.cursor, self.text.shape[1])
        self._hidden(self.text[:, :width], at, width, no_mask)
        while self._drop_finished():
            self._step()
        return self.done

    def _drop_finished(self) -> bool:
        """Return whether any row is unfinished. Drop finished rows once they are half of the batch.

        The answers of dropped rows are stored in ``done``.
        """
        num_live = int(self.is_live.sum())
        if num_live and num_live > len(self.is_live) // 2:
            return True
        for row in (~self.is_live).nonzero().flatten().tolist():
            begin, count = int(self.begin[row]), int(self.written[row])
            tokens = tuple(self.text[row, begin : begin + count].tolist())
            self.done[int(self.number[row])] = Decoded(tokens, int(self.forwards[row]))
        live = self.is_live.nonzero().flatten()
        self.cache.keep(live)
        for name in ("text", "cursor", "pending", "begin", "written", "forwards", "number"):
            setattr(self, name, getattr(self, name)[live])
        self.is_live = self.is_live[live]
        return num_live > 0

    def _step(self) -> None:
        """Run one forward pass for all rows and apply its predictions."""
        device = self.cursor.device
        fed_offset = torch.arange(self.num_fed, device=device)
        at = self.cursor[:, None] + fed_offset
        is_mask = fed_offset >= self.pending[:, None]
        fed = self.text.gather(1, at).masked_fill(is_mask, self.ids.mask)
        hidden = self._hidden(fed, at, int(at.max()) + 1, self.cursor + self.pending)
        offset = torch.arange(self.size, device=device)
        shift = 0 if self.noise.is_shifted else (offset > 0).long()
        before = self.cursor
        proposals, sureness = self._read(hidden, (self.pending - 1)[:, None] + offset + shift)
        is_taken = (sureness >= self.tau) | (offset == 0)
        num_taken = is_taken.long().cumprod(1).sum(1)
        if self.is_verified:
            self._apply_verified(hidden, proposals, num_taken)
        else:
            start = self.cursor + self.pending
            self._emit(proposals, num_taken, start)
            self.cursor, self.pending = start, num_taken
        self.cursor = torch.where(self.is_live, self.cursor, before)
        self.pending = self.pending.where(self.is_live, 1)

    def _apply_verified(self, hidden: Tensor, proposals: Tensor, num_taken: Tensor) -> None:
        """Emit the drafts that AR confirms, and AR's own token after them.

        If AR confirms all drafts of a row, the next forward pass of this row feeds AR's token and
        ``num_taken`` - 1 new drafts. Otherwise, it feeds only AR's token.
        """
        offset = torch.arange(self.size, device=hidden.device)
        choices, _ = self._read(hidden, offset.expand(len(hidden), -1))
        drafts = self.text.gather(1, self.cursor[:, None] + 1 + offset)
        agrees = (choices == drafts) & (offset + 1 < self.pending[:, None])
        num_agreed = agrees.long().cumprod(1).sum(1)
        all_agree = num_agreed == self.pending - 1
        self._emit(choices, num_agreed + 1, self.cursor + 1)
        self.cursor = self.cursor + num_agreed + 1
        self.pending = torch.where(all_agree, num_taken, 1)
        # Writing all proposals is safe: only the first ``pending`` tokens are fed.
        self._write(proposals, self.cursor, (offset > 0) & all_agree[:, None])

    def _emit(self, tokens: Tensor, count: Tensor, start: Tensor) -> None:
        """Emit the first ``count`` of ``tokens`` [R, S] for each unfinished row.

        Emission stops at EOS or at the limit. start: [R], position of the first emitted token.
        """
        offset = torch.arange(tokens.shape[1], device=tokens.device)
        is_eos = (tokens == self.ids.eos).long()
        is_kept = (offset < count[:, None]) & self.is_live[:, None]
        is_kept &= (self.written[:, None] + offset < self.limit) & (is_eos.cumsum(1) - is_eos == 0)
        self._write(tokens, start, is_kept)
        self.written = self.written + is_kept.sum(1)
        self.forwards = self.forwards + self.is_live
        ends = (is_kept & (is_eos == 1)).any(1) | (self.written >= self.limit)
        self.is_live = self.is_live & ~ends

    def _write(self, tokens: Tensor, start: Tensor, is_kept: Tensor) -> None:
        at = start[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        at = at.clamp(max=self.text.shape[1] - 1)
        self.text.scatter_(1, at, tokens.where(is_kept, self.text.gather(1, at)))

    def _read(self, hidden: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """Return the most probable tokens and their probabilities, both [R, S].

        at: [R, S], indices of the fed tokens at which to read predictions.
        """
        chosen = hidden.gather(1, at[:, :, None].expand(-1, -1, hidden.shape[-1]))
        logits = self.model.lm_head(chosen).float()
        logits[..., self.ids.forbidden] = -torch.inf
        best = logits.softmax(-1).max(-1)
        return best.indices, best.values

    def _hidden(self, fed: Tensor, at: Tensor, end: int, first_mask: Tensor) -> Tensor:
        """Run the model on ``fed`` [R, Q] at positions ``at``; return hidden states [R, Q, H].

        end: number of positions that attention reads. first_mask: [R], position of each row's first
        mask.
        """
        self.cache.at, self.cache.end = at, end
        key = torch.arange(end, device=at.device)
        sees = key <= at[:, :, None]
        if not self.noise.is_causal:
            behind = key - first_mask[:, None]
            in_block = (behind >= 0) & (behind < self.num_masks)
            sees |= in_block[:, None, :] & (at >= first_mask[:, None])[:, :, None]
        bias = torch.zeros(sees.shape, dtype=self.model.dtype, device=at.device).masked_fill_(
            ~sees, -torch.inf
        )
        hidden: Tensor = self.model.model(
            input_ids=fed,
            attention_mask={"full_attention": bias[:, None]},
            position_ids=at,
            past_key_values=self.cache,
            use_cache=False,
        ).last_hidden_state
        return hidden
