"""What every peer decodes: a checkpoint with held-out prompts, or a shape with random weights.

A shape decodes random prompts, and the number of tokens per forward pass is drawn from given shares
or from what a benchmark of a real checkpoint recorded over the task families. Times nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mars_runtime.acceptance import DecodeError
from mars_runtime.decoders.baselines import BatchMethod, decode_batch
from mars_runtime.decoders.factory import decode
from mars_runtime.decoders.forced import ForcedAcceptance
from mars_runtime.events import Event
from mars_runtime.lab.benchmark.elsewhere import gguf_of, loader
from mars_runtime.lab.benchmark.plan import BenchmarkPlan
from mars_runtime.lab.evaluation.measure import Decode
from mars_runtime.lab.evaluation.prompts import load_prompts
from mars_runtime.lab.evaluation.run import eval_model_of
from mars_runtime.model.build import BITS
from mars_runtime.model.config import CheckpointError, ModelConfig
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.model.shapes import SHAPES, build_shape, random_prompts
from mars_runtime.provenance import fingerprint
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Tokenizer

RANDOM = "random"
"""The family of the prompts of a shape."""
RANDOM_LENGTH = 128
RECORDED = Path(__file__).parents[3] / "assets" / "results" / "benchmark.json"
"""The committed benchmark of the bundled checkpoint: what is taken where nothing is given."""


@dataclass(frozen=True, slots=True)
class Target:
    """Weights behind functions, and what they are asked.

    model: as this runtime loads it; decode: with its cursor cache. load_transformers: the same
        weights in transformers' class, anew at each call.
    decode_under: with the paper's block cache, of blocks of so many tokens, or with none; None for
        shapes. gguf: the file with the same weights that llama.cpp reads, written into a folder if
        there is none yet; None where it reads none. tokenizer: None for shapes, which have no text:
        lookup and a B that is chosen ask for one.
    facts: name, dtype and device, to be kept with the figures. prompts: token ids by family, in
        the order of the families. note: what every table must say, or nothing.
    """

    model: Any
    decode: Decode
    load_transformers: Callable[[], Any]
    facts: Mapping[str, Any]
    prompts: Mapping[str, Sequence[Sequence[int]]]
    eos_ids: tuple[int, ...] = ()
    decode_under: Callable[..., Decode] | None = None
    tokenizer: Tokenizer | None = None
    gguf: Callable[[Path], Path] | None = None
    note: str = ""

    @property
    def device(self) -> torch.device:
        found: torch.device = self.model.device
        return found


def load_target(wanted: BenchmarkPlan) -> Target:
    """What was asked for. Raises CheckpointError, PromptError or DecodeError."""
    if wanted.shape is not None:
        return _shape(wanted, wanted.shape)
    # What was asked wrongly is told before anything heavy is loaded.
    sets = load_prompts(wanted.families, wanted.seed, wanted.num_prompts)
    checkpoint = load_checkpoint(wanted.checkpoint, device=wanted.device, dtype=wanted.dtype)
    encode = checkpoint.tokenizer.encode_prompt
    prompts = {one.family: [encode(task.prompt) for task in one.tasks] for one in sets}
    return checkpoint_target(checkpoint, prompts)


def checkpoint_target(
    checkpoint: Checkpoint, prompts: Mapping[str, Sequence[Sequence[int]]]
) -> Target:
    """A loaded checkpoint behind the functions that peers are made of."""

    def decode_under(method: BatchMethod, cache_block: int = 32) -> Decode:
        def decode(prompts: Sequence[Sequence[int]], settings: DecodeSettings) -> Iterable[Event]:
            model, tokenizer, count = checkpoint.model, checkpoint.tokenizer, len(prompts)
            return decode_batch(
                model, tokenizer, prompts, method, lambda: settings, count, cache_block
            )

        return decode

    gguf = gguf_of(checkpoint)
    origin = {"name": checkpoint.name, "fingerprint": fingerprint(checkpoint.weight_files)}
    return Target(
        model=checkpoint.model,
        decode=eval_model_of(checkpoint).decode,
        load_transformers=loader(checkpoint),
        facts={**origin, **_place(checkpoint.model)},
        prompts=prompts,
        eos_ids=tuple(sorted(checkpoint.tokenizer.eos_ids)),
        decode_under=decode_under,
        tokenizer=checkpoint.tokenizer,
        gguf=None if gguf is None else lambda folder: gguf,
    )


def _shape(wanted: BenchmarkPlan, name: str) -> Target:
    acceptance = read_acceptance(wanted.acceptance)
    shaped = build_shape(name, device=wanted.device, dtype=wanted.dtype)
    model = shaped.model
    bits = BITS.get(wanted.dtype, 8)

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

    lengths = [RANDOM_LENGTH] * wanted.num_prompts
    return Target(
        model=model,
        decode=decode_forced,
        load_transformers=load_transformers,
        facts={"name": f"shape {name}", **_place(model), "acceptance": acceptance.forced.shares},
        prompts={RANDOM: random_prompts(shaped.vocabulary, lengths, wanted.seed)},
        gguf=write if model.product_dtype == torch.int8 else None,
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
    """A Qwen2 as llama.cpp reads it, without a vocabulary; returns ``path``.

    Matrices are Q8_0, those of layers Q4_1 where ``bits`` is 4, as the native forward keeps them.
    Raises CheckpointError where the package gguf is missing.
    """
    try:
        import gguf
    except ImportError as error:
        raise CheckpointError(
            "llama.cpp beside a shape needs the package gguf: pip install gguf."
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
    """model.layers.0.self_attn.q_proj.weight -> blk.0.attn_q.weight"""
    inner, _, kind = name.rpartition(".")
    if inner in OUTER_NAMES:
        return f"{OUTER_NAMES[inner]}.{kind}"
    _, _, layer, part = inner.split(".", 3)
    return f"blk.{layer}.{GGUF_NAMES[part]}.{kind}"


def _place(model: Any) -> dict[str, str]:
    return {"dtype": model.arithmetic, "device": str(model.device)}


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A histogram, and in words where it comes from."""

    forced: ForcedAcceptance
    source: str


def read_acceptance(given: str | None) -> Acceptance:
    """From "0.55,0.23,0.10,0.12", from the JSON of a benchmark, or, when nothing is given, from the
    committed one. Raises DecodeError, one sentence."""
    if given is not None and not given.endswith(".json"):
        shares = ", ".join(part.strip() for part in given.split(","))
        return Acceptance(ForcedAcceptance.parse(given), f"given shares {shares}")
    path = Path(given) if given is not None else RECORDED
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        peer, counts = recorded_counts(found)
        where = f"{peer} of {found['subject']['name']}, {found['date'][:10]}"
    except (OSError, ValueError, KeyError, TypeError, LookupError) as error:
        raise DecodeError(
            f"No acceptance is recorded in {path.name}: give --acceptance the shares of forwards "
            "that take 1, 2, 3 ... tokens, such as 0.55,0.23,0.10,0.12, or the JSON of a benchmark."
        ) from error
    return Acceptance(ForcedAcceptance.recorded(counts), f"a recorded histogram ({where})")


def recorded_counts(found: dict[str, Any]) -> tuple[str, dict[int, int]]:
    """The first way of MARS of the first series of a benchmark: its name and tokens -> forwards.
    Raises LookupError when there is none."""
    for series in found["series"]:
        for peer in series["peers"]:
            if peer["peer"].startswith("MARS"):
                counts = peer["tokens_per_forward_counts"].items()
                return peer["peer"], {int(taken): int(count) for taken, count in counts}
    raise LookupError("no MARS in it")
