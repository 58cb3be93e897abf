"""Train one stage of a recipe, with AdamW and a cosine schedule.

In the clean stream, the logits at position t predict the token at t + 1.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.lab.training.data import Corpus, TrainingExample, encoded, in_batches
from mars_runtime.lab.training.loop import Training
from mars_runtime.lab.training.recipe import Recipe, Stage, StageName
from mars_runtime.lab.training.streams import TokenBatch, TwoStreams
from mars_runtime.model.files import weight_files
from mars_runtime.text import Tokenizer

MAX_SHARD = "9500KB"


@dataclass(slots=True)
class Progressed:
    step: int = 0
    tokens: int = 0
    shard: int = 0
    batch: int = 0


def learning_rate(stage: Stage, tokens: int) -> float:
    if tokens < stage.warmup_tokens:
        return stage.learning_rate * (tokens + 1) / stage.warmup_tokens
    share = (tokens - stage.warmup_tokens) / max(1, stage.tokens - stage.warmup_tokens)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
    return stage.learning_rate * (stage.final_ratio + (1 - stage.final_ratio) * cosine)


def new_model(recipe: Recipe, tokenizer: Tokenizer) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    shape = recipe.shape
    torch.manual_seed(recipe.seed)
    config = Qwen2Config(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        max_position_embeddings=shape.max_positions,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        initializer_range=shape.hidden_size**-0.5 / 1.5,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.end_id,
        pad_token_id=tokenizer.pad_id,
        bos_token_id=None,
    )
    return Qwen2ForCausalLM(config)


def new_optimizer(model: Any, stage: Stage) -> torch.optim.AdamW:
    trained = list(model.parameters())
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": stage.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    betas = (0.9, stage.beta2)
    return torch.optim.AdamW(groups, lr=stage.learning_rate, betas=betas, fused=True)


class Trainer(Training):
    """start: folder of a checkpoint, or None."""

    unit = "tokens"

    def __init__(
        self, recipe: Recipe, stage: StageName, data: Path, out: Path, start: Path | None
    ) -> None:
        from accelerate import Accelerator
        from transformers import Qwen2ForCausalLM

        # With a starting checkpoint, stage ``ar`` is a baseline for ``mars`` with equal settings.
        self.recipe, self.stage = recipe, recipe.ar if start is None else recipe.mars
        super().__init__(stage, out, self.stage.tokens, f"log-{stage}.jsonl")
        self.tokenizer = Tokenizer.from_dir(start or out)
        self.examples = partial(encoded, Corpus(data, recipe), self.tokenizer, recipe)
        if start is not None:
            weight_files(start)  # decompresses the weights, which transformers cannot do
        with torch.device("cpu"):
            model = (
                new_model(recipe, self.tokenizer)
                if start is None
                else Qwen2ForCausalLM.from_pretrained(str(start), dtype=torch.float32)
            )
        device = torch.get_default_device().type
        self.accelerator = Accelerator(mixed_precision=recipe.precision, cpu=device == "cpu")
        optimizer = new_optimizer(model, self.stage)
        prepared, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.model: Any = self.accelerator.unwrap_model(prepared)
        self.progress = Progressed()
        self.parts = {"model": self.model, "optimizer": self.optimizer}
        # On a CPU, the backward pass of scaled_dot_product_attention takes a third of a step. With
        # matrix products and a fused softmax (eager), it takes a tenth.
        if device == "cpu":
            self.model.set_attn_implementation("eager")
        # Compile in place, so that the names in the state dict do not change.
        if recipe.compile:
            self.model.model.compile(dynamic=True)

    @property
    def done(self) -> int:
        return int(self.progress.tokens)

    def losses(self, examples: list[TrainingExample]) -> tuple[dict[str, Tensor], int]:
        if self.name == "ar":
            batch = TokenBatch.of(examples, self.tokenizer.pad_id)
            return ar_loss(self.model, batch, self.stage.prompt_weight), batch.ids.numel()
        rng = random.Random(f"{self.recipe.seed}/{self.progress.step}/blocks")
        streams = TwoStreams.of(
            examples,
            self.recipe.block_size,
            self.tokenizer.mask_id,
            self.tokenizer.end_id,
            rng,
            self.recipe.masked_share,
            is_diffusion=self.name == "block_diffusion",
        )
        return mars_loss(self.model, streams, self.recipe.clean_weight), streams.ids.numel()

    def step(self, examples: list[TrainingExample]) -> dict[str, float]:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.stage, self.progress.tokens)
        with self.accelerator.autocast():
            terms, num_tokens = self.losses(examples)
        self.accelerator.backward(terms["loss"])
        self.accelerator.clip_grad_norm_(self.model.parameters(), self.stage.grad_clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.progress.step += 1
        self.progress.tokens += num_tokens
        return {name: float(term.detach()) for name, term in terms.items()}

    def stream(self) -> Iterator[list[TrainingExample]]:
        progress = self.progress
        while progress.tokens < self.stage.tokens:
            # Tokens of the clean and of the noisy stream count towards ``batch_tokens``.
            streams = 1.0 if self.name == "ar" else 1.0 + self.recipe.masked_share
            budget = int(self.stage.batch_tokens / streams)
            order = f"{self.recipe.seed}/{progress.shard}/order"
            shard = in_batches(self.examples(progress.shard), budget, order)
            while progress.batch < len(shard) and progress.tokens < self.stage.tokens:
                progress.batch += 1
                yield shard[progress.batch - 1]
            if progress.batch >= len(shard):
                progress.shard, progress.batch = progress.shard + 1, 0

    def steps(self) -> Iterator[dict[str, float]]:
        yield from map(self.step, self.stream())

    def save(self) -> None:
        """The weights are written in bfloat16."""
        model = self.model
        rounded = {name: weight.to(torch.bfloat16) for name, weight in model.state_dict().items()}
        del rounded["lm_head.weight"]  # it is the embedding's tensor
        if self.name == "mars":
            model.config.mars_block_size = self.recipe.block_size
        if self.name == "block_diffusion":
            model.config.block_diffusion_size = self.recipe.block_size
        model.save_pretrained(str(self.out), state_dict=rounded, max_shard_size=MAX_SHARD)
        recipe = {"stage": self.name, "tokens_read": self.progress.tokens, **asdict(self.recipe)}
        (self.out / "recipe.json").write_text(json.dumps(recipe, indent=1) + "\n")
        super().save()


def ar_loss(model: Any, batch: TokenBatch, prompt_weight: float) -> dict[str, Tensor]:
    """Return CE(response, EOS included) + prompt_weight * CE(prompt), and its terms."""
    hidden = model.model(input_ids=batch.ids).last_hidden_state[:, :-1]
    position = torch.arange(hidden.shape[1], device=batch.ids.device)
    is_response = position >= batch.response_start[:, None] - 1
    is_real = position < batch.length[:, None] - 1
    following = batch.ids[:, 1:]
    clean, prompt = (
        _cross_entropy(model, hidden[chosen], following[chosen])
        for chosen in (is_real & is_response, is_real & ~is_response)
    )
    loss = clean + prompt_weight * prompt
    return {"loss": loss, "clean": clean.detach(), "prompt": prompt.detach()}


def mars_loss(model: Any, streams: TwoStreams, clean_weight: float) -> dict[str, Tensor]:
    """Return CE(noisy) + clean_weight * CE(clean), and its terms, by one forward pass."""
    # An additive mask (0 or the lowest float) works with every attention implementation.
    bias = torch.zeros(streams.mask.shape, device=streams.mask.device)
    hidden = model.model(
        input_ids=streams.ids,
        attention_mask=bias.masked_fill_(~streams.mask, torch.finfo(torch.float32).min),
        position_ids=streams.positions,
    ).last_hidden_state
    losses = []
    for part in (slice(0, streams.num_clean), slice(streams.num_clean, None)):
        targets = streams.targets[:, part]
        chosen = targets >= 0
        losses.append(_cross_entropy(model, hidden[:, part][chosen], targets[chosen]))
    clean, noisy = losses
    loss = noisy + clean_weight * clean
    return {"loss": loss, "clean": clean.detach(), "noisy": noisy.detach()}


def _cross_entropy(model: Any, hidden: Tensor, targets: Tensor) -> Tensor:
    """Return 0 without targets. hidden: [M, H]; targets: [M]."""
    loss = F.cross_entropy(model.lm_head(hidden).float(), targets, reduction="sum")
    return loss / max(1, len(targets))
