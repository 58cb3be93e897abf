"""Figures of open requests on outcomes written by hand, and by the command."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from scripted_decoder import ScriptedDecoder, subject

from mars_runtime.lab.evaluation import cli
from mars_runtime.lab.evaluation.kinds import kind_figures, kinds_table
from mars_runtime.lab.evaluation.measure import Outcome
from mars_runtime.lab.evaluation.plan import Cell
from mars_runtime.lab.evaluation.requests import request_figures, request_tables
from mars_runtime.settings import DecodeSettings

AR = DecodeSettings(method="ar", tau=1.0, block_size=1)
LOSSLESS = DecodeSettings(tau=0.0, block_size=4, lossless=True)


def cell(family: str, settings: DecodeSettings) -> Cell:
    return Cell("some", "f00d", "int4", family, family, 2, settings)


def outcome(output: str, taken: tuple[int, ...], offered: tuple[int, ...] = ()) -> Outcome:
    offered = offered or (1,) * len(taken)
    return Outcome(sum(taken), len(taken), True, None, output, "", taken, offered, output == "l")


RESULTS = {
    cell("chat", AR): (outcome("a", (1,) * 4), outcome("l", (1,) * 6)),
    cell("code", AR): (outcome("c", (1,) * 6), outcome("d", (1,) * 6)),
    cell("natural", AR): (outcome("e", (1,) * 9),) * 2,
    cell("chat", LOSSLESS): (
        outcome("a", (1, 3), (1, 4)),
        outcome("l", (1, 2, 3), (1, 4, 4)),
    ),
    cell("code", LOSSLESS): (
        outcome("c", (1, 3, 2), (1, 4, 4)),
        outcome("x", (6,), (6,)),
    ),
}


def test_kinds_count_alike_and_ar_is_the_measure():
    ar, lossless = request_figures(RESULTS)
    assert (ar.tpf.value, ar.agreement, ar.by_place) == (1.0, 1.0, (1.0,))
    assert set(lossless.by_kind) == {"chat", "code"}
    assert lossless.by_kind["chat"].value == 2.0
    assert lossless.by_kind["code"].value == 4.0
    assert lossless.tpf.value == 3.0
    assert lossless.agreement == 0.75
    assert lossless.looped == 0.25
    # Six forwards offered two tokens or more; one of them six.
    assert lossless.by_place == (1.0, 1.0, 4 / 6, 1 / 6, 1.0, 1.0)


def test_tables_say_the_same():
    rates, places = request_tables(request_figures(RESULTS))
    assert rates.columns == ("way", "average", "chat", "code", "same as AR", "loops cut")
    assert rates.lines[1][0] == "some · lossless τ=0 B=4"
    assert rates.lines[1][1].startswith("3.00 [")
    assert rates.lines[1][4:] == ("75.0 %", "25.0 %")
    assert places.lines == (
        ("some · lossless τ=0 B=4", *("100%",) * 2, "67%", "17%", *("100%",) * 2),
    )
    assert request_tables(request_figures({})) == []


def test_kinds_unlike_the_training_data_are_told_one_by_one():
    assert kind_figures(RESULTS) == []
    judged = Outcome(4, 4, True, True, "t", "", (1,) * 4, (1,) * 4)
    wrong = Outcome(4, 2, False, False, "u", "", (1, 3), (1, 4), True)
    missed = Outcome(4, 4, True, None, "t", "", (1,) * 4, (1, 4, 4, 1))
    results = {
        **RESULTS,
        cell("tables", AR): (judged, judged),
        cell("tables", LOSSLESS): (wrong, missed),
    }
    *_, ar, lossless = kind_figures(results)
    assert (ar.kind, ar.right, ar.ended, ar.looped, ar.first_mask) == (
        "tables",
        1.0,
        1.0,
        0.0,
        None,
    )
    assert (lossless.right, lossless.ended, lossless.looped) == (0.0, 0.5, 0.5)
    assert lossless.tpf.value == 1.5
    assert lossless.first_mask == 1 / 3  # one of three forwards that offered a second token
    assert lossless.agreement == 0.5
    assert kinds_table([lossless]).lines[0][3:] == ("33.3 %", "50.0 %", "50.0 %", "0 %", "50.0 %")


def test_the_command_asks_requests_and_keeps_their_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    decoder = ScriptedDecoder()
    monkeypatch.setattr(cli, "_load", lambda name, args: (subject(decoder, name), 8))
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers(dest="command"))
    out = tmp_path / "r.json"
    given = ["--checkpoints", "one", "--families", "chat", "code", "--prompts", "2", "--markdown"]
    assert cli.run(parser.parse_args(["evaluate", *given, "--out", str(out)])) == 0
    found = json.loads(out.read_text())
    assert found["averages"] == []
    lossless = found["requests"][-1]
    assert lossless["agreement"] == 1.0
    assert set(lossless["by_kind"]) == {"chat", "code"}
    assert 3 < lossless["tpf"]["value"] <= 4
    assert [one["settings"]["groups"] for one in found["requests"]] == [
        *("one",) * 3,
        *("every", "one", "every"),
    ]
    printed = capsys.readouterr().out
    assert "Tokens per forward on open requests" in printed
    assert "accuracy" not in printed
