"""Train one stage of a recipe, with AdamW, a cosine schedule, a log and resumable saves.

In the clean stream, the logits at position t predict the token at t + 1.
"""

from __future__ import annotations

import json
import math
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.lab.training.data import Corpus, TrainingExample, encoded, in_batches
from mars_runtime.lab.training.recipe import Recipe, Stage, StageName
from mars_runtime.lab.training.streams import TokenBatch, TwoStreams
from mars_runtime.model.files import weight_files
from mars_runtime.text import Tokenizer

if TYPE_CHECKING:
    from rich.progress import Progress

CHECKPOINT_SECONDS = 240.0
MAX_SHARD = "9500KB"
STATE = "resume.pt"
"""Name of the file with the state from which an interrupted run resumes."""


@dataclass(slots=True)
class Progressed:
    """The progress of a run, stored with the tensors of model and optimizer. shard, batch: the next
    batch.
    """

    step: int = 0
    tokens: int = 0
    shard: int = 0
    batch: int = 0


def learning_rate(stage: Stage, tokens: int) -> float:
    """Linear warm-up, then cosine decay to ``final_ratio`` of the peak."""
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
    """Build AdamW with weight decay only on matrices."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": stage.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    betas = (0.9, stage.beta2)
    return torch.optim.AdamW(groups, lr=stage.learning_rate, betas=betas, fused=True)


class Trainer:
    """Trains one stage of a recipe on one device. start: folder of a checkpoint, or None."""

    def __init__(
        self,
        recipe: Recipe,
        stage: StageName,
        data: Path,
        out: Path,
        start: Path | None,
    ) -> None:
        from accelerate import Accelerator
        from transformers import Qwen2ForCausalLM

        self.recipe, self.name, self.out = recipe, stage, out
        # With a starting checkpoint, stage ``ar`` is a baseline for ``mars`` with equal settings.
        self.stage = recipe.ar if start is None else recipe.mars
        self.accelerator = Accelerator(mixed_precision=recipe.precision)
        self.tokenizer = Tokenizer.from_dir(start or out)
        self.examples = partial(encoded, Corpus(data, recipe), self.tokenizer, recipe)
        if start is not None:
            weight_files(start)  # decompresses the weights, which transformers cannot do
        model = (
            new_model(recipe, self.tokenizer)
            if start is None
            else Qwen2ForCausalLM.from_pretrained(str(start), dtype=torch.float32)
        )
        self.progressed = Progressed()
        self.log = TrainingLog(out / f"log-{stage}.jsonl")
        self.model, self.optimizer = self.accelerator.prepare(
            model, new_optimizer(model, self.stage)
        )
        plain = self.accelerator.unwrap_model(self.model)
        # On a CPU, the backward pass of scaled_dot_product_attention takes a third of a step. With
        # matrix products and a fused softmax (eager), it takes a tenth.
        if self.accelerator.device.type == "cpu":
            plain.set_attn_implementation("eager")
        # Compile in place, so that the names in the state dict do not change.
        if recipe.compile:
            plain.model.compile(dynamic=True)
        elif self.accelerator.device.type == "cuda":
            fuse_norms(plain)

    def losses(self, examples: list[TrainingExample]) -> tuple[dict[str, Tensor], int]:
        device = self.accelerator.device
        if self.name == "ar":
            batch = TokenBatch.of(examples, self.tokenizer.pad_id).to(device)
            return ar_loss(self.model, batch, self.stage.prompt_weight), batch.ids.numel()
        rng = random.Random(f"{self.recipe.seed}/{self.progressed.step}/blocks")
        streams = TwoStreams.of(
            examples,
            self.recipe.block_size,
            self.tokenizer.mask_id,
            self.tokenizer.end_id,
            rng,
            self.recipe.masked_share,
            is_diffusion=self.name == "block_diffusion",
        ).to(device)
        return mars_loss(self.model, streams, self.recipe.clean_weight), streams.ids.numel()

    def step(self, examples: list[TrainingExample]) -> dict[str, float]:
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

    def stream(self) -> Iterator[list[TrainingExample]]:
        """Yield batches, from the next unread one, until the token budget is used up."""
        progress = self.progressed
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

    def logged(self) -> Iterator[str]:
        for examples in self.stream():
            terms = self.log.smooth(self.step(examples))
            yield self.log.write(self.progressed.step, self.progressed.tokens, terms)

    def run(self) -> bool:
        """Train until the budget is used up, and save every few minutes and at the end. The first
        Ctrl-C ends the run after the current step, the second one at once; return whether there was
        one.
        """
        saved = time.monotonic()
        with interruptible(signal.SIGINT, is_second_fatal=True) as interrupt:
            with progress_bar() as bar:
                task = bar.add_task(self.name, total=self.stage.tokens, info="")
                for info in self.logged():
                    bar.update(task, completed=self.progressed.tokens, info=info)
                    if interrupt.is_set():
                        break
                    if time.monotonic() - saved > CHECKPOINT_SECONDS:
                        self.save()
                        saved = time.monotonic()
            self.save()
        return interrupt.is_set()

    def save(self) -> None:
        """Write a checkpoint with bfloat16 weights, the recipe, and the state for ``resume``."""
        model = self.accelerator.unwrap_model(self.model)
        rounded = {name: weight.to(torch.bfloat16) for name, weight in model.state_dict().items()}
        del rounded["lm_head.weight"]  # it is the embedding's tensor
        if self.name == "mars":
            model.config.mars_block_size = self.recipe.block_size
        if self.name == "block_diffusion":
            model.config.block_diffusion_size = self.recipe.block_size
        model.save_pretrained(str(self.out), state_dict=rounded, max_shard_size=MAX_SHARD)
        recipe = {"stage": self.name, "tokens_read": self.progressed.tokens, **asdict(self.recipe)}
        (self.out / "recipe.json").write_text(json.dumps(recipe, indent=1) + "\n")
        state = {
            "model": model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "progressed": self.progressed,
        }
        save_state(state, self.out)

    def resume(self) -> None:
        """Load the last saved state in ``out``. Raises FileNotFoundError if there is none."""
        with torch.serialization.safe_globals([Progressed]):
            state = torch.load(self.out / STATE, weights_only=True)
        self.accelerator.unwrap_model(self.model).load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.progressed = state["progressed"]


def save_state(state: dict[str, Any], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    partial_file = out / f"{STATE}.partial"
    torch.save(state, partial_file)
    partial_file.replace(out / STATE)


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
    """Return the mean cross entropy, or 0 without targets. hidden: [M, H]; targets: [M]."""
    loss = F.cross_entropy(model.lm_head(hidden).float(), targets, reduction="sum")
    return loss / max(1, len(targets))


def fuse_norms(model: Any) -> None:
    """Make each norm of the model run as one kernel; in transformers it runs as eight."""
    for module in model.modules():
        if type(module).__name__ == "Qwen2RMSNorm":
            module.forward = partial(_norm, module)


def _norm(module: Any, x: Tensor) -> Tensor:
    return F.rms_norm(x, module.weight.shape, module.weight, module.variance_epsilon)


@contextmanager
def interruptible(*signals: signal.Signals, is_second_fatal: bool) -> Iterator[Event]:
    """Yield an event that is set when a signal arrives. is_second_fatal: whether a second signal
    ends the process.
    """
    received = Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        received.set()
        if is_second_fatal:
            restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield received
    finally:
        restore()


class TrainingLog:
    """Writes a line of JSON every 20 steps, with smoothed loss terms and tokens/s."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.terms: dict[str, float] = {}
        self._began = time.monotonic()
        self._tokens = -1

    def smooth(self, terms: dict[str, float]) -> dict[str, float]:
        for name, value in terms.items():
            self.terms[name] = 0.95 * self.terms.get(name, value) + 0.05 * value
        return self.terms

    def write(self, step: int, tokens: int, terms: dict[str, float]) -> str:
        """Write a log line if ``step`` is a multiple of 20; return the text of the progress bar."""
        if self._tokens < 0:
            self._began, self._tokens = time.monotonic(), tokens
        rate = (tokens - self._tokens) / max(1e-9, time.monotonic() - self._began)
        shown = " ".join(f"{name} {value:.3f}" for name, value in terms.items())
        if step % 20 == 0:
            line = {"step": step, "tokens": tokens, "per_second": round(rate), **terms}
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")
        return f"{shown} {rate:,.0f} tokens/s"


def progress_bar() -> Progress:
    """Return a progress bar. Its tasks need a field ``info``, the text to show."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.1f}%"))
    return Progress(*columns, TextColumn("{task.fields[info]}"), TimeRemainingColumn())
