"""What every peer decodes: a checkpoint with held-out prompts, or a shape with random weights.

A shape decodes random prompts. The number of tokens per forward pass is drawn from given shares, or
from the shares that a benchmark of a real checkpoint recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from mars_runtime.acceptance import DecodeError
from mars_runtime.decoders.baselines import BatchMethod, decode_batch
from mars_runtime.decoders.factory import decode
from mars_runtime.decoders.forced import ForcedAcceptance
from mars_runtime.events import Event
from mars_runtime.lab.benchmark.elsewhere import folder_writer, gguf_of, loader
from mars_runtime.lab.benchmark.plan import BenchmarkPlan, Reads
from mars_runtime.lab.evaluation.measure import Decode
from mars_runtime.lab.evaluation.prompts import load_prompts
from mars_runtime.lab.evaluation.run import eval_model_of
from mars_runtime.model.build import BITS
from mars_runtime.model.config import CheckpointError, ModelConfig
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.model.shapes import SHAPES, build_shape, random_prompts
from mars_runtime.places import ASSETS
from mars_runtime.provenance import fingerprint
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Tokenizer

RANDOM = "random"
"""The family of a shape's prompts."""
RANDOM_LENGTH = 128
RECORDED = ASSETS / "results" / "benchmark.json"
"""The benchmark of the bundled checkpoint, whose acceptance is the default."""


@dataclass(frozen=True, slots=True)
class Target:
    """Weights behind functions, and the prompts to decode.

    model, decode: of this runtime. load_transformers: the same weights in transformers' class.
    decode_with: decoding with the paper's block cache or without a cache; None for shapes.
    files: functions that return the path of the same weights for other engines, and write them into
    the given folder if there is no file yet. tokenizer: None for shapes, which have no text; prompt
    lookup and automatic B need one. facts: name, dtype and device, stored with the result.
    prompts: token ids by family. note: shown with every table, may be empty.
    """

    model: Any
    decode: Decode
    load_transformers: Callable[[], Any]
    facts: Mapping[str, Any]
    prompts: Mapping[str, Sequence[Sequence[int]]]
    eos_ids: tuple[int, ...] = ()
    decode_with: Callable[..., Decode] | None = None
    tokenizer: Tokenizer | None = None
    files: Mapping[Reads, Callable[[Path], Path]] = field(default_factory=dict)
    note: str = ""

    @property
    def device(self) -> torch.device:
        found: torch.device = self.model.device
        return found


def load_target(plan: BenchmarkPlan) -> Target:
    """Load what the plan names. Raises CheckpointError, UsageError or DecodeError."""
    if plan.shape is not None:
        return _shape(plan, plan.shape)
    # Invalid families are reported before anything large is loaded.
    sets = load_prompts(plan.families, plan.seed, plan.num_prompts)
    checkpoint = load_checkpoint(plan.checkpoint, device=plan.device, dtype=plan.dtype)
    encode = checkpoint.tokenizer.encode_prompt
    prompts = {one.family: [encode(task.prompt) for task in one.tasks] for one in sets}
    return checkpoint_target(checkpoint, prompts)


def checkpoint_target(
    checkpoint: Checkpoint, prompts: Mapping[str, Sequence[Sequence[int]]]
) -> Target:
    """Return a loaded checkpoint as a target."""

    def decode_with(method: BatchMethod, cache_block: int = 32) -> Decode:
        def decode(prompts: Sequence[Sequence[int]], settings: DecodeSettings) -> Iterable[Event]:
            model, tokenizer, count = checkpoint.model, checkpoint.tokenizer, len(prompts)
            return decode_batch(
                model, tokenizer, prompts, method, lambda: settings, count, cache_block
            )

        return decode

    gguf = gguf_of(checkpoint)
    files: dict[Reads, Callable[[Path], Path]] = {}
    if gguf is not None:
        files["gguf"] = lambda folder: gguf
        if checkpoint.model.arithmetic.startswith("int4"):
            files["folder"] = folder_writer(checkpoint, gguf)
    origin = {"name": checkpoint.name, "fingerprint": fingerprint(checkpoint.weight_files)}
    return Target(
        model=checkpoint.model,
        decode=eval_model_of(checkpoint).decode,
        load_transformers=loader(checkpoint),
        facts={**origin, **_place(checkpoint.model)},
        prompts=prompts,
        eos_ids=tuple(sorted(checkpoint.tokenizer.eos_ids)),
        decode_with=decode_with,
        tokenizer=checkpoint.tokenizer,
        files=files,
    )


def _shape(plan: BenchmarkPlan, name: str) -> Target:
    acceptance = read_acceptance(plan.acceptance)
    shaped = build_shape(name, device=plan.device, dtype=plan.dtype)
    model = shaped.model
    bits = BITS.get(plan.dtype, 8)

    def decode_forced(
        prompts: Sequence[Sequence[int]], settings: DecodeSettings
    ) -> Iterable[Event]:
        return decode(model, shaped.vocabulary, prompts, lambda: settings, forced=acceptance.forced)

    def load_transformers() -> Any:
        import transformers

        config = transformers.Qwen2Config(**SHAPES[name])
        with model.device:
            kind: Any = transformers.AutoModelForCausalLM
            random = kind.from_config(config, dtype=model.dtype)
        return random.to(model.device).eval()

    def write(folder: Path) -> Path:
        return write_gguf(folder / f"{name}.gguf", model.config, shaped.weights, bits)

    lengths = [RANDOM_LENGTH] * plan.num_prompts
    return Target(
        model=model,
        decode=decode_forced,
        load_transformers=load_transformers,
        facts={"name": f"shape {name}", **_place(model), "acceptance": acceptance.forced.shares},
        prompts={RANDOM: random_prompts(shaped.vocabulary, lengths, plan.seed)},
        files={"gguf": write} if model.product_dtype == torch.int8 else {},
        note=f"random weights, timing only, acceptance drawn from {acceptance.source}",
    )


GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(
    path: Path, config: ModelConfig, weights: Mapping[str, torch.Tensor], bits: int
) -> Path:
    """Write a Qwen2 for llama.cpp, without a vocabulary; return ``path``.

    Matrices are Q8_0, those of layers Q4_1 if ``bits`` is 4, as in the native model. Raises
    CheckpointError if the package gguf is missing.
    """
    try:
        import gguf
    except ImportError as error:
        raise CheckpointError(
            "llama.cpp with a shape needs the package gguf: pip install gguf."
        ) from error
    kinds = gguf.GGMLQuantizationType
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.max_positions)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("none")
    for name, weight in weights.items():
        is_layer = name.startswith("model.layers.")
        kind = (
            kinds.F32 if weight.dim() == 1 else kinds.Q4_1 if is_layer and bits == 4 else kinds.Q8_0
        )
        packed = gguf.quantize(weight.float().numpy(), kind)
        writer.add_tensor(gguf_name(name), packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_name(name: str) -> str:
    """Return ``blk.0.attn_q.weight`` for ``model.layers.0.self_attn.q_proj.weight``."""
    inner, _, kind = name.rpartition(".")
    if inner in OUTER_NAMES:
        return f"{OUTER_NAMES[inner]}.{kind}"
    _, _, layer, part = inner.split(".", 3)
    return f"blk.{layer}.{GGUF_NAMES[part]}.{kind}"


def _place(model: Any) -> dict[str, str]:
    return {"dtype": model.arithmetic, "device": str(model.device)}


@dataclass(frozen=True, slots=True)
class AcceptanceHistogram:
    """A histogram of tokens per forward pass, and its source in words."""

    forced: ForcedAcceptance
    source: str


def read_acceptance(given: str | None) -> AcceptanceHistogram:
    """Read shares such as "0.55,0.23,0.10,0.12" or the result of a benchmark, by default that of
    the bundled checkpoint. Raises DecodeError."""
    if given is not None and not given.endswith(".json"):
        shares = ", ".join(part.strip() for part in given.split(","))
        return AcceptanceHistogram(ForcedAcceptance.parse(given), f"given shares {shares}")
    path = Path(given) if given is not None else RECORDED
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        peer, counts = recorded_counts(found)
        where = f"{peer} of {found['subject']['name']}, {found['date'][:10]}"
    except (OSError, ValueError, KeyError, TypeError, LookupError) as error:
        raise DecodeError(
            f"No acceptance is recorded in {path.name}: give --acceptance the shares of forward "
            "passes with 1, 2, 3 ... tokens, such as 0.55,0.23,0.10,0.12, or a benchmark's JSON."
        ) from error
    return AcceptanceHistogram(ForcedAcceptance.recorded(counts), f"a recorded histogram ({where})")


def recorded_counts(found: dict[str, Any]) -> tuple[str, dict[int, int]]:
    """Return the first MARS method of a benchmark and its histogram. Raises LookupError if it has
    none."""
    for series in found["series"]:
        for peer in series["peers"]:
            if peer["peer"].startswith("MARS"):
                counts = peer["tokens_per_forward_counts"].items()
                return peer["peer"], {int(taken): int(count) for taken, count in counts}
    raise LookupError("no MARS method")
