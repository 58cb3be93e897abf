"""Configurations of both transformers generations, and a sentence for what is not supported."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import hf_config

from mars_runtime.model.config import CheckpointError, ModelConfig

QWEN = {
    "model_type": "qwen2",
    "vocab_size": 151936,
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "use_sliding_window": False,
    "sliding_window": 32768,
}


def test_the_published_configuration_reads_as_it_says() -> None:
    config = ModelConfig.from_dict(QWEN | {"model_type": "a2d-qwen2"})
    assert (config.head_dim, config.group, config.rope_theta) == (64, 7, 1e6)
    assert config.attention_bias
    assert config.tie_word_embeddings


def test_a_configuration_of_transformers_5() -> None:
    raw = {key: value for key, value in QWEN.items() if key != "rope_theta"}
    raw["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6}
    assert ModelConfig.from_dict(raw).rope_theta == 1e6


def test_what_transformers_writes_can_be_read() -> None:
    class Sizes:
        size = 93

    config = ModelConfig.from_dict(hf_config(Sizes()).to_dict())
    assert config.vocab_size == 100


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model_type": "gpt2"}, "'gpt2' is not supported"),
        ({"model_type": None}, "is not supported"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "'yarn' is not supported"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, "'linear' is not supported"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "is not supported"),
        ({"rope_parameters": "default"}, "rope_parameters"),
        ({"use_sliding_window": True}, "sliding-window"),
        ({"quantization_config": {"bits": 4}}, "quantized"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"mlp_bias": True}, "biases"),
        ({"model_type": "llama", "attention_bias": True}, "biases"),
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"vocab_size": "151936"}, "vocab_size"),
        ({"num_key_value_heads": 3}, "does not divide"),
        ({"head_dim": 63}, "odd head size"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rope_theta": -1.0}, "rope_theta"),
    ],
)
def test_anything_else_is_refused_with_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CheckpointError, match=sentence):
        ModelConfig.from_dict(QWEN | changes)
