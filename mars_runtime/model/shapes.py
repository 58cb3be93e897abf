"""Models with random weights and the shapes of published models, for timing only.

The time of a forward pass depends on the shape of a model and barely on the values of its weights.
The text of such a model is meaningless, and every publication of its timings must include ``NOTE``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mars_runtime.model.build import BITS, Model, build_model, choose_dtype, quickest
from mars_runtime.model.config import CheckpointError, ModelConfig, expected_names, expected_shape
from mars_runtime.model.load import choose_device
from mars_runtime.model.transformer import Transformer

NOTE = "random weights of the published shape: timings only, its text means nothing"

# The fields of config.json that determine the arithmetic, from the published Instruct checkpoints.
SHAPES: Mapping[str, Mapping[str, object]] = {
    # https://huggingface.co/Qwen/Qwen2.5-0.5B-Instruct/blob/main/config.json
    "qwen2.5-0.5b": {
        "model_type": "qwen2",
        "vocab_size": 151936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "use_sliding_window": False,
    },
    # https://huggingface.co/Qwen/Qwen2.5-7B-Instruct/blob/main/config.json
    "qwen2.5-7b": {
        "model_type": "qwen2",
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "use_sliding_window": False,
    },
}
NUM_TOKENS = 151665
"""Number of tokens in Qwen2.5's tokenizer. The embedding has more rows; the first unused one is the
mask."""

INITIAL_SPREAD = 0.02
"""Standard deviation of the random matrices, as in transformers for Qwen2."""


@dataclass(frozen=True, slots=True)
class ShapeVocabulary:
    """The special token ids that decoders need.

    There is no EOS token, so every row runs to its limit, and all compared programs generate the
    same number of tokens.
    """

    size: int
    mask_id: int | None
    eos_ids: frozenset[int] = frozenset()

    @property
    def forbidden_ids(self) -> frozenset[int]:
        return frozenset() if self.mask_id is None else frozenset({self.mask_id})


@dataclass(frozen=True, slots=True)
class ShapedModel:
    """A model with random weights, and its vocabulary.

    weights: the weights before quantisation, generated on each access. note: a sentence that must
    appear with every table of timings.
    """

    name: str
    model: Model
    weights: Mapping[str, Tensor]
    vocabulary: ShapeVocabulary
    note: str = NOTE


def shape_config(name: str) -> ModelConfig:
    """Return the configuration of a shape. Raises CheckpointError if it is not in ``SHAPES``."""
    if name not in SHAPES:
        raise CheckpointError(f"There is no shape {name!r}: choose one of {', '.join(SHAPES)}.")
    return ModelConfig.from_dict(SHAPES[name])


def build_shape(
    name: str, *, device: str = "auto", dtype: str = "auto", seed: int = 0
) -> ShapedModel:
    """Return a model of the shape ``name``, with random weights generated on its device.

    Weights that will be quantised are generated in bf16, the published type, all others in their
    final type. The same seed generates the same weights on devices of the same type. device, dtype:
    as for ``load_checkpoint``. Raises CheckpointError.
    """
    where, config = choose_device(device), shape_config(name)
    drawn = random_weights(config, where, torch.bfloat16, seed)
    if dtype == "auto" and where.type == "cpu":
        dtype = quickest(config, drawn)
    model: Model
    if dtype in BITS:
        model = build_model(config, drawn, device=where, dtype=dtype)
    else:
        model = random_model(config, where, choose_dtype(dtype, where), seed)
    return ShapedModel(name, model, drawn, ShapeVocabulary(size=NUM_TOKENS + 1, mask_id=NUM_TOKENS))


def random_model(
    config: ModelConfig, device: torch.device, dtype: torch.dtype, seed: int = 0
) -> Transformer:
    weights = random_weights(config, device, dtype, seed)
    return Transformer(config, weights, device=device, dtype=dtype)


def random_weights(
    config: ModelConfig, device: torch.device, dtype: torch.dtype, seed: int = 0
) -> Mapping[str, Tensor]:
    """Return random weights by name; every access to a weight generates the same values."""
    return _RandomWeights(config, device, dtype, seed)


def random_prompts(
    vocabulary: ShapeVocabulary, lengths: Sequence[int], seed: int = 0
) -> list[list[int]]:
    """Return one prompt of random token ids for each length; special ids are left out."""
    generator = torch.Generator().manual_seed(seed)
    end = vocabulary.size - 1
    return [torch.randint(0, end, (length,), generator=generator).tolist() for length in lengths]


class _RandomWeights(Mapping[str, Tensor]):
    """Generates random weights on access, so that the model is not in memory twice."""

    def __init__(
        self, config: ModelConfig, device: torch.device, dtype: torch.dtype, seed: int
    ) -> None:
        self._config = config
        self._device = device
        self._dtype = dtype
        self._seed = seed
        self._names = expected_names(config)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        weight = torch.empty(
            expected_shape(name, self._config), device=self._device, dtype=self._dtype
        )
        if "norm" in name:
            return weight.fill_(1.0)
        # The seed depends on the name, so every access to a weight returns the same values.
        generator = torch.Generator(self._device)
        generator.manual_seed(self._seed + zlib.crc32(name.encode()))
        return weight.normal_(0.0, INITIAL_SPREAD, generator=generator)

    def __contains__(self, name: object) -> bool:
        return name in self._names  # Mapping's own method would generate the weight

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)
