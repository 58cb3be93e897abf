"""``layers``: masks of answers, what became of them, and the layer at which they settled."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from mars_runtime.events import Proposal, RowStep
from mars_runtime.lab import layers
from mars_runtime.lab.layers import Mask, Measured, masks_of, measured_in
from mars_runtime.layers import Column, Fed, Layers
from mars_runtime.settings import DecodeSettings

SETTINGS = DecodeSettings(tau=0.0, block_size=3, lossless=True)
SURE = ("3", "22 [21, 23]", "21 [20, 22]")


def step(start: int, tokens: tuple[int, ...], accepted: tuple[int, ...], drafted: int) -> RowStep:
    proposals = tuple(Proposal(token, 0.5, ()) for token in tokens)
    return RowStep(0, start, 1 + start, 1, 3, proposals, accepted, drafted, SETTINGS, "block")


def looked(fed: Fed) -> Layers:
    """Masks say 5 from layer 2 on, the real tokens there from layer 1 on."""
    end = len(fed.ids)
    says = ((1, 0.1), (2, 0.1), (5, 0.9))
    masks = [Column(end + i, end, says) for i in range(fed.groups[-1])]
    real = [Column(end + i, None, ((1, 0.1), (5, 0.5), (5, 0.9))) for i in range(2)]
    return Layers((Column(end - 1, None, says), *masks), tuple(real))


def test_a_mask_is_accepted_with_all_before_it() -> None:
    """The text is 4 5 6, then 9 5 5; behind 4 the masks propose 5 6, behind 9 they propose 6 5."""
    first = step(0, (4, 5, 6), (4,), 2)
    second = step(1, (9, 6, 5), (5, 6, 9, 5, 5), 2)
    masks = list(masks_of("chat", (7, 8), [first, second], 8, looked))
    assert masks[:2] == [
        Mask("chat", 1, True, 2, 1, False),
        Mask("chat", 2, True, 2, 1, True),  # 6 was proposed, the last layer says 5
    ]
    assert [mask.is_accepted for mask in masks[2:]] == [True, False]


def test_the_table_counts_and_takes_medians() -> None:
    masks = [Mask("chat", 1, True, layer, layer - 1, False) for layer in (20, 22, 24)]
    masks += [Mask("chat", 1, False, 30, 10, True), Mask("chat", 2, False, 28, 12, False)]
    table = Measured(30, tuple(masks)).table()
    assert table.columns[0] == "of 30 layers"
    assert table.lines == (
        ("mask 1", *SURE, "1", "30 [30, 30]", "10 [10, 10]", "25 %"),
        ("mask 2", "0", "–", "–", "1", "28 [28, 28]", "12 [12, 12]", "0 %"),
        ("all", *SURE, "2", "29 [28, 30]", "11 [10, 12]", "20 %"),
    )


def run(*given: str) -> int:
    parser = argparse.ArgumentParser()
    layers.add_parser(parser.add_subparsers())
    return layers.run(parser.parse_args(["layers", *given]))


def test_the_command_measures_a_bundled_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "layers.json"
    few = (
        "--families",
        "word_problems",
        "--prompts",
        "2",
        "--forwards",
        "2",
        "--max-new-tokens",
        "12",
    )
    assert run("--checkpoint", "mars-tiny", *few, "--out", str(out)) == 0
    told = json.loads(out.read_text(encoding="utf-8"))
    measured = measured_in(told)
    assert told["arguments"]["forwards"] == 2
    assert 2 <= len(measured.masks) <= 12
    assert all(0 <= mask.settled <= measured.num_layers for mask in measured.masks)
    assert not any(mask.is_reranked for mask in measured.masks)  # it has no sampler head


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--forwards", "0"], "at least one forward"),
        (["--block-size", "1"], "a B of at least 2"),
        (["--families", "none"], "no family"),
    ],
)
def test_wrong_arguments_get_one_sentence(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(*given, "--out", str(tmp_path / "layers.json")) == 2
    assert said in capsys.readouterr().err
