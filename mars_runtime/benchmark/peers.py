"""The peers of a comparison: transformers' greedy ``generate`` and this runtime's decoders.

Each answers one prompt at a time on the same weights and times itself; text is made by nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from mars_runtime.benchmark.paired import Timing
from mars_runtime.evaluation.measure import Decode
from mars_runtime.events import Step
from mars_runtime.model.load import Checkpoint
from mars_runtime.settings import DecodeSettings

Answer = Callable[[Sequence[int]], Timing]


def runtime_answer(decode: Decode, settings: DecodeSettings, device: torch.device) -> Answer:
    """One row of this runtime's decoder, from call to last event."""

    def answer(ids: Sequence[int]) -> Timing:
        tokens: list[int] = []
        num_first, num_forwards, first_seconds = 0, 0, 0.0
        with torch.inference_mode():
            start = _now(device)
            for event in decode([ids], settings):
                if not isinstance(event, Step):
                    continue
                tokens += event.rows[0].accepted
                num_forwards += 1
                if num_forwards == 1:
                    num_first, first_seconds = len(tokens), time.perf_counter() - start
            seconds = _now(device) - start
        return Timing(tuple(tokens), num_first, num_forwards, first_seconds, seconds)

    return answer


class _FirstToken:
    """A streamer for ``generate`` that notes when the first token was there."""

    def __init__(self) -> None:
        self.num_calls = 0
        self.moment = 0.0

    def put(self, value: torch.Tensor) -> None:
        """The first call brings the prompt, the second the first token."""
        self.num_calls += 1
        if self.num_calls == 2:
            self.moment = time.perf_counter()

    def end(self) -> None:
        """Nothing is left to do."""


def transformers_answer(checkpoint: Checkpoint, max_new_tokens: int) -> Answer:
    """transformers' greedy ``generate`` with its default cache, same weights, dtype and device."""
    model = load_transformers(checkpoint)
    device = checkpoint.model.device
    eos = sorted(checkpoint.tokenizer.eos_ids)
    options: dict[str, Any] = {
        "do_sample": False,
        "max_new_tokens": max_new_tokens,
        "eos_token_id": eos,
        "pad_token_id": eos[0],
        "repetition_penalty": 1.0,
    }

    def answer(ids: Sequence[int]) -> Timing:
        prompt = torch.tensor([list(ids)], device=device)
        mask = torch.ones_like(prompt)
        streamer = _FirstToken()
        start = _now(device)
        with torch.inference_mode():
            found = model.generate(prompt, attention_mask=mask, streamer=streamer, **options)
        seconds = _now(device) - start
        tokens = tuple(found[0, len(ids) :].tolist())
        return Timing(tokens, 1, len(tokens), streamer.moment - start, seconds)

    return answer


def load_transformers(checkpoint: Checkpoint) -> Any:
    """The same weights in transformers' own class; remote code is never run."""
    import transformers

    is_llama = checkpoint.model.config.model_type == "llama"
    kind: Any = transformers.LlamaForCausalLM if is_llama else transformers.Qwen2ForCausalLM
    model = kind.from_pretrained(checkpoint.path, dtype=checkpoint.model.dtype)
    # The card's defaults (sampling, penalties) would change greedy output.
    model.generation_config = transformers.GenerationConfig()  # type: ignore[no-untyped-call]
    return model.to(checkpoint.model.device).eval()


def _now(device: torch.device) -> float:
    """Seconds, once all work given to the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
