"""MARS decoding for transformers' ``generate``: greedy, several tokens per forward pass.

    model.generate(**inputs, custom_generate=REPOSITORY, trust_remote_code=True,
                   block_size=4, tau=0.95, lossless=False, max_new_tokens=200)

A MARS checkpoint (arXiv 2604.07023) is a causal model that also predicts through mask tokens. Each
pass feeds the tokens that are not in the cache yet, then B - 1 masks: the last real token predicts
the next token, each mask one more. These B proposals are accepted from left to right while their
confidence is at least tau, the first one always. The keys and values of the masks are dropped.

Lossless decoding emits none of the proposals behind the first before it is verified: they are fed
as drafts in the next pass, which also yields the model's own choice after each of them. The text is
that of greedy decoding, except at near ties, and tau only decides how much is drafted.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, DynamicCache
from transformers.generation import GenerateDecoderOnlyOutput

if TYPE_CHECKING:
    from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

MASK = "<|mask|>"
MAX_BLOCK_SIZE = 64
# The cache has another name in older versions of transformers.
HAS_CACHE = "cache" in GenerateDecoderOnlyOutput.__annotations__


@dataclass
class MarsOutput(GenerateDecoderOnlyOutput):
    """Result with ``return_dict_in_generate=True``: ``sequences``, the cache and the number of
    forward passes, the one that reads the prompt included."""

    num_forwards: int | None = None


@dataclass(frozen=True)
class Settings:
    """block_size: number of proposals per forward pass. tau: minimum confidence of accepted
    proposals, from 0 to 1.
    """

    block_size: int
    tau: float
    lossless: bool
    mask_id: int

    def __post_init__(self) -> None:
        if not 1 <= self.block_size <= MAX_BLOCK_SIZE:
            raise ValueError(
                f"block_size must be from 1 to {MAX_BLOCK_SIZE}, got {self.block_size}."
            )
        if not 0 <= self.tau <= 1:
            raise ValueError(f"tau must be from 0 to 1, got {self.tau}.")


def generate(
    model: Any,
    block_size: int = 4,
    tau: float = 0.95,
    lossless: bool = False,
    mask_token_id: int | None = None,
    streamer: Any = None,
    do_sample: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Generate as ``model.generate`` does, which prepares and checks everything else in ``kwargs``.

    mask_token_id: by default that of the model's configuration, else of its tokenizer. Returns ids
    [1, prompt and answer], or ``MarsOutput``. Raises ValueError for what is not supported.
    """
    if do_sample or kwargs.get("assistant_model") is not None:
        raise ValueError("MARS decoding is greedy, without an assistant: leave do_sample out.")
    mask_id = find_mask(model) if mask_token_id is None else mask_token_id
    settings = Settings(block_size, tau, lossless, mask_id)

    # transformers passes what it has prepared to a function of these arguments.
    def decode(
        model: Any,
        input_ids: Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **model_kwargs: Any,
    ) -> Any:
        cache = usable_cache(model, input_ids, model_kwargs)
        run = DecodeState(model, settings, cache, logits_processor, input_ids)
        is_done = False
        while not is_done:
            for token in run.step(generation_config.max_length - run.text.shape[1]):
                run.text = torch.cat([run.text, token.view(1, 1)], 1)
                if streamer is not None:
                    streamer.put(token.view(1).cpu())
                is_done = bool(stopping_criteria(run.text, None).all())
                if is_done:
                    break
        run.crop(run.text.shape[1] - 1)
        if streamer is not None:
            streamer.end()
        if not generation_config.return_dict_in_generate:
            return run.text
        named = {"cache" if HAS_CACHE else "past_key_values": cache}
        return MarsOutput(sequences=run.text, num_forwards=run.num_forwards, **named)

    # Of the class, because a model that was loaded with this file has it as its own generate.
    ordinary = type(model).generate
    return ordinary(model, custom_generate=decode, streamer=streamer, do_sample=False, **kwargs)


def find_mask(model: Any) -> int:
    """Return the id of the mask token. Raises ValueError if there is none."""
    mask_id = getattr(model.config, "mask_token_id", None)
    if mask_id is None and model.name_or_path:
        tokenizer = AutoTokenizer.from_pretrained(model.name_or_path)
        mask_id = tokenizer.get_vocab().get(MASK, tokenizer.mask_token_id)
    if mask_id is None:
        raise ValueError(f"This model names no mask token such as {MASK}: give mask_token_id.")
    return int(mask_id)


def usable_cache(model: Any, input_ids: Tensor, given: dict[str, Any]) -> DynamicCache:
    """Return the cache to use. Raises ValueError for batches, padding and unsupported types of
    cache.
    """
    mask = given.get("attention_mask")
    if len(input_ids) != 1 or (mask is not None and not bool(mask.all())):
        raise ValueError("MARS decoding takes one prompt without padding: call it once per prompt.")
    cache = given.get("cache", given.get("past_key_values"))
    if cache is None:
        cache = DynamicCache(config=model.config)
    if not isinstance(cache, DynamicCache):
        kind = type(cache).__name__
        raise ValueError(f"MARS decoding needs a DynamicCache, got {kind}: leave it out.")
    for layer in getattr(cache, "layers", ()):
        if type(layer).__name__ != "DynamicLayer":  # its masks and rejected drafts must be dropped
            kind = type(layer).__name__
            raise ValueError(
                f"MARS decoding cannot crop a cache with a {kind}: use full attention."
            )
    return cache


class DecodeState:
    """The state between two forward passes. text: ids [1, T]. drafts: ids [1, D] to verify in the
    next pass.
    """

    def __init__(
        self,
        model: Any,
        settings: Settings,
        cache: DynamicCache,
        processor: LogitsProcessorList,
        text: Tensor,
    ) -> None:
        self.text = text
        self.num_forwards = 0
        self._model, self._settings, self._cache = model, settings, cache
        self._processor = processor
        self._drafts = text[:, :0]
        parameters = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        # Set by mask_adapter.py for an adapter with a sampler head.
        self._rank = getattr(model, "rank_mask_candidates", None)
        self.crop(text.shape[1] - 1)

    def crop(self, length: int) -> None:
        """Drop the keys and values after the first ``length`` tokens."""
        surplus = self._cache.get_seq_length() - length
        if surplus > 0:
            self._cache.crop(-surplus)

    def step(self, remaining: int) -> Tensor:
        """Run one pass; return the ids that it emits, at least one, [N]."""
        settings, num_text, drafts = self._settings, self.text.shape[1], self._drafts
        room = remaining - drafts.shape[1] - 1 if settings.lossless else remaining
        num_masks = max(1, min(settings.block_size, room)) - 1
        tokens, confidences = self._propose(drafts, num_masks)
        agreed = (tokens[: drafts.shape[1]] == drafts[0]).tolist()
        num_agreed = (*agreed, False).index(False)
        num_sure = num_agreed + 1
        if num_agreed == len(agreed):  # else what follows was predicted behind a wrong draft
            sure = [confidence >= settings.tau for confidence in confidences[num_sure:].tolist()]
            num_sure += (*sure, False).index(False)
        num_emitted = num_agreed + 1 if settings.lossless else num_sure
        self._drafts = tokens[num_emitted:num_sure].view(1, -1)
        self.crop(num_text + num_agreed)
        return tokens[:num_emitted]

    def _propose(self, drafts: Tensor, num_masks: int) -> tuple[Tensor, Tensor]:
        """Return the best token after the text, after each draft and at each further mask, with its
        confidence, both [N]."""
        masks = self.text.new_full((1, num_masks), self._settings.mask_id)
        pending = self.text[:, self._cache.get_seq_length() :]
        fed = torch.cat([pending, drafts, masks], 1)
        outputs = self._model(
            input_ids=fed.to(self._model.device),
            use_cache=True,
            logits_to_keep=drafts.shape[1] + 1 + num_masks,
            **{self._cache_name: self._cache},
        )
        self.num_forwards += 1
        prefix = self.text
        tokens: list[Tensor] = []
        confidences: list[Tensor] = []
        for slot, logits in enumerate(outputs.logits[0].float().split(1)):
            scores = self._processor(prefix, logits.to(prefix.device)).clone()
            scores[:, self._settings.mask_id] = -torch.inf
            probabilities = scores.softmax(-1)
            if self._rank is not None and slot > drafts.shape[1]:
                probabilities = self._rank(probabilities, slot, tokens[-1])
            confidence, token = probabilities.max(-1)
            tokens.append(token)
            confidences.append(confidence)
            following = drafts[:, slot : slot + 1] if slot < drafts.shape[1] else token.view(1, 1)
            prefix = torch.cat([prefix, following], 1)
        return torch.cat(tokens), torch.cat(confidences)
