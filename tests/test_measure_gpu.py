"""``tools/measure_gpu.py``: its shapes, and the histogram of accepted tokens."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from helpers import steps_of

from mars_runtime.decoders.cursor import decode
from mars_runtime.model.config import ModelConfig, expected_names, expected_shape
from mars_runtime.model.transformer import Transformer
from mars_runtime.settings import DecodeSettings
from tools import measure_gpu
from tools.measure_gpu import SHAPES


@pytest.mark.parametrize(
    ("name", "published"), [("qwen2.5-0.5b", 494_032_768), ("qwen2.5-7b", 7_615_616_512)]
)
def test_shapes_have_the_published_number_of_parameters(name: str, published: int) -> None:
    config = ModelConfig.from_dict(SHAPES[name])
    shapes = [torch.Size(expected_shape(name, config)) for name in expected_names(config)]
    assert sum(shape.numel() for shape in shapes) == published


@pytest.mark.parametrize(("lossless", "num_rows"), [(False, 1), (True, 3)])
def test_the_accepted_tokens_follow_the_histogram(
    lossless: bool, num_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure_gpu, "SHARES", (0.5, 0.0, 0.25, 0.25))
    config = ModelConfig.from_dict(SHAPES["tiny"] | {"vocab_size": 151666, "hidden_size": 8})
    device = torch.device("cpu")
    model = Transformer(
        config, measure_gpu.random_weights(config, device, torch.float32), device=device
    )
    tau = 0.0 if lossless else 1.0
    settings = DecodeSettings(tau=tau, block_size=4, lossless=lossless, max_new_tokens=200)
    prompts = [[3, 4 + row, *range(5, 5 + row)] for row in range(num_rows)]
    events = list(
        decode(measure_gpu.ForcedModel(model), measure_gpu.VOCABULARY, prompts, lambda: settings)
    )  # type: ignore[arg-type]
    steps = [step for row in range(num_rows) for step in steps_of(events, row)]
    counts = Counter(len(step.accepted) for step in steps)
    total = sum(taken * count for taken, count in counts.items())
    assert total == 200 * num_rows
    assert counts[2] <= num_rows  # the last one of a single row
    assert total / sum(counts.values()) == pytest.approx(2.25, 0.15)


@pytest.mark.slow
def test_all_methods_are_timed(tmp_path: Path) -> None:
    out = tmp_path / "shape.json"
    assert (
        measure_gpu.main(["tiny", "--rows", "2", "--max-new-tokens", "4", "--out", str(out)]) == 0
    )
    document = json.loads(out.read_text())
    rates = document["tokens_per_second"]
    assert set(rates) >= {"AR", "MARS τ=0.95 B=4", "transformers generate"}
    assert min(rates.values()) > 0
    assert {"date", "commit", "rho", "num_passes"} <= set(document)
