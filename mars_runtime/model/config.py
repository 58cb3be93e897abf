"""The configuration of a model. Settings that would change the arithmetic are rejected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from reprlib import repr as shown
from typing import Any

from mars_runtime.errors import MarsError
from mars_runtime.settings import MAX_FED
from mars_runtime.system.machine import is_memory_short

# a2d-qwen2 is the type of the published MARS checkpoints: Qwen2 with remote code, which is not run.
MODEL_TYPES = ("llama", "qwen2", "qwen3", "a2d-qwen2")
HEAD_SIZE_OF_QWEN3 = 128  # of a Qwen3 model without ``head_dim``, as in transformers
MIN_ANSWER = 12  # every context must have space for so many answer tokens after a short prompt
MAX_NAME = 80
# The largest numbers in a valid configuration, checked before any memory is allocated.
MOST = {"num_hidden_layers": 1000, "mars_block_size": MAX_FED}
MOST_OF_ALL, MOST_REAL = 2**24, 1e30


class CheckpointError(MarsError, ValueError):
    """A checkpoint cannot be used. The message is one sentence: what is wrong and what to do."""


class MemoryShortError(CheckpointError):
    pass


@contextmanager
def memory_for(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not is_memory_short(error):
            raise
        raise MemoryShortError(
            f"There is not enough memory for {printable(name)}: close other programs, or choose a "
            "smaller checkpoint."
        ) from error


def printable(name: str) -> str:
    """Shorten an untrusted name and escape its control characters."""
    short = name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"
    return short if short.isprintable() else repr(short)


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama 3's scaling of low frequencies (transformers, ``_compute_llama3_parameters``)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """rope_scaling: of Llama 3, or a divisor for each of the head_dim / 2 frequencies, as in GGUF.
    qk_norm: of each head, before rotation.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    attention_bias: bool = True
    qk_norm: bool = False
    max_positions: int = 32768
    model_type: str = "qwen2"
    rope_scaling: RopeScaling | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        faults = {
            "num_attention_heads in config.json must be a multiple of num_key_value_heads, got "
            f"{self.num_heads} and {self.num_kv_heads}": self.num_heads % self.num_kv_heads,
            f"head_dim in config.json must be even, got {self.head_dim}": self.head_dim % 2,
            # With a base below 1, rotations overflow.
            "rope_theta in config.json must be at least 1, got "
            f"{self.rope_theta:g}": self.rope_theta < 1.0,
        }
        for fault, is_so in faults.items():
            if is_so:
                raise CheckpointError(f"{fault}: fetch the checkpoint again.")

    @property
    def group(self) -> int:
        return self.num_heads // self.num_kv_heads

    def cache_shape(self, rows: int, capacity: int) -> tuple[int, int, int, int, int]:
        return self.num_layers, rows, capacity, self.num_kv_heads, self.head_dim

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> ModelConfig:
        """Read a transformers configuration (version 4 or 5). Raises CheckpointError."""
        model_type = config.get("model_type")
        if model_type not in MODEL_TYPES:
            raise CheckpointError(
                f"Models of type {shown(model_type)} are not supported: choose a checkpoint of "
                f"type {', '.join(MODEL_TYPES)}."
            )
        has_bias, is_qwen3 = model_type in ("qwen2", "a2d-qwen2"), model_type == "qwen3"
        _reject_unsupported_settings(config, has_bias=has_bias)
        hidden_size = positive_int(config, "hidden_size")
        num_heads = positive_int(config, "num_attention_heads")
        head_dim = HEAD_SIZE_OF_QWEN3 if is_qwen3 else hidden_size // num_heads
        theta, scaling = _rope(config)
        return cls(
            vocab_size=positive_int(config, "vocab_size"),
            hidden_size=hidden_size,
            num_layers=positive_int(config, "num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=positive_int(config, "num_key_value_heads", num_heads),
            head_dim=positive_int(config, "head_dim", head_dim),
            intermediate_size=positive_int(config, "intermediate_size"),
            rope_theta=theta,
            rms_norm_eps=_positive(config, "rms_norm_eps", 1e-6),
            tie_word_embeddings=_truth(config, "tie_word_embeddings"),
            attention_bias=has_bias,
            qk_norm=is_qwen3,
            max_positions=positive_int(config, "max_position_embeddings"),
            model_type=model_type,
            rope_scaling=scaling,
        )


def _reject_unsupported_settings(config: Mapping[str, Any], *, has_bias: bool) -> None:
    activation = config.get("hidden_act", "silu")
    kinds = config.get("layer_types")
    is_full = not isinstance(kinds, list) or all(kind == "full_attention" for kind in kinds)
    # Published MARS checkpoints have is_causal false, but their attention is causal.
    is_published = config.get("model_type") == "a2d-qwen2"
    reasons = {
        "sliding-window attention": config.get("use_sliding_window"),
        "layers without full attention": not is_full,
        "attention in both directions": config.get("is_causal") is False and not is_published,
        "quantized weights": config.get("quantization_config"),
        "biases in its attention": not has_bias and config.get("attention_bias"),
        "biases in the feed-forward layers": config.get("mlp_bias"),
        f"the activation {shown(activation)}": activation != "silu",
    }
    for reason, is_used in reasons.items():
        if is_used:
            raise CheckpointError(
                f"This checkpoint uses {reason}, which is not supported: choose another checkpoint."
            )


def _rope(config: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """From ``rope_scaling``, else ``rope_parameters``, else the top level (transformers 5,
    ``convert_rope_params_to_dict``).
    """
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(rope, Mapping):
        raise _invalid("rope_parameters", "an object", rope)
    kind = rope.get("rope_type", rope.get("type", "default"))
    theta = _positive(rope, "rope_theta", _positive(config, "rope_theta", 10000.0))
    if kind == "default" and not any(isinstance(value, Mapping) for value in rope.values()):
        return theta, None
    if kind != "llama3":
        raise CheckpointError(
            f"Rope scaling of type {shown(kind)} is not supported: choose a checkpoint with "
            "type default or llama3."
        )
    low, high = _positive(rope, "low_freq_factor"), _positive(rope, "high_freq_factor")
    positions = positive_int(rope, "original_max_position_embeddings")
    return theta, RopeScaling(_positive(rope, "factor"), low, high, positions)


def positive_int(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = default if config.get(key) is None else config[key]
    limit = MOST.get(key, MOST_OF_ALL)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        raise _invalid(key, f"a whole number from 1 to {limit}", value)
    return value


def _truth(config: Mapping[str, Any], key: str) -> bool:
    value = config.get(key)
    if not isinstance(value, bool | None):
        raise _invalid(key, "true or false", value)
    return value is True


def _positive(config: Mapping[str, Any], key: str, default: object = None) -> float:
    value: Any = default if config.get(key) is None else config[key]
    is_real = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_real or not 0 < value <= MOST_REAL:  # NaN compares false
        raise _invalid(key, "a positive number", value)
    return float(value)


def _invalid(key: str, kind: str, value: object) -> CheckpointError:
    fault = f"{key} in config.json must be {kind}, got {shown(value)}"
    return CheckpointError(f"{fault}: fetch the checkpoint again.")


def expected_names(config: ModelConfig) -> set[str]:
    parts = [f"self_attn.{name}_proj.weight" for name in "qkvo"]
    parts += [f"self_attn.{name}_proj.bias" for name in "qkv" if config.attention_bias]
    parts += [f"self_attn.{name}_norm.weight" for name in "qk" if config.qk_norm]
    parts += [f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")]
    parts += ["input_layernorm.weight", "post_attention_layernorm.weight"]
    names = {f"model.layers.{i}.{part}" for i in range(config.num_layers) for part in parts}
    names |= {"model.embed_tokens.weight", "model.norm.weight"}
    return names if config.tie_word_embeddings else names | {"lm_head.weight"}


def differing_names(names: Set[str], config: ModelConfig) -> tuple[str, str] | None:
    """Return what is wrong with the names of weights, and the first such name."""
    expected = expected_names(config)
    for differing, fault in ((expected - names, "missing"), (names - expected, "unknown")):
        if differing:
            first = min(differing)
            return f"{len(differing)} {fault} weights, such as {printable(first)}", first
    return None


def expected_shape(name: str, config: ModelConfig) -> tuple[int, ...]:
    hidden = config.hidden_size
    part = name.rsplit(".", 2)[-2]
    outs = {
        "q_proj": config.num_heads * config.head_dim,
        "k_proj": config.num_kv_heads * config.head_dim,
        "v_proj": config.num_kv_heads * config.head_dim,
        "gate_proj": config.intermediate_size,
        "up_proj": config.intermediate_size,
        "embed_tokens": config.vocab_size,
        "lm_head": config.vocab_size,
    }
    if part in outs:
        return (outs[part],) if name.endswith("bias") else (outs[part], hidden)
    if part == "o_proj":
        return (hidden, config.num_heads * config.head_dim)
    if part == "down_proj":
        return (hidden, config.intermediate_size)
    return (config.head_dim,) if part in ("q_norm", "k_norm") else (hidden,)


def checked_weight(weights: Mapping[str, Any], name: str, config: ModelConfig) -> Any:
    """Raises CheckpointError if the weight is missing, has a wrong shape or is not finite."""
    expected = expected_shape(name, config)
    if name not in weights:
        raise CheckpointError(f"The weight {name} is missing: fetch the checkpoint again.")
    weight = weights[name]
    if tuple(weight.shape) != expected:
        raise CheckpointError(
            f"The weight {name} has shape {tuple(weight.shape)}, but config.json requires "
            f"{expected}: fetch the checkpoint again."
        )
    if not weight.isfinite().all():
        raise CheckpointError(f"The weight {name} is not finite: fetch the checkpoint again.")
    return weight
