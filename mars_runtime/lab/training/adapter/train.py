"""Train an adapter: perform steps, measure on held-out texts, save the state of the run.

Processes of ``torchrun`` train on different batches, and their gradients are averaged.
"""

from __future__ import annotations

import json
import math
import random
import signal
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from mars_runtime.files.outputs import write_text
from mars_runtime.lab.training.adapter import held_out
from mars_runtime.lab.training.adapter.card import model_card
from mars_runtime.lab.training.adapter.loss import TrainedVocabulary, agreement, batch_loss
from mars_runtime.lab.training.adapter.parameters import Form, FullWeights, Parameters
from mars_runtime.lab.training.adapter.streams import AnchoredBatch, Text, epoch, read_texts
from mars_runtime.lab.training.backbone import Backbone, read_base
from mars_runtime.lab.training.train import STATE, interruptible, save_state
from mars_runtime.model.config import CheckpointError

FULL_LEARNING_RATE = 1e-4
"""Peak learning rate for the weights of the base, a tenth of the rate for new weights."""


@dataclass(frozen=True, slots=True)
class AdapterRecipe:
    """The hyperparameters of an adapter training.

    - masks: numbers of masks per group, which the steps use in turn. Most groups are short, because
      decoding rarely accepts more than three masks.
    - measure_steps: steps between held-out measurements, after which the state is saved.
    - patience: measurements without an improvement after which the training stops.
    """

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
        """Return the learning rate as a share of its peak: warm-up, cosine decay."""
        rise = min(1.0, (step + 1) / self.warmup_steps)
        fall = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return rise * (self.final_ratio + (1 - self.final_ratio) * fall)


class AdapterTrainer:
    """Trains an adapter for a base. texts: folder with the answers that ``distill`` wrote."""

    def __init__(
        self,
        recipe: AdapterRecipe,
        base: str,
        texts: Path,
        out: Path,
        dtype: torch.dtype = torch.float32,
        is_compiled: bool = False,
    ) -> None:
        self.recipe, self.out = recipe, out
        self.rank, self.world = (
            (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        )
        self.base = read_base(base)
        self.model = Backbone(self.base, dtype, is_compiled=is_compiled)
        self.texts, held_out_texts = read_texts(texts)
        self.held_out = held_out.chosen(held_out_texts, recipe.measure_texts)
        occurring = sorted({token for text in self.texts for token in text.ids})
        self.vocabulary = TrainedVocabulary(self.model, torch.tensor(occurring))
        self.parameters: Parameters | FullWeights = (
            FullWeights(self.base)
            if recipe.form.full
            else Parameters(self.model, recipe.form, recipe.seed)
        )
        self.optimizer = new_optimizer(self.parameters, recipe)
        self.progress = TrainingProgress()
        self._epoch: tuple[int, list[list[Text]]] = (-1, [])
        self._stopped = False

    def run(self) -> None:
        log = AdapterLog(self.out / "log.jsonl", self.rank == 0)
        # torchrun forwards signals, so a process can get two for one Ctrl-C.
        with interruptible(signal.SIGINT, signal.SIGTERM, is_second_fatal=False) as interrupt:
            while self.progress.step < self.recipe.steps and not self._stopped:
                began = time.process_time()
                terms = self.step()
                self.progress.seconds += time.process_time() - began
                log.step(self.progress, terms)
                at = self.progress.step
                if at % self.recipe.measure_steps == 0 or at == self.recipe.steps:
                    log.write(self.measure())
                    self.save()
                if self._is_any(interrupt.is_set()):
                    break
        self.save()

    def _is_any(self, value: bool) -> bool:
        """Return whether ``value`` is true in any process, so that all stop together. If only one
        stopped, the others would wait for its gradients forever.
        """
        if self.world == 1:
            return value
        combined = torch.tensor(int(value))
        dist.all_reduce(combined, dist.ReduceOp.MAX)
        return bool(combined)

    def step(self) -> dict[str, float]:
        recipe, at = self.recipe, self.progress.step
        rate = recipe.rate(at)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * rate
        terms = batch_loss(
            self.model,
            self.parameters,
            self.vocabulary,
            self.batch(at),
            recipe.masks[at % len(recipe.masks)],
            until_miss=at >= recipe.until_miss_from * recipe.steps,
        )
        torch.autograd.backward(terms.loss)
        self._share_gradients()
        torch.nn.utils.clip_grad_norm_(self.parameters.parameters(), recipe.grad_clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.progress.step += 1
        self.progress.masks += terms.masks * self.world
        return {"loss": float(terms.loss.detach()), "first": terms.first}

    def batch(self, step: int) -> AnchoredBatch:
        recipe = self.recipe
        index = step * self.world + self.rank
        number = 0
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
        return AnchoredBatch.of(texts, anchors, random.Random(f"{recipe.seed}/{step}/{self.rank}"))

    def measure(self) -> dict[str, Any]:
        """Measure the held-out figures; export the adapter if they are the best so far."""
        progress, depth = self.progress, self.recipe.block_size
        own_texts = self.held_out[self.rank :: self.world]
        model, extra = self.model, {}
        if isinstance(self.parameters, FullWeights):
            with torch.no_grad():
                model = self.parameters.backbone(model.embedding.dtype)
            every = [AnchoredBatch.of([text], 1, random.Random(0)) for text in self.held_out]
            extra = {"agreement": round(agreement(model, every), 4)}
        rows = held_out.right_rows(model, self.parameters, own_texts, depth)
        figures = held_out.summary(self._gathered(rows), depth) | extra
        value = sum(every for _, every in figures["by_kind"].values()) / len(figures["by_kind"])
        if value > progress.best:
            progress.best, progress.best_step = value, progress.step
            if self.rank == 0:
                self.export(figures)
        num_steps = progress.step - progress.best_step
        self._stopped = num_steps >= self.recipe.patience * self.recipe.measure_steps
        line = {"step": progress.step, "masks": progress.masks, "mean": round(value, 4), **figures}
        progress.history.append(line)
        return line

    def _gathered(self, rows: list[held_out.Row]) -> list[held_out.Row]:
        if self.world == 1:
            return rows
        parts: list[list[held_out.Row]] = [[] for _ in range(self.world)]
        dist.all_gather_object(parts, rows)
        return [row for part in parts for row in part]

    def export(self, figures: dict[str, Any]) -> None:
        """Write the adapter, its recipe and its model card. Full weights are not written."""
        if isinstance(self.parameters, FullWeights):
            return
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

    def save(self) -> None:
        """Write the state for ``resume``. Full weights are not saved."""
        if self.rank != 0 or isinstance(self.parameters, FullWeights):
            return
        state = {
            "parameters": self.parameters.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "progress": asdict(self.progress),
        }
        save_state(state, self.out)

    def start_from(self, folder: Path) -> None:
        if isinstance(self.parameters, FullWeights):
            raise CheckpointError("--full cannot start from an adapter. Remove --adapter.")
        self.parameters.load(folder)

    def resume(self) -> None:
        device = torch.get_default_device()
        state = torch.load(self.out / STATE, weights_only=True, map_location=device)
        self.parameters.load_state_dict(state["parameters"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.progress = TrainingProgress(**state["progress"])

    def _share_gradients(self) -> None:
        if self.world == 1:
            return
        gradients = [p.grad for p in self.parameters.parameters() if p.grad is not None]
        flat = torch.cat([grad.flatten() for grad in gradients])
        dist.all_reduce(flat)
        flat /= self.world
        for grad, part in zip(
            gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True
        ):
            grad.copy_(part.view_as(grad))


def new_optimizer(
    parameters: Parameters | FullWeights, recipe: AdapterRecipe
) -> torch.optim.Optimizer:
    """Build AdamW without weight decay. Mask embeddings get a higher learning rate."""
    rest = [p for name, p in parameters.named_parameters() if name != "mask_embedding"]
    groups = [
        {"params": rest, "peak": FULL_LEARNING_RATE if recipe.form.full else recipe.learning_rate},
        {"params": [parameters.mask_embedding], "peak": recipe.embedding_rate},
    ]
    return torch.optim.AdamW(
        groups, lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
    )


@dataclass
class TrainingProgress:
    """seconds: CPU time in training steps. masks: number of masks trained so far. best: highest
    number of tokens per forward pass on held-out texts, measured at ``best_step``.
    """

    step: int = 0
    masks: int = 0
    seconds: float = 0.0
    best: float = 0.0
    best_step: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


class AdapterLog:
    """Writes a line of JSON every ten steps and at each measurement, in the first process only."""

    def __init__(self, path: Path, is_writer: bool) -> None:
        self._path, self._is_writer = path, is_writer
        self._recent: list[dict[str, float]] = []

    def step(self, progress: TrainingProgress, terms: dict[str, float]) -> None:
        self._recent.append(terms)
        if progress.step % 10:
            return
        mean = {
            name: round(sum(t[name] for t in self._recent) / len(self._recent), 4) for name in terms
        }
        self._recent = []
        rate = round(progress.masks / max(1e-9, progress.seconds))
        head = {"step": progress.step, "masks": progress.masks}
        self.write({**head, "seconds": round(progress.seconds), "masks_per_second": rate, **mean})

    def write(self, line: dict[str, Any]) -> None:
        if not self._is_writer:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"time": time.strftime("%H:%M:%S"), **line})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
        print(text, flush=True)
