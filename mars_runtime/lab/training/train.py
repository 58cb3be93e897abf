"""The training loop: AdamW, warm-up and cosine, checkpoints that a killed run resumes from.

Knows recipes, batches and losses; knows nothing of decoding.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from mars_runtime.lab.training.data import Corpus, Example, batches
from mars_runtime.lab.training.loss import Batch, TwoStreams, ar_loss, mars_loss
from mars_runtime.lab.training.recipe import Recipe, Stage, StageName
from mars_runtime.text import Tokenizer

CHECKPOINT_SECONDS = 240.0
MAX_SHARD = "9500KB"


@dataclass(slots=True)
class Progressed:
    """Where a run stands: everything but the tensors that a resumed run needs."""

    step: int = 0
    tokens: int = 0
    shard: int = 0
    batch: int = 0


def learning_rate(stage: Stage, tokens: int) -> float:
    """Linear warm-up, then cosine down to ``final_ratio`` of the peak."""
    if tokens < stage.warmup_tokens:
        return stage.learning_rate * (tokens + 1) / stage.warmup_tokens
    share = (tokens - stage.warmup_tokens) / max(1, stage.tokens - stage.warmup_tokens)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
    return stage.learning_rate * (stage.final_ratio + (1 - stage.final_ratio) * cosine)


def new_model(recipe: Recipe, tokenizer: Tokenizer) -> Any:
    """A Qwen2 model of the recipe's shape with seeded random weights."""
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
        eos_token_id=tokenizer.im_end_id,
        pad_token_id=tokenizer.pad_id,
        bos_token_id=None,
    )
    return Qwen2ForCausalLM(config)


def new_optimizer(model: Any, stage: Stage) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": stage.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    betas = (0.9, stage.beta2)
    return torch.optim.AdamW(groups, lr=stage.learning_rate, betas=betas, fused=True)


class Trainer:
    """One stage of one recipe on one device, writing to ``out``."""

    def __init__(
        self, recipe: Recipe, stage: StageName, data: Path, out: Path, start: Path | None
    ) -> None:
        from accelerate import Accelerator
        from transformers import Qwen2ForCausalLM

        self.recipe, self.name, self.out = recipe, stage, out
        # From a checkpoint, stage ``ar`` is the baseline: as much more training as ``mars`` gets.
        self.stage = recipe.ar if start is None else recipe.mars
        self.accelerator = Accelerator(mixed_precision="bf16")
        self.tokenizer = Tokenizer.from_dir(start or out)
        self.corpus = Corpus(data, recipe)
        model = (
            new_model(recipe, self.tokenizer)
            if start is None
            else Qwen2ForCausalLM.from_pretrained(str(start), dtype=torch.float32)
        )
        self.progressed = Progressed()
        self.is_interrupted = False  # whoever sets it ends the run after the step that goes on
        self.model, self.optimizer = self.accelerator.prepare(
            model, new_optimizer(model, self.stage)
        )
        plain = self.accelerator.unwrap_model(self.model)
        # On a CPU the backward of scaled_dot_product_attention takes a third of a step; matmuls
        # and a fused softmax take a tenth.
        if self.accelerator.device.type == "cpu":
            plain.set_attn_implementation("eager")
        # The wrapped backbone is compiled in place: the state dict keeps its names.
        if recipe.compile:
            plain.model.compile(dynamic=True)

    def losses(self, examples: list[Example]) -> tuple[dict[str, Tensor], int]:
        """Loss terms of one batch and the tokens that its forward reads."""
        device = self.accelerator.device
        if self.name == "ar":
            batch = Batch.of(examples, self.tokenizer.pad_id).to(device)
            return ar_loss(self.model, batch, self.stage.prompt_weight), batch.ids.numel()
        rng = random.Random(f"{self.recipe.seed}/{self.progressed.step}/blocks")
        streams = TwoStreams.of(
            examples,
            self.recipe.block_size,
            self.tokenizer.mask_id,
            self.tokenizer.im_end_id,
            rng,
            self.recipe.masked_share,
        ).to(device)
        return mars_loss(self.model, streams, self.recipe.clean_weight), streams.ids.numel()

    def step(self, examples: list[Example]) -> dict[str, float]:
        """One optimizer step; returns the loss terms."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.stage, self.progressed.tokens)
        with self.accelerator.autocast():
            terms, num_tokens = self.losses(examples)
        self.accelerator.backward(terms["loss"])
        self.accelerator.clip_grad_norm_(self.model.parameters(), self.stage.grad_clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.progressed.step += 1
        self.progressed.tokens += num_tokens
        return {name: float(term.detach()) for name, term in terms.items()}

    def stream(self) -> Iterator[list[Example]]:
        """Batches from where the run stands; keeps ``progressed`` pointing at the next one."""
        where = self.progressed
        while where.tokens < self.stage.tokens:
            # Both streams share the budget of a step.
            streams = 1.0 if self.name == "ar" else 1.0 + self.recipe.masked_share
            budget = int(self.stage.batch_tokens / streams)
            shard = batches(self.corpus, self.tokenizer, self.recipe, budget, where.shard)
            while where.batch < len(shard) and where.tokens < self.stage.tokens:
                where.batch += 1
                yield shard[where.batch - 1]
            if where.batch >= len(shard):
                where.shard, where.batch = where.shard + 1, 0

    def run(self) -> None:
        """Train to the end of the budget, saving every few minutes and at the end."""
        saved, log = time.monotonic(), Log(self.out / f"log-{self.name}.jsonl")
        with _progress() as bar:
            task = bar.add_task(self.name, total=self.stage.tokens, info="")
            for examples in self.stream():
                terms = log.smooth(self.step(examples))
                bar.update(
                    task,
                    completed=self.progressed.tokens,
                    info=log.write(self.progressed, terms),
                )
                if self.is_interrupted:
                    break
                if time.monotonic() - saved > CHECKPOINT_SECONDS:
                    self.save()
                    saved = time.monotonic()
        self.save()

    def save(self) -> None:
        """Weights in bfloat16 as an ordinary checkpoint, the recipe, and what ``resume`` needs."""
        model = self.accelerator.unwrap_model(self.model)
        rounded = {name: weight.to(torch.bfloat16) for name, weight in model.state_dict().items()}
        del rounded["lm_head.weight"]  # tied to the embedding
        if self.name == "mars":
            model.config.mars_block_size = self.recipe.block_size
        model.save_pretrained(str(self.out), state_dict=rounded, max_shard_size=MAX_SHARD)
        (self.out / "recipe.json").write_text(
            json.dumps({"stage": self.name, **self.recipe.to_dict()}, indent=1) + "\n"
        )
        state = {
            "model": model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "progressed": self.progressed,
        }
        partial = self.out / "resume.pt.partial"
        torch.save(state, partial)
        partial.replace(self.out / "resume.pt")

    def resume(self) -> None:
        """Go on from the last save in ``out``. Raises FileNotFoundError when there is none."""
        with torch.serialization.safe_globals([Progressed]):
            state = torch.load(self.out / "resume.pt", weights_only=True)
        self.accelerator.unwrap_model(self.model).load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.progressed = state["progressed"]


class Log:
    """Smoothed loss terms and tokens/s, one JSON line every 20 steps."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._smooth: dict[str, float] = {}
        self._began = time.monotonic()
        self._tokens = -1

    def smooth(self, terms: dict[str, float]) -> dict[str, float]:
        """Exponential mean of the loss terms."""
        for name, value in terms.items():
            self._smooth[name] = 0.95 * self._smooth.get(name, value) + 0.05 * value
        return self._smooth

    def write(self, where: Progressed, terms: dict[str, float]) -> str:
        """Log now and then; returns a line for the progress bar."""
        if self._tokens < 0:
            self._began, self._tokens = time.monotonic(), where.tokens
        rate = (where.tokens - self._tokens) / max(1e-9, time.monotonic() - self._began)
        shown = " ".join(f"{name} {value:.3f}" for name, value in terms.items())
        if where.step % 20 == 0:
            line = {"step": where.step, "tokens": where.tokens, "per_second": round(rate), **terms}
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")
        return f"{shown} {rate:,.0f} tokens/s"


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.1f}%"))
    return Progress(*columns, TextColumn("{task.fields[info]}"), TimeRemainingColumn())
