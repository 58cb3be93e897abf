"""The command from arguments to files, on a checkpoint of toy size."""

from __future__ import annotations

import argparse
import io
import json
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from scripted_answers import answer

from mars_runtime.lab.benchmark import beside, cli, run
from mars_runtime.lab.benchmark.paired import Sample


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers(dest="command"))
    return parser.parse_args(["benchmark", *given])


EVIL = "<script>alert(1)</script>"


@dataclass(frozen=True)
class Done:
    """What one run left: exit code, printed text, figures, report."""

    code: int
    printed: str
    markdown: str
    found: dict[str, Any]
    report: str


@pytest.fixture(scope="module")
def done(random_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """One run of everything, as small as can be, on a processor of an evil name."""
    folder = tmp_path_factory.mktemp("benchmark")
    out, report = folder / "deep" / "b.json", folder / "report.html"
    given = [
        *("--checkpoint", str(random_folder), "--families", "symbolic", "natural"),
        *("--prompts", "2", "--rounds", "1", "--max-new-tokens", "8", "--threads", "1"),
        *("--batch", "1", "2", "--cache-blocks", "4"),
        *("--out", str(out), "--html", str(report)),
    ]
    threads, printed = torch.get_num_threads(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(run, "NUM_CURVE_ROUNDS", 2)
        patch.setattr("mars_runtime.lab.profiling.forward.SECONDS", 0.01)
        patch.setattr("mars_runtime.provenance.processor", lambda: EVIL)
        code = cli.run(arguments(*given))
    torch.set_num_threads(threads)
    found = json.loads(out.read_text(encoding="utf-8"))
    markdown = out.with_suffix(".md").read_text(encoding="utf-8")
    return Done(code, printed.getvalue(), markdown, found, report.read_text(encoding="utf-8"))


def test_a_run_prints_where_it_ran_answers_and_tables(done: Done):
    assert done.code == 0
    assert "float32" in done.printed
    assert "torch " in done.printed
    answer = "One prompt at a time: AR over transformers generate"
    assert answer in " ".join(done.printed.split())
    assert "Batches of 2: how many times the tokens/s, with 95 % intervals" in done.printed
    assert "**Batches of 2: how many times the tokens/s, with 95 % intervals**" in done.markdown
    assert "| MARS τ=0.95 B=4 / AR |" in done.markdown
    assert answer in done.markdown


def test_figures_are_kept_with_their_origin(done: Done):
    found = done.found
    assert {"date", "commit", "hardware", "versions", "asked", "machine", "rho"} <= set(found)
    assert found["subject"]["dtype"] == "float32"
    assert not {"out", "html", "official"} & set(found["asked"])
    assert [one["batch_size"] for one in found["series"]] == [1, 2]
    alone, together = found["series"]
    assert len(alone["samples"]) == len(alone["peers"]) * 4
    assert {"block cache 4", "no cache"} <= {one["peer"] for one in together["peers"]}
    exact = {
        one["families"]["output_id"]
        for one in alone["peers"]
        if one["peer"].startswith(("AR", "lossless"))
    }
    assert len(exact) == 1
    assert {one["width"] for one in found["rho"]} >= {1, 7}


def test_the_report_needs_nothing_else_and_escapes_names(done: Done):
    assert EVIL not in done.report
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in done.report
    assert not re.search(r"<script[^>]* src=", done.report)
    assert done.report.count("plotly.js v") == 1
    bare = re.sub(r"<script.*?</script>", "", done.report, flags=re.DOTALL)
    assert not re.search(r'(src|href)="', bare)
    assert bare.count("<table>") >= 10
    assert "In short" in bare


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--taus", "2"], "τ must be a number"),
        (["--rounds", "0"], "at least 1 of rounds"),
        (["--threads", "0"], "at least 1 of threads"),
        (["--beside", "-1"], "0 to 64 busy processes"),
        (["--beside", "65"], "0 to 64 busy processes"),
        (["--batch", "0"], "at least 1 of prompts"),
        (["--batch", "9999"], "at most 256"),
        (["--families", "poetry"], "no family"),
        (["--checkpoint", "nobody"], "nobody"),
    ],
)
def test_wrong_arguments_get_one_sentence(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    assert cli.run(arguments(*given)) == 2
    assert said in capsys.readouterr().err


def test_the_grid_holds_every_tau_and_block_size():
    ways = cli.ways_of(arguments("--grid"))
    fixed = [name for name in ways if name.startswith("MARS") and "auto" not in name]
    assert len(fixed) == 9
    assert cli.ways_of(arguments()).keys() <= ways.keys()


def test_requests_are_measured_one_at_a_time_and_transformers_ways_once(
    random_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run, "NUM_CURVE_ROUNDS", 2)
    monkeypatch.setattr("mars_runtime.lab.profiling.forward.SECONDS", 0.01)
    out = tmp_path / "b.json"
    given = ["--checkpoint", str(random_folder), "--families", "chat", "maths", "code"]
    given += ["--prompts", "3", "--max-new-tokens", "6", "--threads", "1", "--out", str(out)]
    assert cli.run(arguments(*given)) == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    (series,) = found["series"]
    counts = {
        name: len([one for one in series["samples"] if one["peer"] == name])
        for name in ("AR", "transformers generate", "transformers prompt lookup")
    }
    assert counts == {
        "AR": 3 * 3 * 2,
        "transformers generate": 3 * 2,
        "transformers prompt lookup": 3 * 2,
    }
    assert series["first_length"] == 200
    assert all(one["first_seconds"] > 0 for one in series["peers"])
    assert all(one["peak_bytes"] is None for one in series["peers"])
    against = next(one for one in found["comparisons"] if one["baseline"] != "AR")
    assert set(against["by_family"]) == {"chat", "maths", "code"}
    assert None not in against["by_family"].values()
    markdown = out.with_suffix(".md").read_text(encoding="utf-8")
    assert "| peer | chat | maths | code | ms to the first token of a prompt of 200 |" in markdown
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".md"}  # no page unasked


def test_llama_cpp_needs_a_file_that_it_reads(
    random_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    given = ["--checkpoint", str(random_folder), "--families", "chat", "--llama-cpp", "python3"]
    assert cli.run(arguments(*given, "--out", str(tmp_path / "b.json"))) == 2
    assert "leave --llama-cpp out" in capsys.readouterr().err


def test_beside_busy_processes_threads_are_chosen_and_fixed(
    random_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(beside, "SETTLE", 0.0)
    out, threads = tmp_path / "beside.json", torch.get_num_threads()
    given = ["--checkpoint", str(random_folder), "--families", "symbolic", "--prompts", "1"]
    given += ["--rounds", "1", "--max-new-tokens", "6", "--threads", "1", "2", "--beside", "0", "1"]
    assert cli.run(arguments(*given, "--out", str(out))) == 0
    torch.set_num_threads(threads)
    rates = json.loads(out.read_text(encoding="utf-8"))["rates"]
    told = {(one["way"], one["threads"], one["beside"]) for one in rates}
    ways = ("AR", "lossless, as the page opens")
    assert told == {(w, t, b) for w in ways for t in (None, 1, 2) for b in (0, 1)}
    assert all(one["tokens_per_second"] > 0 for one in rates)
    for one in rates:
        assert (one["over_fixed"] is None) == (one["threads"] is not None)
    assert "| AR | chosen |" in out.with_suffix(".md").read_text(encoding="utf-8")


def test_rates_are_of_all_answers_and_ratios_of_pairs():
    slow, fast = answer(2.0), answer(1.0)
    played = {"AR · chosen": (0, fast), "AR · 1": (1, slow), "AR · 2": (2, answer(1.25))}
    samples = [
        Sample(name, threads, "chat", number, 0, one)
        for name, (threads, one) in played.items()
        for number in range(3)
    ]
    chosen, one, two = beside.rates_of(samples, 1)
    assert (one.tokens_per_second, two.tokens_per_second) == (2.0, 3.2)
    assert (chosen.threads, chosen.beside, chosen.tokens_per_second) == (None, 1, 4.0)
    assert chosen.over_fixed is not None
    assert chosen.over_fixed.value == pytest.approx(1.25)
    assert one.over_fixed is None


def test_processes_beside_end_with_the_round():
    with beside.busy(2) as started:
        assert [one.poll() for one in started] == [None, None]
    assert all(one.poll() is not None for one in started)
