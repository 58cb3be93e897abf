"""From prompts to outcomes and files: with a scripted decoder, and with a real checkpoint of toy
size. Outcomes are folds over events that batching does not change.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mars_runtime.lab.evaluation import cli
from mars_runtime.lab.evaluation.measure import (
    RowOutput,
    decode_in_batches,
    num_offered,
    outcome_of,
    read_rows,
    survival,
)
from mars_runtime.lab.evaluation.run import EvalModel
from mars_runtime.runs.events import Event, Prefill, Proposal, RowStep, Step, Stop
from mars_runtime.settings import DecodeSettings

EOS = 0


def answer_ids(prompt: Sequence[int], settings: DecodeSettings) -> list[int]:
    """Repeat the prompt and end. Unverified MARS below τ = 0.5 gets the first token wrong."""
    ids = [*prompt, EOS]
    is_wrong = settings.method == "mars" and not settings.lossless and settings.tau < 0.5
    if is_wrong:
        ids[0] += 1
    return ids[: settings.max_new_tokens]


class ScriptedDecoder:
    """Every forward takes ``num_proposals`` tokens of the answer. Counts the batches it served."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def __call__(
        self, prompts: Sequence[Sequence[int]], settings: DecodeSettings
    ) -> Iterator[Event]:
        self.batches.append(len(prompts))
        yield Prefill(sum(map(len, prompts)))
        answers = [answer_ids(prompt, settings) for prompt in prompts]
        start = 0
        while any(start < len(answer) for answer in answers):
            rows = [
                _row(row, answer, start, settings)
                for row, answer in enumerate(answers)
                if start < len(answer)
            ]
            yield Step(tuple(rows))
            start += settings.num_proposals


def _row(row: int, answer: list[int], start: int, settings: DecodeSettings) -> RowStep:
    accepted = tuple(answer[start : start + settings.num_proposals])
    is_last = start + len(accepted) >= len(answer)
    stop: Stop = "block"
    if is_last:
        stop = "eos" if accepted[-1] == EOS else "limit"
    return RowStep(row, start, start, 1, settings.num_proposals, (), accepted, 0, settings, stop)


def scripted(decoder: ScriptedDecoder, name: str = "scripted") -> EvalModel:
    """Prompts are numbers of letters, text is letters."""
    return EvalModel(
        name=name,
        fingerprint="f00d",
        dtype="float32",
        encode_prompt=lambda text: [ord(letter) for letter in text],
        decode=decoder,
        to_text=lambda ids: "".join(chr(token) for token in ids if token != EOS),
    )


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> ScriptedDecoder:
    actual = ScriptedDecoder()
    monkeypatch.setattr(cli, "_load", lambda name, args: (scripted(actual, name), 8))
    return actual


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers(dest="command"))
    return parser.parse_args(["evaluate", *given])


def small(out: Path, *more: str) -> argparse.Namespace:
    return arguments(
        *("--checkpoints", "one", "--families", "symbolic", "natural", "--prompts", "3"),
        *("--taus", "0.95", "--block-sizes", "2", "--out", str(out), *more),
    )


def test_results_hold_figures_and_where_they_come_from(decoder: ScriptedDecoder, tmp_path: Path):
    out = tmp_path / "results.json"
    assert cli.run(small(out)) == 0
    document = json.loads(out.read_text())
    assert {"date", "commit", "hardware", "versions", "asked"} <= set(document)
    assert document["asked"]["seed"] == 0
    assert [average["settings"]["method"] for average in document["averages"]] == [
        "ar",
        "mars",
        "mars",
    ]
    assert len(document["cells"]) == 6
    lossless = document["averages"][2]
    assert lossless["settings"]["lossless"] is True
    assert lossless["agreement"] == 1.0
    assert lossless["tpf"]["value"] > 4
    assert str(tmp_path) not in out.read_text()


def test_a_second_run_measures_nothing_again(decoder: ScriptedDecoder, tmp_path: Path):
    out = tmp_path / "results.json"
    cli.run(small(out))
    num_batches = len(decoder.batches)
    cli.run(small(out, "--taus", "0.95", "0.2"))
    assert len(decoder.batches) == num_batches + 2
    cli.run(small(out, "--restart"))
    assert len(decoder.batches) == 2 * num_batches + 2


def test_a_stopped_run_goes_on_where_it_was(
    decoder: ScriptedDecoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "results.json"
    whole = ScriptedDecoder.__call__

    def stop_at_third(self: ScriptedDecoder, prompts, settings):
        if len(self.batches) == 2:
            raise KeyboardInterrupt
        return whole(self, prompts, settings)

    monkeypatch.setattr(ScriptedDecoder, "__call__", stop_at_third)
    assert cli.run(small(out)) == 130
    assert not out.exists()
    monkeypatch.setattr(ScriptedDecoder, "__call__", whole)
    assert cli.run(small(out)) == 0
    assert len(decoder.batches) == 6


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--taus", "nan"], "tau must be"),
        (["--block-sizes", "99"], "block_size must be"),
        (["--families", "poetry"], "--families 'poetry' is unknown"),
        (["--prompts", "0"], "--prompts must be at least 1, got 0."),
        (["--batch-size", "0"], "--batch-size must be at least 1"),
    ],
)
def test_wrong_arguments_get_one_sentence(
    given: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    args = arguments("--out", str(tmp_path / "r.json"), *given)
    assert cli.run(args) == 2
    assert said in capsys.readouterr().err


def test_the_command_asks_requests_and_keeps_their_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    decoder = ScriptedDecoder()
    monkeypatch.setattr(cli, "_load", lambda name, args: (scripted(decoder, name), 8))
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers(dest="command"))
    out = tmp_path / "r.json"
    given = ["--checkpoints", "one", "--families", "chat", "code", "--prompts", "2"]
    assert cli.run(parser.parse_args(["evaluate", *given, "--out", str(out)])) == 0
    document = json.loads(out.read_text())
    assert document["averages"] == []
    lossless = document["requests"][-1]
    assert lossless["agreement"] == 1.0
    assert set(lossless["by_kind"]) == {"chat", "code"}
    assert 3 < lossless["tpf"]["value"] <= 4
    assert [request["settings"]["mask_layout"] for request in document["requests"]] == [
        *("last",) * 3,
        *("every", "last", "every"),
    ]
    assert "chat" in capsys.readouterr().out


PROMPTS = [[5] * 7, [6], [7] * 3, [8] * 12, [9] * 2]


def test_forwards_of_a_row_are_counted_to_its_eos_only():
    settings = DecodeSettings(block_size=4)
    outputs = read_rows(ScriptedDecoder()([[5] * 7, [6]], settings), 2)
    assert outputs[0] == RowOutput((*[5] * 7, EOS), (4, 4), (0, 0), True)
    assert outputs[1] == RowOutput((6, EOS), (2,), (0,), True)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 16])
def test_batches_give_the_outputs_in_the_order_of_the_prompts(batch_size: int):
    settings = DecodeSettings(block_size=2)
    decoder = ScriptedDecoder()
    heard: list[int] = []
    outputs = decode_in_batches(decoder, PROMPTS, settings, batch_size, heard.append)
    assert [list(output.tokens) for output in outputs] == [
        answer_ids(prompt, settings) for prompt in PROMPTS
    ]
    assert sum(heard) == len(PROMPTS)
    assert max(decoder.batches) <= batch_size


def test_a_repetition_is_cut_with_the_forwards_that_made_it():
    text = [*range(100, 110), *[1, 2, 3] * 20]
    looped = RowOutput(tuple(text), (4,) * 17 + (2,), (5,) * 18, False)
    cut = looped.without_loop()
    assert cut.tokens == tuple(text[:13])
    assert cut.taken == (4, 4, 4, 1)
    assert cut.offered == (5,) * 4
    assert cut.is_looped
    assert outcome_of(cut, "", None).tokens_per_forward == 13 / 4
    plain = RowOutput((1, 2, 3), (1, 2), (1, 2), True)
    assert plain.without_loop() is plain


def step(settings: DecodeSettings, num_proposals: int, num_drafted: int) -> RowStep:
    proposals = (Proposal(1, 1.0, ()),) * num_proposals
    return RowStep(0, 0, 0, 1, 4, proposals, (1,), num_drafted, settings, "threshold")


def test_what_could_have_left_with_a_forward():
    lossless = step(DecodeSettings(lossless=True), 4, 3)
    assert num_offered(lossless, None) == 1
    assert num_offered(lossless, lossless) == 4
    looked_up = replace(lossless, num_drafted=0, looked_up=(7, 8))
    assert num_offered(lossless, looked_up) == 3
    assert num_offered(step(DecodeSettings(), 4, 0), None) == 4
    assert num_offered(step(DecodeSettings("ar"), 1, 0), lossless) == 1


def test_survival_counts_only_forwards_that_offered_as_much():
    assert survival([(1, 1), (2, 3), (3, 3), (1, 3)]) == [1.0, 2 / 3, 1 / 3]
    assert survival([]) == []
