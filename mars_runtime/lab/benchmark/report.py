"""Report the result of a benchmark as tables and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mars_runtime.lab.benchmark.figures import (
    Compared,
    PeerFigures,
    SeriesSamples,
    counts_of,
    figures_of,
)
from mars_runtime.lab.benchmark.forward import CONTEXT, ForwardWork, Rho
from mars_runtime.lab.benchmark.paired import Sample
from mars_runtime.lab.tables import NONE, Table, number, share
from mars_runtime.provenance import Quiet
from mars_runtime.tasks import NATURAL

VERSION = 4


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of a finished benchmark.

    - origin: date, commit, hardware and versions (see ``provenance``).
    - subject: name, fingerprint, dtype and device of the checkpoint or shape.
    - arguments: the command-line arguments.
    - note: text shown with every table; not empty for shapes with random weights.
    - quiet: how idle the machine was.
    - bytes_per_second: memory bandwidth with ``forward_threads`` threads.
    - work: bytes that a forward pass reads.
    - curves: batch size -> relative time (rho) of forward passes of each width.
    """

    origin: Mapping[str, Any]
    subject: Mapping[str, Any]
    arguments: Mapping[str, Any]
    note: str
    quiet: Quiet
    bytes_per_second: float
    work: ForwardWork
    forward_threads: int
    curves: Mapping[int, Sequence[Rho]]
    series: Sequence[SeriesSamples]
    compared: Sequence[Compared]

    @property
    def warnings(self) -> list[str]:
        """Sentences that a reader must know before trusting the figures."""
        warnings = [f"{self.note[:1].upper()}{self.note[1:]}."] if self.note else []
        if count := self.arguments.get("beside"):
            warnings.append(f"Measured next to {count} busy processes.")
        elif doubts := self.quiet.doubts:
            warnings.append(
                f"The machine was too busy for reliable figures: {'; '.join(doubts)}. "
                "Measure again when it is idle."
            )
        if self.subject["dtype"] not in ("float32", "bfloat16"):
            warnings.append("transformers decodes in float32, because it lacks this quantisation.")
        warnings += impossible(self.compared, self.curves, self.quiet.ar_spread or 0.0)
        for series in self.series:
            warnings += [f"Left out: {reason}." for reason in series.left_out]
        return list(dict.fromkeys(warnings))

    @property
    def origin_lines(self) -> tuple[str, str]:
        """Return two lines: the checkpoint and the machine, then the versions of all programs."""
        hardware = self.origin["hardware"]
        cores = "1 core" if hardware["cores"] == 1 else f"{hardware['cores']} cores"
        machine = ", ".join([hardware["processor"], cores, *hardware["gpus"]])
        subject = ", ".join(str(self.subject[key]) for key in ("name", "device", "dtype"))
        versions = ", ".join(f"{name} {v}" for name, v in self.origin["versions"].items())
        return f"{subject}; {machine}", versions

    def tables(self) -> list[Table]:
        """Return the tables of each series, then a table of rho (relative times of passes)."""
        tables = []
        for series in self.series:
            compared = [c for c in self.compared if c.batch_size == series.batch_size]
            num_bytes = self.work.num_bytes(series.batch_size, CONTEXT)
            tables += speed_tables(series)
            tables.append(comparisons_table(series, compared))
            tables.append(rates_table(series))
            tables.append(work_table(series, num_bytes / self.bytes_per_second))
        tables.append(rho_table(self.curves))
        if not self.note:
            return tables
        return [Table(f"{t.title} ({self.note})", t.columns, t.lines) for t in tables]

    def to_markdown(self) -> str:
        """Return a Markdown document with the origin, the warnings and all tables."""
        parts = [f"# Benchmark of {self.subject['name']}", *self.origin_lines]
        parts.append(f"{self.origin['date']}, commit {self.origin['commit']}")
        parts += [f"> {warning}" for warning in self.warnings]
        parts += [table.to_markdown() for table in self.tables()]
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return the result of a benchmark as JSON values, with hashes in place of token ids."""
        return {
            "kind": "benchmark",
            "version": VERSION,
            **self.origin,
            "note": self.note,
            "subject": dict(self.subject),
            "asked": dict(self.arguments),
            "machine": {
                **asdict(self.quiet),
                "doubts": self.quiet.doubts,
                "threads": self.forward_threads,
                "bytes_per_second": self.bytes_per_second,
            },
            "load": asdict(self.work),
            "rho": [asdict(rho) for curve in self.curves.values() for rho in curve],
            "comparisons": [asdict(compared) for compared in self.compared],
            "series": [series_json(series) for series in self.series],
        }


def series_json(series: SeriesSamples) -> dict[str, Any]:
    """Return a series as JSON values: the figures of each peer, and all samples.

    The figures on task families and on natural text are separate.
    """
    families = series.of(*series.tasks)
    parts = {
        "families": figures_of(families, series.peers),
        "natural": figures_of(series.of(NATURAL), series.peers),
    }
    peers = [
        {
            "peer": peer,
            "threads": series.threads[peer],
            "tokens_per_forward_counts": counts_of(families, peer),
            **{part: asdict(own[peer]) if peer in own else None for part, own in parts.items()},
        }
        for peer in series.peers
    ]
    return {
        "batch_size": series.batch_size,
        "peers": peers,
        "left_out": list(series.left_out),
        "samples": [sample_json(sample) for sample in series.samples],
    }


def sample_json(sample: Sample) -> dict[str, Any]:
    """Return the figures of a sample as JSON values, without its tokens and moments."""
    answer = sample.answer
    return {
        "peer": sample.peer,
        "threads": sample.threads,
        "family": sample.family,
        "question": sample.question,
        "round": sample.round,
        "seconds": round(answer.seconds, 7),
        "first_seconds": round(answer.first_seconds, 7),
        "num_tokens": answer.num_tokens,
        "num_forwards": answer.num_forwards,
        "output": answer.output_id[:8],
    }


def speed_tables(series: SeriesSamples) -> list[Table]:
    """Return tables with the speed of each peer: on task families, and on natural text."""
    columns: dict[str, Callable[[PeerFigures], str]] = {
        "peer": lambda row: row.peer,
        "threads": lambda row: str(series.threads[row.peer]),
        "tokens/s": lambda row: f"{row.decode_rate:.0f}" if row.decode_rate else NONE,
        "with prefill": lambda row: f"{row.whole_rate:.0f}",
        "TTFT ms": lambda row: f"{row.ttft.p50 * 1000:.1f}" if row.ttft else NONE,
        "TPF": lambda row: f"{row.tpf:.2f}",
    }
    tables = []
    for texts, families in (("task families", series.tasks), ("natural text", [NATURAL])):
        figures = list(figures_of(series.of(*families), series.peers).values())
        if figures:
            tables.append(Table.of(f"{series.heading}, {texts}: medians", figures, columns))
    return tables


def comparisons_table(series: SeriesSamples, compared: Sequence[Compared]) -> Table:
    lines = tuple(
        (
            comparison.name,
            number(comparison.overall),
            *(number(comparison.by_family[family]) for family in series.families),
            number(comparison.whole),
            number(comparison.eta),
            share(comparison.agreement),
        )
        for comparison in compared
    )
    columns = ("average", *series.families, "with prefill", "eta", "same text")
    title = f"{series.heading}: ratio of tokens/s without prefill, with 95 % intervals"
    return Table(title, ("peer / baseline", *columns), lines)


def rates_table(series: SeriesSamples) -> Table:
    """Return a table with tokens/s and tokens per forward pass of each peer and family."""
    by_family = [figures_of(series.of(family), series.peers) for family in series.families]
    lines = tuple(
        (peer, *(_rate(figures.get(peer)) for figures in by_family)) for peer in series.peers
    )
    title = f"{series.heading}: tokens/s without prefill · tokens per forward pass"
    return Table(title, ("peer", *series.families), lines)


def _rate(figures: PeerFigures | None) -> str:
    if figures is None:
        return NONE
    rate = f"{figures.decode_rate:.0f}" if figures.decode_rate else NONE
    return f"{rate} · {figures.tpf:.2f}"


def work_table(series: SeriesSamples, read_seconds: float) -> Table:
    """Return a table with the time of a forward pass of each peer, and hashes of the output.

    read_seconds: time to read the weights and the KV cache once, which is the shortest possible
    time of a forward pass.
    """
    columns: dict[str, Callable[[PeerFigures], str]] = {
        "peer": lambda row: row.peer,
        "ms per pass": lambda row: _of(row.forward_seconds, lambda s: f"{s * 1000:.2f}"),
        "share of bound": lambda row: _of(row.forward_seconds, lambda s: f"{read_seconds / s:.0%}"),
        "tokens per pass": lambda row: f"{row.effective_tpf:.2f}",
        "output": lambda row: row.output_id[:8],
        "repeats": lambda row: "same" if row.is_repeatable else "differ",
        "draft passes": lambda row: _of(row.draft_forwards, lambda count: f"{count:.2f}"),
    }
    figures = list(figures_of(series.samples, series.peers).values())
    return Table.of(f"{series.heading}: forward passes and output", figures, columns)


def _of(value: float | None, text: Callable[[float], str]) -> str:
    return text(value) if value else NONE


def impossible(
    compared: Sequence[Compared], curves: Mapping[int, Sequence[Rho]], spread: float
) -> list[str]:
    """Return a sentence for each speedup that is too large to be true.

    A speedup over AR can exceed the tokens per forward pass only by a small factor: 1 + ``spread``,
    divided by the smallest rho. ``spread`` is the variation between repeated AR runs.
    """
    sentences = []
    for comparison in compared:
        curve = curves.get(comparison.batch_size, ())
        cheapest = min([1.0, *(point.rho.value for point in curve)])
        limit = (1 + spread) / cheapest
        eta = comparison.eta
        if eta is not None and eta.low > limit:
            sentences.append(
                f"{comparison.name} cannot be right: the speedup is {eta.value:.2f} times its "
                f"tokens per forward pass, but at most {limit:.2f} times is possible."
            )
    return sentences


def rho_table(curves: Mapping[int, Sequence[Rho]]) -> Table:
    """Return a table of rho(Q), the relative time of a pass of Q tokens, by batch size."""
    widths = [point.width for point in next(iter(curves.values()))]
    lines = tuple(
        (str(rows), f"{curve[0].seconds * 1000:.2f}", *(f"{p.rho.value:.2f}" for p in curve))
        for rows, curve in curves.items()
    )
    title = "rho(Q): time of a forward pass of Q tokens per row, relative to Q = 1"
    columns = ("batch", "ms at Q=1", *(f"Q={width}" for width in widths))
    return Table(title, columns, lines)
