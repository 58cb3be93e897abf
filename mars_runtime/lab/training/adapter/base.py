"""The frozen base of an adapter: a model of transformers with a tied head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.model.attention import frequencies
from mars_runtime.model.config import CheckpointError, ModelConfig
from mars_runtime.model.fetch import download
from mars_runtime.model.gguf import read_gguf
from mars_runtime.model.load import read_config, read_weights
from mars_runtime.model.quantized import GroupedMatrix
from mars_runtime.model.source import resolve
from mars_runtime.text import TextError, Tokenizer, read_spec

CLASSES = {"llama": "Llama", "qwen3": "Qwen3"}  # others are Qwen2


@dataclass(frozen=True, slots=True)
class FrozenBase:
    """Matrices have the dtype of products; norms and the residual stream are float32."""

    name: str
    tokenizer: Tokenizer
    model: Any

    @property
    def num_layers(self) -> int:
        return len(self.model.model.layers)

    @property
    def embedding(self) -> Tensor:
        weight: Tensor = self.model.get_input_embeddings().weight
        return weight

    def hidden(self, embeddings: Tensor, positions: Tensor, **attention: Any) -> Tensor:
        """Map embeddings [N, T, H] to normed hidden states [N, T, H]."""
        dtype = self.embedding.dtype
        is_mixed = dtype is not torch.float32
        with torch.autocast(embeddings.device.type, dtype, enabled=is_mixed):
            out = self.model.model(
                inputs_embeds=embeddings.float(),
                position_ids=positions,
                use_cache=False,
                **attention,
            )
        return out.last_hidden_state  # type: ignore[no-any-return]

    def head(self, h: Tensor) -> Tensor:
        return F.linear(h.to(self.embedding.dtype), self.embedding)


def read_base(name_or_path: str, dtype: torch.dtype) -> FrozenBase:
    """Load to the default device; may download. Raises CheckpointError."""
    source = download(resolve(name_or_path))
    try:
        with torch.device("cpu"):
            config, weights, spec = _read(source.path)
            model = _build(config, weights)
        mask = source.entry.mask_token if source.entry else None
        tokenizer = Tokenizer(*spec, mask=mask, name=str(source.path))
    except (TextError, OSError, ValueError) as error:
        raise CheckpointError(str(error)) from error
    model.requires_grad_(False)
    for weight in model.parameters():
        weight.data = weight.data.to(dtype if weight.ndim > 1 else torch.float32)
    return FrozenBase(name_or_path, tokenizer, model.to(torch.get_default_device()))


def _read(path: Path) -> tuple[ModelConfig, Mapping[str, Tensor], Any]:
    content = read_gguf(path) if path.is_file() else None
    config = content.config if content else read_config(path)
    if not config.tie_word_embeddings:
        raise CheckpointError(
            f"{path} cannot be the base of an adapter. Choose a model with its output head tied "
            "to its embedding, as in most models below 3 B parameters."
        )
    if content is None:
        config, stored = read_weights(path)
        return config, dict(stored), read_spec(path)
    weights = {
        name: weight.dense() if isinstance(weight, GroupedMatrix) else weight
        for name, weight in content.weights.items()
    }
    return config, weights, (content.tokenizer, content.tokenizer_config)


def _build(config: ModelConfig, weights: Mapping[str, Tensor]) -> Any:
    """Build the model from what the runtime reads, so both compute with the same weights."""
    import transformers

    kind = CLASSES.get(config.model_type, "Qwen2")
    theirs = getattr(transformers, f"{kind}Config")(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        rms_norm_eps=config.rms_norm_eps,
        tie_word_embeddings=True,
    )
    model = getattr(transformers, f"{kind}ForCausalLM").from_pretrained(
        None, config=theirs, state_dict=dict(weights), dtype=torch.float32
    )
    model.model.rotary_emb.inv_freq = frequencies(config)
    return model.eval()
