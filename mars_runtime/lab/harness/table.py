"""``python -m mars_runtime lm_eval_table FOLDER …``: compare results of lm-eval with the paper's.

The command prints the tables, and writes them as JSON and as Markdown.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from mars_runtime import statistics
from mars_runtime.lab.tables import NONE, Table, number, percent
from mars_runtime.outputs import OutputError, check_file, path_of, write_text
from mars_runtime.places import ASSETS
from mars_runtime.statistics import Estimate

PAPER = ASSETS / "results" / "paper.json"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark, which is a column of the tables.

    name: its name in the paper. task: name of our task in lm-eval. metric: name of lm-eval's
    metric. heading: heading of the column.
    """

    name: str
    task: str
    metric: str
    heading: str


BENCHMARKS = (
    Benchmark("IFEval", "ifeval_local", "prompt_level_strict_acc,none", "IFEval"),
    Benchmark("BBH", "bbh_local", "exact_match,none", "BBH, no examples"),
    Benchmark(
        "GSM8K", "gsm8k_train_heldout", "exact_match,flexible-extract", "GSM8K, training split"
    ),
    Benchmark("HumanEval", "humaneval_sandbox", "pass@1,none", "HumanEval"),
)


class ResultsError(ValueError):
    """There are no usable results. The message contains the solution."""


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """The result of a method on a benchmark.

    - accuracy: share of right answers with Wilson's interval.
    - tpf, tpf_whole: mean tokens per forward pass of an answer, without and with repetition loops.
    - ended, looped: shares of answers that ended before the limit, and that have a loop.
    """

    checkpoint: str
    fingerprint: str
    way: str
    settings: dict[str, Any]
    task: str
    num_answers: int
    num_documents: int
    accuracy: Estimate
    tpf: Estimate
    tpf_whole: Estimate
    ended: float
    looped: float


def read_results(paths: Sequence[Path]) -> tuple[list[BenchmarkResult], dict[str, Any]]:
    """Read the newest result of each method and task in the folders, and the provenance.

    Raises ResultsError.
    """
    files = [file for path in paths for file in path.rglob("results_*.json")]
    newest: dict[tuple[str, str, str], BenchmarkResult] = {}
    origin: dict[str, Any] = {}
    for file in sorted(files, key=lambda file: file.name):
        result = json.loads(file.read_text(encoding="utf-8"))
        mars = result["config"].get("mars")
        if mars is None:
            raise ResultsError(
                f"{file} is the result of another model than mars. Choose another folder."
            )
        origin = {key: mars[key] for key in ("date", "commit", "hardware", "versions")}
        origin["versions"] = {**origin["versions"], "lm_eval": result["lm_eval_version"]}
        for benchmark in BENCHMARKS:
            if benchmark.task in result["results"]:
                cell = _result(benchmark, result, mars)
                newest[cell.checkpoint, cell.way, cell.task] = cell
    if not newest:
        raise ResultsError(
            "No results of lm-eval were found. Pass the folders that were its --output_path."
        )
    return list(newest.values()), origin


def _result(
    benchmark: Benchmark, result: Mapping[str, Any], mars: Mapping[str, Any]
) -> BenchmarkResult:
    figures, counts = mars["tasks"][benchmark.task], result["n-samples"][benchmark.task]
    num_answers = int(counts["effective"])
    share = float(result["results"][benchmark.task][benchmark.metric])
    return BenchmarkResult(
        checkpoint=mars["checkpoint"],
        fingerprint=mars["fingerprint"],
        way=mars["way"],
        settings=mars["settings"],
        task=benchmark.task,
        num_answers=num_answers,
        num_documents=int(counts["original"]),
        accuracy=statistics.wilson(round(share * num_answers), num_answers),
        tpf=Estimate(**figures["tpf"]),
        tpf_whole=Estimate(**figures["tpf_whole"]),
        ended=figures["ended"],
        looped=figures["looped"],
    )


def document(cells: Sequence[BenchmarkResult], origin: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": "lm_eval", "version": 1, **origin, "cells": [asdict(cell) for cell in cells]}


def tables(cells: Sequence[BenchmarkResult], paper: Mapping[str, Any]) -> list[Table]:
    """Return two tables, accuracy and tokens per forward pass, with our and the paper's results.

    A cell also shows its number of answers if another cell of the column has more answers.
    """
    methods = list(dict.fromkeys((cell.checkpoint, cell.way) for cell in cells))
    by_method = {(cell.checkpoint, cell.way, cell.task): cell for cell in cells}
    headings = ("", *(benchmark.heading for benchmark in BENCHMARKS))
    accuracies: list[tuple[str, ...]] = []
    rates: list[tuple[str, ...]] = []
    for checkpoint, method in methods:
        row_cells = [by_method.get((checkpoint, method, b.task)) for b in BENCHMARKS]
        name = f"{checkpoint} · {method}"
        fewer = [_fewer(cell, cells) for cell in row_cells]
        shares = [percent(cell.accuracy if cell else None) for cell in row_cells]
        tpfs = [number(cell.tpf if cell else None) for cell in row_cells]
        accuracies.append((name, *map("".join, zip(shares, fewer, strict=True))))
        rates.append((name, *map("".join, zip(tpfs, fewer, strict=True))))
    for row in paper["benchmarks"]:
        name = f"paper, {paper['base']} · {row['name']}"
        names = [benchmark.name for benchmark in BENCHMARKS]
        accuracies.append((name, *(_plain(row["accuracy"].get(key), 1) for key in names)))
        rates.append((name, *(_plain(row["tpf"].get(key), 2) for key in names)))
    return [
        Table("Accuracy in percent, with 95 % intervals", headings, tuple(accuracies)),
        Table("Tokens per forward pass", headings, tuple(rates)),
    ]


def _fewer(cell: BenchmarkResult | None, cells: Sequence[BenchmarkResult]) -> str:
    if cell is None:
        return ""
    most = max(other.num_answers for other in cells if other.task == cell.task)
    return f", n = {cell.num_answers}" if cell.num_answers < most else ""


def _plain(value: float | None, places: int) -> str:
    return NONE if value is None else f"{value:.{places}f}"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "lm_eval_table", help="compare results of lm-eval with the paper's"
    )
    parser.add_argument(
        "results", nargs="+", type=Path, help="folders that were the --output_path of lm-eval"
    )
    parser.add_argument("--out", type=path_of, default=Path("runs/lm_eval.json"))


def run(args: argparse.Namespace) -> int:
    try:
        check_file(args.out)
        cells, origin = read_results(args.results)
        both = tables(cells, json.loads(PAPER.read_text(encoding="utf-8")))
        write_text(args.out, json.dumps(document(cells, origin), ensure_ascii=False, indent=1))
        markdown = "\n\n".join(table.to_markdown() for table in both)
        write_text(args.out.with_suffix(".md"), markdown + "\n")
    except (ResultsError, OutputError) as error:
        print(error, file=sys.stderr)
        return 2
    console = Console()
    for table in both:
        console.print(table.to_rich(), crop=False)
    console.print(f"Written to {args.out}", markup=False)
    return 0
