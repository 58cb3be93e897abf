"""Adapter training on a tiny base: what masks see, what is learnt, saves, files, two processes that
stop together; forwards counted from which masks are right, against hand-made cases.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_base import write_answers, write_base

from mars_runtime.__main__ import main
from mars_runtime.lab.commands import UsageError
from mars_runtime.lab.training.adapter import held_out
from mars_runtime.lab.training.adapter.base import FrozenBase, read_base
from mars_runtime.lab.training.adapter.parameters import MODULES, Form, Parameters
from mars_runtime.lab.training.adapter.streams import (
    WIDTHS,
    AnchoredBatch,
    Text,
    epoch,
    read_clean,
    read_masks,
    read_texts,
)
from mars_runtime.lab.training.adapter.train import AdapterRecipe, AdapterTrainer
from mars_runtime.model.adapter import Adapter
from mars_runtime.model.config import ModelConfig

RECIPE = AdapterRecipe(
    steps=40, form=Form(4), block_size=4, masks=(3,), batch_tokens=768, anchors=12,
    warmup_steps=4, learning_rate=1e-2, embedding_rate=3e-2, measure_steps=40,
)  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_answers(tmp_path_factory.mktemp("answers"))


@pytest.fixture(scope="module")
def frozen(base: Path) -> FrozenBase:
    return read_base(str(base), torch.float32)


def _shaken(frozen: FrozenBase, form: Form) -> Parameters:
    """Parameters that change something: at first b is zero."""
    parameters = Parameters(frozen, form, 0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in parameters.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=generator)
    return parameters


TEXT = Text("chat", tuple(range(10, 26)), 5)


def test_a_mask_predicts_the_token_after_it() -> None:
    batch = AnchoredBatch.of([TEXT], len(TEXT.anchors), random.Random(0))
    targets, counts = batch.targets(3)
    assert batch.anchors[0].tolist() == list(range(4, 14))
    # After position 4 (the last of the prompt, token 14) comes 15 from the base itself.
    assert targets[0, 0].tolist() == [16, 17, 18]
    assert batch.previous_tokens(3)[0, 0].tolist() == [15, 16, 17]
    assert counts[0, -1].tolist() == [True, False, False]


def test_an_epoch_holds_every_text_once_at_few_widths() -> None:
    texts = [Text("a", tuple(range(5 + i)), 2) for i in range(150)]
    batches = epoch(texts, 1024, 1, 0)
    assert sorted(len(t.ids) for batch in batches for t in batch) == list(range(5, 155))
    assert {AnchoredBatch.of(b, 4, random.Random(0)).ids.shape[1] for b in batches} <= set(WIDTHS)
    assert batches != epoch(texts, 1024, 1, 1)


@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Qwen3"])
def test_masks_see_the_clean_text_before_them_and_their_own_group(
    kind: str, tmp_path: Path
) -> None:
    """Hidden states and gradients equal those of the runtime's arithmetic: each group on its own,
    after its text, in one causal forward of transformers with the updates on its rows only.
    """
    frozen = read_base(str(write_base(tmp_path, kind=kind)), torch.float32)
    parameters = _shaken(frozen, Form(4, embeddings=3))
    batch = AnchoredBatch.of([TEXT, Text("a", tuple(range(30, 42)), 3)], 10, random.Random(0))
    clean = read_clean(frozen, batch.ids)
    with parameters.applied():
        hidden = read_masks(frozen, clean, batch, parameters.embedding(3))
    for row, column in ((0, 0), (0, 6), (1, 2)):
        ids = batch.ids[row, : int(batch.anchors[row, column]) + 1]
        slow = _slow_group(frozen, parameters, ids)
        actual = hidden[row, column]
        torch.testing.assert_close(actual, slow, atol=1e-4, rtol=1e-4)
        gradients = (
            torch.autograd.grad(h.sin().sum(), list(parameters.parameters()), retain_graph=True)
            for h in (actual, slow)
        )
        for ours, theirs in zip(*gradients, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)


def _slow_group(frozen: FrozenBase, parameters: Parameters, ids: torch.Tensor) -> torch.Tensor:
    count, model = len(ids), copy.deepcopy(frozen.model)
    for index, layer in enumerate(model.model.layers):
        for part, names in MODULES.items():
            a, b = parameters.a[f"{index}_{part}"], 2.0 * parameters.b[f"{index}_{part}"]
            matrices = [layer.get_submodule(name) for name in names]
            rows = b.split([matrix.out_features for matrix in matrices])
            for matrix, own in zip(matrices, rows, strict=True):

                def add(_: Any, x: Any, y: torch.Tensor, delta: Any = own @ a) -> torch.Tensor:
                    return torch.cat([y[:, :count], y[:, count:] + x[0][:, count:] @ delta.T], 1)

                matrix.register_forward_hook(add)
    model.set_attn_implementation("eager")
    x = torch.cat([frozen.embedding[ids], parameters.embedding(3)])
    hidden: torch.Tensor = model.model(inputs_embeds=x[None]).last_hidden_state[0, count:]
    return hidden


@pytest.mark.parametrize("form", [Form(4), Form(4, embeddings=3, sampler=True)])
def test_the_loss_falls_and_masks_become_right(
    base: Path, answers: Path, tmp_path: Path, form: Form
) -> None:
    trainer = AdapterTrainer(dataclasses.replace(RECIPE, form=form), str(base), answers, tmp_path)
    first = trainer.step()
    trainer.run()
    last = trainer.progress.history[-1]
    assert first["first"] < 0.3
    assert last["by_position"][0] > 0.5
    assert last["mean"] > 1.5


def test_a_resumed_run_is_the_uninterrupted_one(base: Path, answers: Path, tmp_path: Path) -> None:
    recipe = dataclasses.replace(RECIPE, steps=8, until_miss_from=0.5)

    def stepped(name: str, num_steps: int, *, is_resumed: bool = False) -> AdapterTrainer:
        trainer = AdapterTrainer(recipe, str(base), answers, tmp_path / name)
        if is_resumed:
            trainer.resume()
        for _ in range(num_steps):
            trainer.step()
        return trainer

    whole = stepped("whole", 8)
    stepped("half", 4).save()
    rest = stepped("half", 4, is_resumed=True)
    for name, weight in whole.parameters.state_dict().items():
        assert torch.equal(weight, rest.parameters.state_dict()[name]), name
    assert rest.progress.masks == whole.progress.masks


def test_what_is_saved_is_what_the_runtime_reads(
    base: Path, frozen: FrozenBase, tmp_path: Path
) -> None:
    parameters = _shaken(frozen, Form(2, embeddings=3))
    said = {"base": "tiny", "mask_token": "<m>", "block_size": 4}
    parameters.save(tmp_path, said)
    config = json.loads((base / "config.json").read_text())
    adapter = Adapter.load(tmp_path, ModelConfig.from_dict(config))
    assert (adapter.block_size, adapter.mask_token, adapter.base) == (4, "<m>", "tiny")
    torch.testing.assert_close(
        adapter.mask_embedding, parameters.mask_embedding.detach(), atol=0, rtol=2**-8
    )
    for index, layer in enumerate(adapter.layers):
        for part, pair in layer.items():
            ours = 2.0 * parameters.b[f"{index}_{part}"] @ parameters.a[f"{index}_{part}"]
            torch.testing.assert_close(pair.b @ pair.a, ours.detach(), atol=0.05, rtol=0.05)


def test_a_run_begins_with_an_adapter_that_was_saved_and_fits(
    base: Path,
    frozen: FrozenBase,
    answers: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    form = Form(2, embeddings=3, sampler=True)
    saved, loaded = _shaken(frozen, form), Parameters(frozen, form, 1)
    saved.save(tmp_path, {})
    loaded.load(tmp_path)
    for name, weight in saved.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], weight, atol=0, rtol=2**-8)
    given = ["train", "--stage", "adapter", "--from", str(base), "--adapter", str(tmp_path)]
    given += ["--data", str(answers), "--out", str(tmp_path / "run"), "--rank", "4"]
    assert main([*given, "--device", "cpu"]) == 2
    assert "--adapter" in capsys.readouterr().err


def test_answers_are_split_and_cut(tmp_path: Path) -> None:
    training, others = read_texts(write_answers(tmp_path))
    assert len(training) + len(others) == 24
    assert {text.kind for text in others} == {"chat", "code"}
    with pytest.raises(UsageError, match="Run distill first"):
        read_texts(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("right", "block_size", "every", "one"),
    [
        # No mask is ever right: a pass leaves a wrong draft, and the next one verifies it.
        ([0, 0, 0, 0], 2, 4, 4),
        # All are right: two, then three tokens per pass, with one group only after the first.
        ([1, 1, 1, 1], 2, 2, 3),
        ([2, 2, 2, 2, 2, 2], 3, 2, 3),
        # Two right drafts, then none: the pass after a miss has no drafts.
        ([2, 0, 0, 0, 0, 0], 3, 4, 4),
        ([1, 1, 1, 1, 1, 1], 3, 3, 4),
        ([5], 8, 1, 1),
    ],
)
def test_forwards_of_hand_made_texts(
    right: list[int], block_size: int, every: int, one: int
) -> None:
    assert held_out.forwards_every(right, block_size) == every
    assert held_out.forwards_one(right, block_size) == one


@given(st.lists(st.integers(0, 7), min_size=1, max_size=40), st.integers(2, 8))
def test_a_forward_commits_one_to_b_tokens(right: list[int], block_size: int) -> None:
    for forwards in (held_out.forwards_every, held_out.forwards_one):
        assert len(right) / block_size <= forwards(right, block_size) <= len(right)


def test_tokens_per_forward_and_positions() -> None:
    texts = [[1, 1, 1, 1], [0, 0]]
    assert held_out.tokens_per_forward(texts, 2) == pytest.approx((6 / 5, 6 / 4))
    assert held_out.right_by_position(texts, 2) == [pytest.approx(4 / 6), 0.0]
