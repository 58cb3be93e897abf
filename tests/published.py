"""A folder laid out as the authors' repositories on the Hub are: random weights, and remote code
that ends any process that runs it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tiny_checkpoint import write_model
from tests.tiny_templates import CHATML
from tests.tiny_tokenizer import write_tokenizer
from tools.measure_gpu import SHAPES

HUB = "Xalphinions/MARS-Qwen2.5-0.5B-blk4"
REVISION = "0123456789abcdef0123456789abcdef01234567"
CODE = "raise SystemExit('code that came with a checkpoint was run')\n"
SMALL = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 2048,
}


def write_published(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    (folder / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
    (folder / "modeling_a2d_qwen2.py").write_text(CODE, encoding="utf-8")
    config: dict[str, Any] = {
        **SHAPES["qwen2.5-0.5b"],
        **SMALL,
        "model_type": "a2d-qwen2",
        "architectures": ["A2DQwen2LMHeadModel"],
        "auto_map": {
            "AutoConfig": "modeling_a2d_qwen2.A2DQwen2Config",
            "AutoModelForCausalLM": "modeling_a2d_qwen2.A2DQwen2LMHeadModel",
        },
        "attention_dropout": 0.0,
        "dtype": "bfloat16",
        "use_cache": False,
    }
    (folder / "generation_config.json").write_text('{"do_sample": true}', encoding="utf-8")
    # Such a spread is far from saying the last token again, as a tied head does of small weights.
    return write_model(folder, config, 0.16, torch.bfloat16)


def in_hub_cache(folder: Path, home: Path, hub: str = HUB) -> Path:
    """Put ``folder`` into the cache of the hub's client under ``home`` (HF_HOME), as a download of
    branch main leaves it; returns the snapshot."""
    repository = home / "hub" / f"models--{hub.replace('/', '--')}"
    snapshot = repository / "snapshots" / REVISION
    shutil.copytree(folder, snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(REVISION)
    return snapshot


def use_hub_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hub's client look into its cache under ``home`` and nowhere else."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
