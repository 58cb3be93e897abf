"""``python -m mars_runtime tables``: update the tables in the documents from the result files.

In a document, two comments surround each table. The first comment names a view and a result file:

    <!-- python -m mars_runtime tables: chat_ratios of assets/results/chat_benchmark.json -->
    <!-- end -->

Only the text between the two comments is replaced. ``documents.json`` describes each view:

- ``records``: names of lists in the result file, or of functions in RECORDS. Their items are the
  records.
- ``where``: field -> required value. Other records are ignored.
- ``key``: the fields that identify a row. Records with equal keys become one row.
- ``by``: a field that has a different value in each record of a row. A cell refers to the record
  in which this field is X as ``by[X]``, and to a record without this field as ``by[all]``.
- ``rows``: row label -> key, in the order of the table. All rows must exist, unless ``partial`` is
  true.
- ``label``: format string for row labels, if ``rows`` is missing. The table then has all rows.
- ``paths``: row label -> path in the result file. A view with ``paths`` needs none of the keys
  above.
- ``columns``: column heading -> cell, a format string over the fields of a row (see ``Cells``).
- ``corner``: heading of the first column.
"""

from __future__ import annotations

import argparse
import json
import re
import string
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from statistics import fmean
from typing import Any

from mars_runtime.lab.ablation.report import (
    AR,
    AR_ONLY,
    AblationResults,
    accuracy,
    tokens_per_forward,
)
from mars_runtime.lab.benchmark.forward import CONTEXT
from mars_runtime.lab.harness.table import BENCHMARKS, PAPER
from mars_runtime.lab.tables import NONE, Table
from mars_runtime.outputs import OutputError, write_text
from mars_runtime.places import SOURCE
from mars_runtime.settings import describe, read_settings

ROOT = SOURCE
MARKED = re.compile(
    r"(?P<begin><!-- python -m mars_runtime tables: (?P<view>\w+) of (?P<file>\S+) -->\n)"
    r"(?P<table>.*?)(?P<end><!-- end -->)",
    re.DOTALL,
)
VIEWS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)
GPU_PREFIX = "gpu_"
"""Prefix of the result files of ``tools/measure_gpu.py``.

Documents contain tables for these files. If a file does not exist, its table shows ``PENDING``.
"""
PENDING = "Not measured yet."

Content = Mapping[str, Any]
Record = Mapping[str, Any]


class DocumentError(ValueError):
    """A comment in a document names an unknown view, or a result file that the view cannot show."""


class Cells(string.Formatter):
    """Formatter of table cells. It adds format names such as ``ms``, and shows None as a dash.

    Four formats accept estimates, which are dictionaries with ``value`` and optionally ``low`` and
    ``high``: ``two`` (without the interval), ``interval``, ``percent`` and ``points`` (both
    multiplied by 100).
    """

    def get_field(
        self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any, str]:
        first, *keys = re.findall(r"[^\[\]]+", field_name)
        value: Any = kwargs[first]
        for key in keys:
            if value is None:
                break
            is_column = value is kwargs.get("by")
            index = int(key) if isinstance(value, list) else key
            value = value.get(key) if is_column else value[index]
        return value, first

    def format_field(self, value: Any, format_spec: str) -> str:
        formats: dict[str, Callable[[Any], str]] = {
            "two": lambda estimate: f"{estimate['value']:.2f}",
            "interval": lambda estimate: _estimate(estimate, ".2f"),
            "percent": lambda estimate: _estimate(estimate, ".1f", 100),
            "points": lambda estimate: _estimate(estimate, "+.1f", 100),
            "whole": lambda value: f"{value * 100:.0f} %",
            "share": lambda value: f"{value * 100:.{0 if value in (0.0, 1.0) else 1}f} %",
            "ms": lambda seconds: f"{seconds * 1000:.3f}",
            "next": lambda index: str(index + 1),
            "words": lambda name: name.replace("_", " "),
            "code": lambda text: f"`{text.replace('`', chr(39))}`" if text else NONE,
        }
        if value is None:
            return NONE
        return formats[format_spec](value) if format_spec in formats else format(value, format_spec)


def _estimate(value: Record, form: str, factor: float = 1.0) -> str:
    shown = {name: format(number * factor, form) for name, number in value.items()}
    return shown["value"] + (f" [{shown['low']}, {shown['high']}]" if "low" in shown else "")


def render(view: str, content: Content) -> Table:
    """Build the table of a view from the content of a result file.

    Raises KeyError, ValueError, TypeError or IndexError if the content does not fit the view.
    """
    spec = VIEWS[view]
    cells = Cells()
    if "paths" in spec:
        rows = [(label, {"at": _at(content, path)}) for label, path in spec["paths"].items()]
    else:
        rows = _rows(content, spec)
    lines = tuple(
        (label, *(cells.vformat(cell, (), row) for cell in spec["columns"].values()))
        for label, row in rows
    )
    if not lines:
        raise ValueError("no rows")
    corner = spec["corner"] if "corner" in spec else _origin(content)
    return Table("", (corner, *spec["columns"]), lines)


def _at(content: Content, path: str) -> Any:
    return reduce(lambda value, key: value[key], path.split("."), content)


def _rows(content: Content, spec: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the label and the fields of each row of a view."""
    by_key: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name in spec["records"]:
        records = RECORDS[name](content) if name in RECORDS else content[name]
        for record in map(_with_method, records):
            if all(record.get(key) == value for key, value in spec.get("where", {}).items()):
                key = tuple(record[field] for field in spec["key"])
                row = by_key.setdefault(key, {**record, "by": {}})
                row["by"][str(record.get(str(spec.get("by")), "all"))] = record
    if "rows" not in spec:
        return [(Cells().vformat(spec["label"], (), row), row) for row in by_key.values()]
    keys = {
        label: tuple(key) if isinstance(key, list) else (key,)
        for label, key in spec["rows"].items()
    }
    is_partial = spec.get("partial", False)
    return [(label, by_key[key]) for label, key in keys.items() if not is_partial or key in by_key]


def _with_method(record: Record) -> Record:
    """Copy the fields in ``cell`` into the record, and describe its settings in ``way``."""
    fields: dict[str, Any] = {**record, **record.get("cell", {})}
    if "settings" in fields and "way" not in fields:
        fields["way"] = describe(read_settings(fields["settings"]))
    return fields


def _origin(content: Content) -> str:
    """Describe a result: checkpoint and dtype, processor or GPU, torch version, date."""
    hardware = content["hardware"]
    device = hardware["gpus"][0] if hardware["gpus"] else hardware["processor"]
    subject = content.get("subject", {})
    names = [subject[key] for key in ("name", "dtype") if key in subject]
    torch = f"torch {content['versions']['torch']}"
    return ", ".join([*names, device, torch, content["date"][:10]])


def peers(content: Content) -> list[Record]:
    """Return a record for each peer and batch size of a benchmark.

    ``limit``, only for AR, is the measured speed divided by the highest possible speed, at which a
    pass takes only the time to read the weights and the KV cache from memory.
    """
    load = content["load"]
    peer_rows: list[Record] = []
    for series in content["series"]:
        rows = series["batch_size"]
        num_bytes = load["weight_bytes"] + rows * CONTEXT * load["position_bytes"]
        limit = rows * content["machine"]["bytes_per_second"] / num_bytes
        for peer in series["peers"]:
            rate = peer["families"]["decode_rate"]
            suffix = "" if rows == 1 else f", batches of {rows}"
            share = rate / limit if rate and peer["peer"] == "AR" else None
            names = {"label": peer["peer"] + suffix, "batch_size": rows}
            peer_rows.append({**peer["families"], **names, "peer": peer["peer"], "limit": share})
    return peer_rows


def comparisons_with_ar(content: Content) -> list[Record]:
    """Return the comparisons of a benchmark. Ratios of AR to a peer are also returned inverted."""
    compared = list(content["comparisons"])
    for comparison in content["comparisons"]:
        if comparison["peer"] == "AR" and (overall := comparison["overall"]):
            low, high = 1 / overall["high"], 1 / overall["low"]
            inverse = {"value": 1 / overall["value"], "low": low, "high": high}
            names = {"peer": comparison["baseline"], "baseline": "AR"}
            compared.append({**comparison, **names, "overall": inverse, "eta": None})
    known = {(peer["batch_size"], peer["peer"]) for peer in peers(content)}
    return [
        comparison
        for comparison in compared
        if (comparison["batch_size"], comparison["peer"]) in known
    ]


def sample_rates(content: Content) -> list[Record]:
    """Return the mean tokens per forward pass of each peer and family, for single prompts."""
    groups: dict[tuple[str, str], list[float]] = {}
    for sample in content["series"][0]["samples"]:
        rate = sample["num_tokens"] / sample["num_forwards"]
        groups.setdefault((sample["peer"], sample["family"]), []).append(rate)
    return [
        {"peer": peer, "family": family, "tpf": fmean(rates)}
        for (peer, family), rates in groups.items()
    ]


def benchmarks(content: Content) -> list[Record]:
    """Return the results of lm-eval, followed by the results that the paper reports."""
    paper = json.loads(PAPER.read_text(encoding="utf-8"))["benchmarks"]
    return [
        *content["cells"],
        *(
            {
                "way": f"paper: {row['name']}",
                "task": benchmark.task,
                "accuracy": {"value": row["accuracy"][benchmark.name] / 100},
                "tpf": {"value": row["tpf"][benchmark.name]},
            }
            for row in paper
            for benchmark in BENCHMARKS
            if benchmark.name in row["tpf"]
        ),
    ]


def variants(content: Content) -> list[Record]:
    """Return the formatted figures of each variant of an ablation."""
    results = AblationResults(content)
    records: list[Record] = []
    for name, runs in results.runs.items():
        is_start = name == "start"
        figures = {
            "ar": (results.figure(name, AR, accuracy), 1),
            "mars": (results.figure(name, "mars 0.95 B4", accuracy), 1),
            "b4": (results.figure(name, "lossless 0 B4", tokens_per_forward), 2),
            "b8": (results.figure(name, "lossless 0 B8", tokens_per_forward), 2),
        }
        change = None if is_start else results.change(name, AR_ONLY, AR, accuracy)
        records.append(
            {
                "variant": name,
                "seeds": None if is_start else len(runs),
                "change": change.text(1, sign=True) if change else None,
                **{
                    key: figure.text(digits) if figure else None
                    for key, (figure, digits) in figures.items()
                },
            }
        )
    return records


RECORDS: dict[str, Callable[[Content], Sequence[Record]]] = {
    "peers": peers,
    "comparisons_with_ar": comparisons_with_ar,
    "sample_rates": sample_rates,
    "benchmarks": benchmarks,
    "variants": variants,
    "categories": lambda content: [marks for marks in content["marks"] if marks["category"]],
    "methods": lambda content: [
        {**method, "name": name} for name, method in content["ways"].items()
    ],
}
"""Name in ``documents.json`` -> a function that computes records from a result file."""


def documents(root: Path = ROOT) -> list[Path]:
    """Return all documents that can contain tables: README, docs and model cards."""
    cards = sorted((root / "checkpoints").rglob("README.md"))
    return [root / "README.md", *sorted((root / "docs").glob("*.md")), *cards]


def written(text: str, root: Path = ROOT) -> str:
    """Return the text of a document with updated tables. Raises DocumentError."""
    return MARKED.sub(
        lambda match: (
            f"{match['begin']}{_markdown(match['view'], match['file'], root)}\n{match['end']}"
        ),
        text,
    )


def _markdown(view: str, file: str, root: Path) -> str:
    if view not in VIEWS:
        raise DocumentError(f"There is no view {view!r}. Choose one of {', '.join(VIEWS)}.")
    if Path(file).name.startswith(GPU_PREFIX) and not (root / file).exists():
        return PENDING
    try:
        content = json.loads((root / file).read_text(encoding="utf-8"))
        return render(view, content).rows_to_markdown()
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise DocumentError(f"The view {view} cannot show {file} ({error!r}).") from error


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    subparsers.add_parser("tables", help="update the tables in the documents from result files")


def run(args: argparse.Namespace) -> int:
    try:
        for path in documents():
            before = path.read_text(encoding="utf-8")
            after = written(before)
            if after != before:
                write_text(path, after)
                print(f"Updated {path.relative_to(ROOT)}")
    except (DocumentError, OutputError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0
