"""Shapes without real weights: where their acceptance comes from, and that everything says so."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
import torch

from mars_runtime.acceptance import DecodeError
from mars_runtime.lab.benchmark import cli, run
from mars_runtime.lab.benchmark.acceptances import read_acceptance
from mars_runtime.model import shapes

TINY = {
    **shapes.SHAPES["qwen2.5-0.5b"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
SAYS = "random weights, timing only, acceptance drawn from given shares 0.5, 0, 0.5"


def test_acceptance_is_given_or_recorded(tmp_path: Path):
    given = read_acceptance("0.5,0, 0.5")
    assert given.forced.shares == (0.5, 0.0, 0.5)
    assert given.source == "given shares 0.5, 0, 0.5"
    file = tmp_path / "benchmark.json"
    peers = [{"peer": "AR"}, {"peer": "MARS x", "tokens_per_forward_counts": {"1": 3, "3": 1}}]
    found = {"date": "2026-11-21T10:00:00", "subject": {"name": "tiny"}}
    file.write_text(json.dumps(found | {"series": [{"peers": peers}]}))
    recorded = read_acceptance(str(file))
    assert recorded.forced.shares == (0.75, 0.0, 0.25)
    assert recorded.source == "a recorded histogram (MARS x of tiny, 2026-11-21)"


@pytest.mark.parametrize("text", ["{}", "[]", '{"series": []}', "no json"])
def test_what_holds_no_acceptance_is_refused(text: str, tmp_path: Path):
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(DecodeError, match="No acceptance is recorded"):
        read_acceptance(str(file))
    with pytest.raises(DecodeError, match="add up to 1"):
        read_acceptance("0.5,0.4")


def test_every_table_and_file_says_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(shapes.SHAPES, "qwen2.5-0.5b", TINY)  # type: ignore[arg-type]
    monkeypatch.setattr(run, "NUM_CURVE_ROUNDS", 2)
    monkeypatch.setattr(run, "WIDTHS", (1, 3))
    monkeypatch.setattr("mars_runtime.lab.profiling.forward.SECONDS", 0.01)
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers(dest="command"))
    out = tmp_path / "b.json"
    given = [
        *("benchmark", "--shape", "qwen2.5-0.5b", "--acceptance", "0.5,0,0.5", "--device", "cpu"),
        *("--prompts", "2", "--rounds", "1", "--max-new-tokens", "6", "--threads", "1"),
        *("--batch", "1", "--out", str(out), "--html", str(out.with_suffix(".html"))),
    ]
    threads = torch.get_num_threads()
    try:
        assert cli.run(parser.parse_args(given)) == 0
    finally:
        torch.set_num_threads(threads)
    markdown = out.with_suffix(".md").read_text(encoding="utf-8")
    titles = [line for line in markdown.splitlines() if line.startswith("**")]
    assert len(titles) > 5
    assert all(SAYS in title for title in titles)
    found = json.loads(out.read_text())
    assert found["note"] == SAYS
    peers = {one["peer"]: one for one in found["series"][0]["peers"]}
    assert not any("auto" in name or "lookup" in name for name in peers)
    tokens = {one["families"]["num_tokens"] for one in peers.values()}
    assert tokens == {2 * 6}
    assert peers["MARS τ=0.95 B=4"]["families"]["tpf"] > 1
    report = out.with_suffix(".html").read_text(encoding="utf-8")
    captions = report.count("<caption>")
    assert captions > 5
    assert report.count(SAYS) >= captions


def test_an_unknown_shape_gets_one_sentence(capsys: pytest.CaptureFixture[str]):
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers(dest="command"))
    given = ["benchmark", "--shape", "gpt-9", "--acceptance", "1"]
    assert cli.run(parser.parse_args(given)) == 2
    assert "There is no shape 'gpt-9'" in capsys.readouterr().err
