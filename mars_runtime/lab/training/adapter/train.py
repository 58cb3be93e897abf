"""Train an adapter: perform steps, measure on held-out texts, export the best version."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from mars_runtime.files.outputs import write_text
from mars_runtime.lab.training.adapter import held_out
from mars_runtime.lab.training.adapter.base import read_base
from mars_runtime.lab.training.adapter.card import model_card
from mars_runtime.lab.training.adapter.loss import TrainedVocabulary, batch_loss
from mars_runtime.lab.training.adapter.parameters import Form, Parameters
from mars_runtime.lab.training.adapter.streams import AnchoredBatch, Text, epoch, read_texts
from mars_runtime.lab.training.loop import Training


@dataclass(frozen=True, slots=True)
class AdapterRecipe:
    """masks: numbers of masks per group, in turn; mostly few, because decoding rarely accepts more
    than three. patience: measurements without an improvement until the end."""

    steps: int
    form: Form
    block_size: int = 8
    masks: tuple[int, ...] = (2, 3, 2, 3, 2, 3, 2, 7)
    batch_tokens: int = 2048
    anchors: int = 64
    learning_rate: float = 1e-3
    embedding_rate: float = 5e-3
    warmup_steps: int = 20
    final_ratio: float = 0.1
    grad_clip: float = 1.0
    until_miss_from: float = 1.0
    measure_steps: int = 50
    measure_texts: int = 8
    patience: int = 6
    seed: int = 20261122

    def rate(self, step: int) -> float:
        rise = min(1.0, (step + 1) / self.warmup_steps)
        fall = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return rise * (self.final_ratio + (1 - self.final_ratio) * fall)


@dataclass
class AdapterProgress:
    """best: highest number of tokens per forward pass on held-out texts, at ``best_step``."""

    step: int = 0
    masks: int = 0
    best: float = 0.0
    best_step: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


class AdapterTrainer(Training):
    """texts: folder with the answers that ``distill`` wrote."""

    unit = "masks"

    def __init__(
        self,
        recipe: AdapterRecipe,
        base: str,
        texts: Path,
        out: Path,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__("adapter", out, recipe.steps, "log.jsonl")
        self.recipe = recipe
        self.base = read_base(base, dtype)
        self.texts, held_out_texts = read_texts(texts)
        self.held_out = held_out.chosen(held_out_texts, recipe.measure_texts)
        occurring = sorted({token for text in self.texts for token in text.ids})
        self.vocabulary = TrainedVocabulary(self.base, torch.tensor(occurring))
        self.parameters = Parameters(self.base, recipe.form, recipe.seed)
        rest = [p for name, p in self.parameters.named_parameters() if name != "mask_embedding"]
        groups = [
            {"params": rest, "peak": recipe.learning_rate},
            {"params": [self.parameters.mask_embedding], "peak": recipe.embedding_rate},
        ]
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
        self.parts = {"parameters": self.parameters, "optimizer": self.optimizer}
        self.progress = AdapterProgress()
        self._epoch: tuple[int, list[list[Text]]] = (-1, [])

    def steps(self) -> Iterator[dict[str, float]]:
        recipe, progress = self.recipe, self.progress
        while progress.step < recipe.steps:
            yield self.step()
            if progress.step % recipe.measure_steps == 0 or progress.step == recipe.steps:
                line = self.measure()
                self.log(line)
                print(json.dumps(line), flush=True)
                num_steps = progress.step - progress.best_step
                if num_steps >= recipe.patience * recipe.measure_steps:
                    break

    def step(self) -> dict[str, float]:
        recipe, at = self.recipe, self.progress.step
        rate = recipe.rate(at)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * rate
        terms = batch_loss(
            self.base,
            self.parameters,
            self.vocabulary,
            self.batch(at),
            recipe.masks[at % len(recipe.masks)],
            until_miss=at >= recipe.until_miss_from * recipe.steps,
        )
        torch.autograd.backward(terms.loss)
        torch.nn.utils.clip_grad_norm_(self.parameters.parameters(), recipe.grad_clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.progress.step += 1
        self.progress.masks += terms.masks
        return {"loss": float(terms.loss.detach()), "first": terms.first}

    def batch(self, step: int) -> AnchoredBatch:
        recipe, index, number = self.recipe, step, 0
        while True:
            if self._epoch[0] != number:
                batches = epoch(self.texts, recipe.batch_tokens, recipe.seed, number)
                self._epoch = (number, batches)
            if index < len(self._epoch[1]):
                break
            index -= len(self._epoch[1])
            number += 1
        texts = self._epoch[1][index]
        # Larger groups get fewer anchors, so that all steps have similar sizes.
        requested = recipe.anchors * 3 // max(3, recipe.masks[step % len(recipe.masks)])
        anchors = min(requested, max(len(text.anchors) for text in texts))
        return AnchoredBatch.of(texts, anchors, random.Random(f"{recipe.seed}/{step}/0"))

    def measure(self) -> dict[str, Any]:
        """Export the adapter if it is the best so far."""
        progress, depth = self.progress, self.recipe.block_size
        rows = held_out.right_rows(self.base, self.parameters, self.held_out, depth)
        figures = held_out.summary(rows, depth)
        value = sum(every for _, every in figures["by_kind"].values()) / len(figures["by_kind"])
        if value > progress.best:
            progress.best, progress.best_step = value, progress.step
            self.export(figures)
        line = {"step": progress.step, "masks": progress.masks, "mean": round(value, 4), **figures}
        progress.history.append(line)
        return line

    def export(self, figures: dict[str, Any]) -> None:
        tokenizer = self.base.tokenizer
        metadata = {
            "base": self.base.name,
            "mask_token": tokenizer.token_bytes(tokenizer.mask_id).decode(),
            "block_size": self.recipe.block_size,
            "trained_masks": self.progress.masks,
            "held_out": figures,
        }
        self.parameters.save(self.out, metadata)
        write_text(self.out / "README.md", model_card(metadata))
        write_text(self.out / "recipe.json", json.dumps(asdict(self.recipe), indent=1) + "\n")
