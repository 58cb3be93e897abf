"""The paper's own sampler (github.com/Xalp/MARS at b191204, in MARS_OFFICIAL) writes our tokens."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mars_runtime import tasks
from mars_runtime.lab.benchmark.peer_process import dense_model
from mars_runtime.lab.evaluation.run import eval_model_of
from mars_runtime.model.load import load_checkpoint
from mars_runtime.runs import folds
from mars_runtime.settings import DecodeSettings


def sampler_in(repository: Path) -> Any:
    """The sampler's class, imported by its file: the packages around it need more packages."""
    path = repository / "mars" / "samplers" / "__init__.py"
    name = "official_mars_samplers"
    folders = [str(path.parent)]
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folders)
    assert spec
    assert spec.loader
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MARSCachedSampler


@pytest.mark.slow
@pytest.mark.skipif("MARS_OFFICIAL" not in os.environ, reason="MARS_OFFICIAL names no copy of it")
def test_the_official_sampler_writes_what_we_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """At τ 0.95 and B 4, on held-out prompts of every family that has an end."""
    from transformers import DynamicCache

    crop = DynamicCache.crop

    def crop_to(cache: DynamicCache, length: int) -> None:
        """Crop as transformers 4, to a length; transformers 5 takes the number to remove."""
        if length < cache.get_seq_length():
            crop(cache, length - cache.get_seq_length() if length >= 0 else length)

    monkeypatch.setattr(DynamicCache, "crop", crop_to)
    checkpoint = load_checkpoint("mars-tiny", device="cpu")
    tokenizer, model = checkpoint.tokenizer, dense_model(checkpoint.path, "float32")
    special = SimpleNamespace(
        mask_token_id=tokenizer.mask_id,
        pad_token_id=tokenizer.pad_id,
        bos_token_id=tokenizer.pad_id,
        eos_token_id=tokenizer.end_id,
    )
    sampler = sampler_in(Path(os.environ["MARS_OFFICIAL"]))(model=model, tokenizer=special)
    settings = DecodeSettings(tau=0.95, block_size=4, max_new_tokens=64)
    decode = eval_model_of(checkpoint).decode
    for family in ("symbolic", "word_problems", "python_functions"):
        for task in tasks.generate(family, "eval", 7, 4):
            prompt = tokenizer.encode_prompt(task.prompt)
            with torch.inference_mode():
                (row,) = sampler.sample(
                    inputs=[list(prompt)],
                    steps=64,
                    max_new_tokens=64,
                    block_size=4,
                    temperature=0.0,
                    confidence_threshold=0.95,
                    acceptance_metric=settings.metric,
                    right_shift_logits=True,
                ).tolist()
            written = row[len(prompt) :][:64]
            theirs = [id for id in written if id not in (tokenizer.pad_id, tokenizer.mask_id)]
            ends = [place for place, id in enumerate(theirs) if id in tokenizer.eos_ids]
            theirs = theirs[: ends[0] + 1] if ends else theirs
            assert theirs == folds.accepted_tokens(decode([prompt], settings))
