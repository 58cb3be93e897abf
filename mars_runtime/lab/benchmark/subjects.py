"""What is timed: a checkpoint with held-out prompts, or a shape with random weights and prompts.

Knows how both are loaded and by what they decode; times nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mars_runtime.decoders.base import Vocabulary
from mars_runtime.decoders.baselines import BatchMethod, decode_batch
from mars_runtime.decoders.factory import decode
from mars_runtime.events import Event
from mars_runtime.lab.benchmark.acceptances import Acceptance, read_acceptance
from mars_runtime.lab.benchmark.contenders import Target
from mars_runtime.lab.benchmark.order import Order
from mars_runtime.lab.evaluation.measure import Decode
from mars_runtime.lab.evaluation.prompts import load_prompts
from mars_runtime.lab.evaluation.subject import STEPS_PER_READ, subject_of
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.model.shapes import SHAPES, build_shape, random_prompts
from mars_runtime.provenance import fingerprint
from mars_runtime.settings import DecodeSettings

RANDOM = "random"
"""The family of the prompts of a shape."""
RANDOM_LENGTH = 128


@dataclass(frozen=True, slots=True)
class Subject:
    """A model behind functions, and what it is asked.

    prompts: token ids by family, in the order of the families. facts: name, dtype and device, to be
        kept with the figures. note: what every table must say, or nothing.
    """

    target: Target
    model: Any
    vocabulary: Vocabulary
    prompts: Mapping[str, Sequence[Sequence[int]]]
    facts: Mapping[str, Any]
    note: str = ""


def load_subject(order: Order) -> Subject:
    """What was asked for. Raises CheckpointError, PromptError or DecodeError."""
    if order.shape is not None:
        return _shape(order, order.shape)
    # What was asked wrongly is told before anything heavy is loaded.
    sets = load_prompts(order.families, order.seed, order.num_prompts)
    checkpoint = load_checkpoint(order.checkpoint, device=order.device, dtype=order.dtype)
    return Subject(
        target=checkpoint_target(checkpoint),
        model=checkpoint.model,
        vocabulary=checkpoint.tokenizer,
        prompts={
            one.family: [checkpoint.tokenizer.encode_prompt(task.prompt) for task in one.tasks]
            for one in sets
        },
        facts={
            "name": checkpoint.name,
            "fingerprint": fingerprint(checkpoint.weight_files),
            **_place(checkpoint.model),
        },
    )


def checkpoint_target(checkpoint: Checkpoint) -> Target:
    """A loaded checkpoint behind the functions that peers are made of."""
    from mars_runtime.lab.benchmark.transformers_peers import gguf_of, loader

    return Target(
        device=checkpoint.model.device,
        decode=subject_of(checkpoint).decode,
        decode_block=lambda size: _batch(checkpoint, "block", size),
        decode_uncached=_batch(checkpoint, "uncached"),
        load_transformers=loader(checkpoint),
        eos_ids=tuple(sorted(checkpoint.tokenizer.eos_ids)),
        can_choose=True,
        tokenizer=checkpoint.tokenizer,
        gguf=gguf_of(checkpoint),
    )


def _shape(order: Order, name: str) -> Subject:
    acceptance = read_acceptance(order.acceptance)
    shaped = build_shape(name, device=order.device, dtype=order.dtype)
    prompts = random_prompts(shaped.vocabulary, [RANDOM_LENGTH] * order.num_prompts, order.seed)
    model = shaped.model

    def decode_forced(
        prompts: Sequence[Sequence[int]], settings: DecodeSettings
    ) -> Iterable[Event]:
        return decode(
            *(model, shaped.vocabulary, prompts, lambda: settings),
            steps_per_read=STEPS_PER_READ,
            forced=acceptance.forced,
        )

    return Subject(
        target=Target(
            device=model.device,
            decode=decode_forced,
            load_transformers=_random_transformers(name, model.dtype, model.device),
            eos_ids=(),
        ),
        model=model,
        vocabulary=shaped.vocabulary,
        prompts={RANDOM: prompts},
        facts={"name": f"shape {name}", **_place(model), "acceptance": acceptance.forced.shares},
        note=note_of(acceptance),
    )


def note_of(acceptance: Acceptance) -> str:
    """What every table and file of a shape must say."""
    return f"random weights, timing only, acceptance drawn from {acceptance.source}"


def _random_transformers(name: str, dtype: torch.dtype, device: torch.device) -> Callable[[], Any]:
    """transformers' model of the same shape, with random weights of its own."""

    def load() -> Any:
        import transformers

        config = transformers.Qwen2Config(**SHAPES[name])  # type: ignore[arg-type]
        with device:
            kind: Any = transformers.AutoModelForCausalLM
            model = kind.from_config(config, dtype=dtype)
        return model.to(device).eval()

    return load


def _batch(checkpoint: Checkpoint, method: BatchMethod, cache_block: int = 32) -> Decode:
    """A whole question in one batch, under another cache than the cursor's."""

    def decode(prompts: Sequence[Sequence[int]], settings: DecodeSettings) -> Iterable[Event]:
        model, tokenizer = checkpoint.model, checkpoint.tokenizer
        return decode_batch(
            model, tokenizer, prompts, method, lambda: settings, len(prompts), cache_block
        )

    return decode


def _place(model: Any) -> dict[str, str]:
    return {"dtype": model.arithmetic, "device": str(model.device)}
