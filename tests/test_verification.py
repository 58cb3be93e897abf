"""``verify lossless``: decoders that keep and break the law, and the command on toy weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mars_runtime.__main__ import main
from mars_runtime.lab import verification
from mars_runtime.lab.verification import Mismatch, compare_all, first_difference
from mars_runtime.runs.events import Event, RowStep, Step
from mars_runtime.settings import DecodeSettings

PROMPTS = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]


def echo(prompts: Sequence[Sequence[int]], settings: DecodeSettings) -> Iterator[Event]:
    is_wrong = settings.lossless and len(prompts) > 1
    for number, prompt in enumerate(prompts):
        tokens = tuple(50 if is_wrong and token == 5 else token for token in prompt)
        step = RowStep(number, 0, 0, 1, 1, (), tokens, 0, settings, "eos")
        yield Step((step,))


def test_a_broken_law_says_where_and_ar_is_compared_in_batches_only() -> None:
    counts: list[int] = []
    ar, *lossless = compare_all(echo, PROMPTS, 24, lambda label: counts.append)
    assert (ar.settings.method, ar.batch_size, ar.mismatches) == ("ar", 4, ())
    assert (ar.num_prompts, ar.num_tokens, ar.num_forwards) == (3, 9, 3)
    assert len(lossless) == 2 * len(verification.lossless_methods(24))
    for row in lossless:
        wrong = (Mismatch(prompt=1, place=1, expected=5, found=50),)
        assert row.mismatches == (wrong if row.batch_size == 4 else ())
    assert sum(counts) == 3 * (2 + len(lossless))


def test_wrong_arguments_are_an_exit_code(tmp_path: Path) -> None:
    for given in (["--families", "poetry"], ["--prompts", "0"], ["--checkpoint", "nobody"]):
        assert run("--out", str(tmp_path / "l.json"), *given) == 2


def test_a_text_that_ends_early_differs_at_its_end() -> None:
    assert first_difference(7, [1, 2], [1, 2, 3]) == Mismatch(7, 2, None, 3)
    assert first_difference(7, [1, 2], [1, 2]) is None


def run(*given: str) -> int:
    return main(["verify", "lossless", *given])


def small(folder: Path, out: Path) -> list[str]:
    return [
        *("--checkpoint", str(folder), "--families", "chat", "maths", "--prompts", "3"),
        *("--max-new-tokens", "6", "--dtype", "fp32", "--out", str(out)),
    ]


def test_every_lossless_method_is_compared(foreseeing_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "lossless.json"
    assert run(*small(foreseeing_folder, out)) == 0
    document = json.loads(out.read_text())
    assert {"date", "commit", "hardware", "versions"} <= set(document)
    assert (document["num_prompts"], document["num_mismatches"]) == (6, 0)
    assert len(document["comparisons"]) == 1 + 2 * len(verification.lossless_methods(6))
    assert {row["batch_size"] for row in document["comparisons"]} == {1, 4}
    assert document["num_answers"] == 6 * len(document["comparisons"])
    assert str(tmp_path) not in out.read_text()


def test_a_difference_is_an_exit_code(
    foreseeing_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unverified = [DecodeSettings(tau=0.0, block_size=8, max_new_tokens=6)]
    monkeypatch.setattr(verification, "lossless_methods", lambda limit: unverified)
    out = tmp_path / "lossless.json"
    assert run(*small(foreseeing_folder, out)) == 1
    assert json.loads(out.read_text())["num_mismatches"] > 0
