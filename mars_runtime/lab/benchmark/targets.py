"""Load the target of a benchmark: a checkpoint, or a model shape with random weights.

A checkpoint decodes held-out prompts. A shape decodes random prompts, and the number of accepted
tokens in each forward pass is drawn from a histogram: from ``--acceptance``, or as recorded in the
benchmark of a real checkpoint.
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
"""The family name of the random prompts of a shape."""
RANDOM_LENGTH = 128
RECORDED = ASSETS / "results" / "benchmark.json"
"""Result file of the bundled checkpoint, the default source of the acceptance histogram."""


@dataclass(frozen=True, slots=True)
class Target:
    """The model to benchmark, and the prompts to decode.

    - model, decode: the model of this runtime and its decoding function.
    - load_transformers: function that loads the same weights as a transformers model.
    - facts: name, dtype and device, which are stored with the result.
    - prompts: family -> prompts as token ids.
    - decode_with: function that returns a decoding function, with the paper's block cache or
      without a cache; None for shapes.
    - tokenizer: None for shapes. Prompt lookup and automatic B need a tokenizer.
    - files: format -> function that returns the path of the model's weights in this format, for
      other engines. If necessary, it writes them to the folder that it gets as an argument.
    - note: text to show with every table, may be empty.
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
        device: torch.device = self.model.device
        return device


def load_target(plan: BenchmarkPlan) -> Target:
    """Load the checkpoint or shape of a plan. Raises CheckpointError, UsageError or DecodeError."""
    if plan.shape is not None:
        return _shape(plan, plan.shape)
    # Load the prompts first, to report invalid families before the checkpoint is loaded.
    sets = load_prompts(plan.families, plan.seed, plan.num_prompts)
    checkpoint = load_checkpoint(plan.checkpoint, device=plan.device, dtype=plan.dtype)
    encode = checkpoint.tokenizer.encode_prompt
    prompts = {
        prompt_set.family: [encode(task.prompt) for task in prompt_set.tasks] for prompt_set in sets
    }
    return checkpoint_target(checkpoint, prompts)


def checkpoint_target(
    checkpoint: Checkpoint, prompts: Mapping[str, Sequence[Sequence[int]]]
) -> Target:
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
        facts={**origin, **_facts(checkpoint.model)},
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
        facts={"name": f"shape {name}", **_facts(model), "acceptance": acceptance.forced.shares},
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
    """Write a Qwen2 model without a vocabulary as a GGUF file for llama.cpp; return ``path``.

    Matrices become Q8_0. If ``bits`` is 4, matrices of layers become Q4_1, as in the native model.
    Raises CheckpointError if the package gguf is missing.
    """
    try:
        import gguf
    except ImportError as error:
        raise CheckpointError(
            "--llama-cpp with --shape needs the package gguf. Run pip install gguf."
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
    """Return the name of a weight in GGUF.

    ``model.layers.0.self_attn.q_proj.weight`` becomes ``blk.0.attn_q.weight``.
    """
    inner, _, kind = name.rpartition(".")
    if inner in OUTER_NAMES:
        return f"{OUTER_NAMES[inner]}.{kind}"
    _, _, layer, part = inner.split(".", 3)
    return f"blk.{layer}.{GGUF_NAMES[part]}.{kind}"


def _facts(model: Any) -> dict[str, str]:
    return {"dtype": model.arithmetic, "device": str(model.device)}


@dataclass(frozen=True, slots=True)
class AcceptanceHistogram:
    """A histogram of accepted tokens per pass, to impose on a shape. source: origin, in words."""

    forced: ForcedAcceptance
    source: str


def read_acceptance(value: str | None) -> AcceptanceHistogram:
    """Read the value of ``--acceptance``; None selects the histogram of the bundled checkpoint.

    value: the shares of forward passes with 1, 2, 3 ... tokens, such as "0.55,0.23,0.10,0.12", or
    the path of a benchmark's JSON file. Raises DecodeError.
    """
    if value is not None and not value.endswith(".json"):
        shares = ", ".join(part.strip() for part in value.split(","))
        return AcceptanceHistogram(ForcedAcceptance.parse(value), f"given shares {shares}")
    path = Path(value) if value is not None else RECORDED
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        peer, counts = recorded_counts(content)
        source = f"{peer} of {content['subject']['name']}, {content['date'][:10]}"
    except (OSError, ValueError, KeyError, TypeError, LookupError) as error:
        raise DecodeError(
            f"{path.name} is not the result of a benchmark with a MARS method. Pass --acceptance "
            "such a JSON file, or the shares of forward passes with 1, 2, 3 ... tokens, such as "
            "0.55,0.23,0.10,0.12."
        ) from error
    histogram = ForcedAcceptance.recorded(counts)
    return AcceptanceHistogram(histogram, f"a recorded histogram ({source})")


def recorded_counts(content: dict[str, Any]) -> tuple[str, dict[int, int]]:
    """Return the name and the histogram of the first MARS method in a benchmark's result.

    Raises LookupError if the result has no MARS method.
    """
    for series in content["series"]:
        for peer in series["peers"]:
            if peer["peer"].startswith("MARS"):
                counts = peer["tokens_per_forward_counts"].items()
                return peer["peer"], {int(tokens): int(count) for tokens, count in counts}
    raise LookupError("no MARS method")
