"""From prompts to stored outputs and figures, with a scripted decoder; figures of outcomes written
by hand.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mars_runtime.lab.evaluation import cli
from mars_runtime.lab.evaluation.measure import (
    Cell,
    CellStore,
    RowOutput,
    decode_in_batches,
    read_rows,
)
from mars_runtime.lab.evaluation.report import Outcome, averages, figures_of, table
from mars_runtime.lab.evaluation.run import EvalModel
from mars_runtime.runs.events import Event, Prefill, RowStep, Step, Stop
from mars_runtime.settings import AR_LOOKUP, DecodeSettings, describe

EOS = 0
AR = DecodeSettings(method="ar", tau=1.0, block_size=1)
MARS = DecodeSettings(method="mars", tau=0.95, block_size=4)
LOSSLESS = DecodeSettings(tau=0.0, block_size=4, lossless=True)


def answer_ids(prompt: Sequence[int], settings: DecodeSettings) -> list[int]:
    """Repeat the prompt and end. Unverified MARS below τ = 0.5 gets the first token wrong."""
    is_wrong = settings.method == "mars" and not settings.lossless and settings.tau < 0.5
    return [prompt[0] + is_wrong, *prompt[1:], EOS][: settings.max_new_tokens]


class ScriptedDecoder:
    """Every forward takes ``num_proposals`` tokens of the answer. Counts the batches it served."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.stop_at = -1

    def __call__(
        self, prompts: Sequence[Sequence[int]], settings: DecodeSettings
    ) -> Iterator[Event]:
        if len(self.batches) == self.stop_at:
            raise KeyboardInterrupt
        self.batches.append(len(prompts))
        yield Prefill(sum(map(len, prompts)))
        answers = [answer_ids(prompt, settings) for prompt in prompts]
        size = settings.num_proposals
        for start in range(0, max(map(len, answers)), size):
            rows = [(row, answer) for row, answer in enumerate(answers) if start < len(answer)]
            yield Step(tuple(_row(row, answer, start, settings) for row, answer in rows))


def _row(row: int, answer: list[int], start: int, settings: DecodeSettings) -> RowStep:
    size = settings.num_proposals
    accepted = tuple(answer[start : start + size])
    is_last = start + len(accepted) >= len(answer)
    stop: Stop = ("eos" if accepted[-1] == EOS else "limit") if is_last else "block"
    return RowStep(row, start, start, 1, size, (), accepted, 0, settings, stop)


def scripted(decoder: ScriptedDecoder, name: str, largest: int = 8) -> EvalModel:
    """Tokens are letters."""
    return EvalModel(
        name=name,
        fingerprint="f00d",
        dtype="float32",
        encode_prompt=lambda text: [ord(letter) for letter in text],
        decode=decoder,
        to_text=lambda ids: "".join(chr(token) for token in ids if token != EOS),
        largest=largest,
    )


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> ScriptedDecoder:
    actual = ScriptedDecoder()
    monkeypatch.setattr(cli, "_load", lambda name, args: scripted(actual, name))
    return actual


def evaluated(out: Path, *given: str) -> int:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers(dest="command"))
    words = ["evaluate", "--checkpoints", "one", "--prompts", "3", "--out", str(out), *given]
    return cli.run(parser.parse_args(words))


TASKS = ("--families", "symbolic", "natural", "--methods", "tau=0.95,B=2", "lossless,B=8")


@pytest.mark.usefixtures("decoder")
def test_the_command_writes_figures_and_their_origin(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    assert evaluated(out, *TASKS) == 0
    document = json.loads(out.read_text())
    assert {"date", "commit", "hardware", "versions"} <= set(document)
    assert document["asked"]["prompts"] == 3
    ar, mars, lossless = document["averages"]
    assert (ar["settings"]["method"], mars["settings"]["tau"]) == ("ar", 0.95)
    assert len(document["cells"]) == 6
    assert lossless["settings"]["lossless"] is True
    assert lossless["agreement"] == 1.0
    assert lossless["tpf"]["value"] > 4
    assert str(tmp_path) not in out.read_text()


@pytest.mark.usefixtures("decoder")
def test_requests_have_defaults_and_figures_of_their_own(tmp_path: Path) -> None:
    assert evaluated(tmp_path / "r.json", "--families", "chat", "code") == 0
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["averages"] == []
    layouts = [request["settings"]["mask_layout"] for request in document["requests"]]
    assert layouts == [*("last",) * 4, "every", "last", "every"]
    lossless = document["requests"][-1]
    assert (lossless["agreement"], set(lossless["by_kind"])) == (1.0, {"chat", "code"})
    assert 3 < lossless["tpf"]["value"] <= 4


def test_only_new_methods_are_decoded(decoder: ScriptedDecoder, tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    decoder.stop_at = 2
    assert evaluated(out, *TASKS) == 130
    assert not out.exists()
    decoder.stop_at = -1
    assert evaluated(out, *TASKS) == 0
    assert len(decoder.batches) == 6
    evaluated(out, *TASKS, "tau=0.2,B=2")
    assert len(decoder.batches) == 8


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--methods", "tau=nan"], "tau"),
        (["--methods", "B=99"], "block_size"),
        (["--families", "poetry"], "--families 'poetry'"),
        (["--prompts", "0"], "--prompts"),
        (["--batch-size", "0"], "--batch-size"),
    ],
)
def test_wrong_arguments_are_named(
    given: list[str], says: str, tmp_path: Path, capsys: Any
) -> None:
    assert evaluated(tmp_path / "r.json", "--checkpoints", "mars-tiny", *given) == 2
    assert says in capsys.readouterr().err


def test_a_checkpoint_decodes_what_it_was_trained_for() -> None:
    model = scripted(ScriptedDecoder(), "one", largest=4)
    diffusion = DecodeSettings("block_diffusion", 0.9, 4)
    methods = (AR, MARS, AR_LOOKUP, replace(MARS, block_size=5), diffusion)
    assert [model.supports(settings) for settings in methods] == [True, True, True, False, False]
    filling = replace(model, fills_blocks=True)
    assert [filling.supports(settings) for settings in methods] == [True, *[False] * 3, True]
    untrained = replace(model, largest=1)
    assert not untrained.supports(replace(LOSSLESS, block_size="auto"))


@pytest.mark.parametrize("batch_size", [1, 2, 16])
def test_batches_give_the_outputs_in_the_order_of_the_prompts(batch_size: int) -> None:
    settings, decoder = DecodeSettings(block_size=2), ScriptedDecoder()
    counts: list[int] = []
    prompts = [[5] * 7, [6], [7] * 3, [8] * 12, [9] * 2]
    outputs = decode_in_batches(decoder, prompts, settings, batch_size, counts.append)
    answers = [answer_ids(prompt, settings) for prompt in prompts]
    assert [list(output.tokens) for output in outputs] == answers
    assert sum(counts) == len(prompts)
    assert max(decoder.batches) <= batch_size


def test_forwards_of_a_row_are_counted_to_its_eos_only() -> None:
    outputs = read_rows(ScriptedDecoder()([[5] * 7, [6]], DecodeSettings(block_size=4)), 2)
    assert outputs[0] == RowOutput((*[5] * 7, EOS), (4, 4), True)
    assert outputs[1] == RowOutput((6, EOS), (2,), True)
    with pytest.raises(ValueError, match="needs tokens"):
        read_rows([], 1)


def test_a_repetition_is_cut_with_the_forwards_that_made_it() -> None:
    text = [*range(100, 110), *[1, 2, 3] * 20]
    cut = RowOutput(tuple(text), (4,) * 17 + (2,), False).without_loop()
    assert cut == RowOutput(tuple(text[:13]), (4, 4, 4, 1), False, is_looped=True)
    assert cut.tokens_per_forward == 13 / 4
    plain = RowOutput((1, 2, 3), (1, 2), True)
    assert plain.without_loop() is plain


CELL = Cell("mars-tiny", "f00d", "float32", "symbolic", "cafe", 50, DecodeSettings())
OUTPUTS = (RowOutput((5, 6, 7, 0), (3, 1), True), RowOutput((8,), (1,), False, True))


def test_outputs_are_stored_for_what_determines_them(tmp_path: Path) -> None:
    path, changed = tmp_path / "cells.jsonl", [{"tau": 0.9}, {"max_new_tokens": 16}]
    CellStore(path).put(CELL, OUTPUTS)
    assert CellStore(path).get(CELL) == OUTPUTS
    for name in ("fingerprint", "prompts_id", "dtype"):
        assert CellStore(path).get(replace(CELL, **{name: "other"})) is None
    for settings in changed:
        assert CellStore(path).get(replace(CELL, settings=DecodeSettings(**settings))) is None


def test_a_line_cut_short_is_passed_over(tmp_path: Path) -> None:
    path, second = tmp_path / "cells.jsonl", replace(CELL, family="reading")
    store = CellStore(path)
    store.put(CELL, OUTPUTS)
    store.put(second, OUTPUTS)
    path.write_bytes(path.read_bytes()[:-30])
    again = CellStore(path)
    assert (again.get(CELL), again.get(second)) == (OUTPUTS, None)
    again.put(second, OUTPUTS)
    assert CellStore(path).get(second) == OUTPUTS


def outcome(first: int, taken: tuple[int, ...], is_right: bool | None = None) -> Outcome:
    """An output that begins with ``first``, which tells it from the others."""
    tokens = (first, *[9] * (sum(taken) - 1))
    return Outcome(RowOutput(tokens, taken, True, is_looped=first == 77), is_right)


def cell(family: str, settings: DecodeSettings, checkpoint: str = "mars-tiny") -> Cell:
    return Cell(checkpoint, checkpoint, "float32", family, family, 2, settings)


RESULTS = {
    cell("symbolic", AR): (outcome(1, (1,) * 4, True), outcome(2, (1,) * 6, True)),
    cell("reading", AR): (outcome(3, (1,) * 4, False), outcome(4, (1,) * 6, True)),
    cell("natural", AR): (outcome(5, (1,) * 8), outcome(6, (1,) * 8)),
    cell("symbolic", MARS): (outcome(1, (2, 2), True), outcome(7, (3, 3), False)),
    cell("reading", MARS): (outcome(3, (4,), False), outcome(4, (1,) * 6, True)),
    cell("natural", MARS): (outcome(5, (1,) * 8), outcome(6, (2,) * 4)),
}


def test_figures_of_a_family_are_means_over_prompts() -> None:
    figures = figures_of([cell("symbolic", MARS)], RESULTS)
    assert figures.tpf.value == pytest.approx((2.0 + 3.0) / 2)
    assert figures.accuracy is not None
    assert (figures.accuracy.value, figures.right, figures.agreement) == (0.5, 0.5, 0.5)
    assert (figures.num_tokens, figures.ended, figures.looped) == (5.0, 1.0, 0.0)
    assert figures_of([cell("natural", MARS)], RESULTS).accuracy is None


def test_averages_count_families_alike_and_compare_with_ar_prompt_by_prompt() -> None:
    ar, mars = averages(RESULTS, is_open=False)
    assert (ar.accuracy_change, ar.agreement) == (None, 1.0)
    estimates = (ar.accuracy, mars.accuracy, mars.accuracy_change)
    values = [estimate.value for estimate in estimates if estimate]
    assert values == pytest.approx([0.75, 0.5, -0.25])
    assert mars.tpf.value == pytest.approx(((2 + 3) / 2 + (4 + 1) / 2) / 2)
    assert mars.agreement == pytest.approx(0.75)


def test_another_checkpoint_is_never_the_measure() -> None:
    results = {cell("reading", MARS, "other"): RESULTS[cell("reading", MARS)], **RESULTS}
    other = averages(results, is_open=False)[0]
    assert (other.checkpoint, other.accuracy_change, other.agreement) == ("other", None, None)


def test_kinds_of_requests_count_alike() -> None:
    results = {
        cell("chat", AR): (outcome(1, (1,) * 4), outcome(77, (1,) * 6)),
        cell("code", AR): (outcome(3, (1,) * 6), outcome(4, (1,) * 6), outcome(9, (1,) * 8)),
        cell("natural", AR): (outcome(5, (1,) * 9),) * 2,
        cell("chat", LOSSLESS): (outcome(1, (1, 3)), outcome(77, (1, 2, 3))),
        cell("code", LOSSLESS): (outcome(3, (1, 3, 2)), outcome(8, (6,)), outcome(9, (4, 4))),
    }
    ar, lossless = averages(results, is_open=True)
    assert (ar.tpf.value, ar.agreement) == (1.0, 1.0)
    assert {kind: tpf.value for kind, tpf in lossless.by_kind.items()} == {"chat": 2.0, "code": 4.0}
    assert (lossless.tpf.value, lossless.agreement, lossless.looped) == (3.0, 0.8, 0.2)
    shown = table(results)
    assert shown.columns[-3:] == ("chat", "code", "natural")
    assert [line[0] for line in shown.lines] == [
        f"mars-tiny · {describe(settings)}" for settings in (AR, LOSSLESS)
    ]
