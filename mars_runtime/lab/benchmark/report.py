"""The result of a benchmark as tables and as JSON."""

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
    """A finished run.

    origin: date, commit, hardware, versions (``provenance``). subject: name, fingerprint, dtype and
    device of what was decoded. asked: the arguments. note: shown with every table, for shapes with
    random weights. bytes_per_second: memory bandwidth, at ``forward_threads``. curves: rho by batch
    size.
    """

    origin: Mapping[str, Any]
    subject: Mapping[str, Any]
    asked: Mapping[str, Any]
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
        """Return what a reader must know before trusting a figure."""
        found = [f"{self.note[:1].upper()}{self.note[1:]}."] if self.note else []
        if count := self.asked.get("beside"):
            found.append(f"Measured next to {count} busy processes.")
        elif doubts := self.quiet.doubts:
            found.append(
                f"The machine was too busy for reliable figures: {'; '.join(doubts)}. "
                "Measure again when it is quiet."
            )
        if self.subject["dtype"] not in ("float32", "bfloat16"):
            found.append("transformers runs in float32: it has no such quantised weights.")
        found += impossible(self.compared, self.curves, self.quiet.ar_spread or 0.0)
        found += [f"Left out: {reason}." for one in self.series for reason in one.left_out]
        return list(dict.fromkeys(found))

    @property
    def origin_lines(self) -> tuple[str, str]:
        """Return what was decoded where, and the versions of all programs."""
        hardware = self.origin["hardware"]
        cores = "1 core" if hardware["cores"] == 1 else f"{hardware['cores']} cores"
        machine = ", ".join([hardware["processor"], cores, *hardware["gpus"]])
        subject = ", ".join(str(self.subject[key]) for key in ("name", "device", "dtype"))
        versions = ", ".join(f"{name} {one}" for name, one in self.origin["versions"].items())
        return f"{subject}; {machine}", versions

    def tables(self) -> list[Table]:
        """Return the tables of each series, then the cost of forward passes."""
        found = []
        for series in self.series:
            compared = [one for one in self.compared if one.batch_size == series.batch_size]
            num_bytes = self.work.num_bytes(series.batch_size, CONTEXT)
            found += speed_tables(series)
            found.append(comparisons_table(series, compared))
            found.append(rates_table(series))
            found.append(work_table(series, num_bytes / self.bytes_per_second))
        found.append(rho_table(self.curves))
        if not self.note:
            return found
        return [Table(f"{one.title} ({self.note})", one.columns, one.lines) for one in found]

    def to_markdown(self) -> str:
        """Return the origin, warnings and tables."""
        parts = [f"# Benchmark of {self.subject['name']}", *self.origin_lines]
        parts.append(f"{self.origin['date']}, commit {self.origin['commit']}")
        parts += [f"> {warning}" for warning in self.warnings]
        parts += [table.to_markdown() for table in self.tables()]
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values, with hashes in place of token ids."""
        return {
            "kind": "benchmark",
            "version": VERSION,
            **self.origin,
            "note": self.note,
            "subject": dict(self.subject),
            "asked": dict(self.asked),
            "machine": {
                **asdict(self.quiet),
                "doubts": self.quiet.doubts,
                "threads": self.forward_threads,
                "bytes_per_second": self.bytes_per_second,
            },
            "load": asdict(self.work),
            "rho": [asdict(one) for curve in self.curves.values() for one in curve],
            "comparisons": [asdict(one) for one in self.compared],
            "series": [series_json(one) for one in self.series],
        }


def series_json(series: SeriesSamples) -> dict[str, Any]:
    """Return the figures of every peer, over the families and on natural text, and every sample."""
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
        "samples": [sample_json(one) for one in series.samples],
    }


def sample_json(one: Sample) -> dict[str, Any]:
    """Return the figures of a sample, without tokens and moments."""
    answer = one.answer
    return {
        "peer": one.peer,
        "threads": one.threads,
        "family": one.family,
        "question": one.question,
        "round": one.round,
        "seconds": round(answer.seconds, 7),
        "first_seconds": round(answer.first_seconds, 7),
        "num_tokens": answer.num_tokens,
        "num_forwards": answer.num_forwards,
        "output": answer.output_id[:8],
    }


def speed_tables(series: SeriesSamples) -> list[Table]:
    """Return the rates of every peer over the families, then on natural text."""
    columns: dict[str, Callable[[PeerFigures], str]] = {
        "peer": lambda one: one.peer,
        "threads": lambda one: str(series.threads[one.peer]),
        "tokens/s": lambda one: f"{one.decode_rate:.0f}" if one.decode_rate else NONE,
        "with prefill": lambda one: f"{one.whole_rate:.0f}",
        "TTFT ms": lambda one: f"{one.ttft.p50 * 1000:.1f}" if one.ttft else NONE,
        "TPF": lambda one: f"{one.tpf:.2f}",
    }
    tables = []
    for where, families in (("over the families", series.tasks), ("on natural text", [NATURAL])):
        figures = list(figures_of(series.of(*families), series.peers).values())
        if figures:
            tables.append(Table.of(f"{series.heading}, {where}: medians", figures, columns))
    return tables


def comparisons_table(series: SeriesSamples, compared: Sequence[Compared]) -> Table:
    """Return a row per comparison: average, each family, with prefill, eta, agreement."""
    lines = tuple(
        (
            one.name,
            number(one.overall),
            *(number(one.by_family[family]) for family in series.families),
            number(one.whole),
            number(one.eta),
            share(one.agreement),
        )
        for one in compared
    )
    columns = ("average", *series.families, "with prefill", "eta", "same text")
    title = f"{series.heading}: ratio of tokens/s without prefill, with 95 % intervals"
    return Table(title, ("peer / baseline", *columns), lines)


def rates_table(series: SeriesSamples) -> Table:
    """Return tokens/s and tokens per forward pass of each peer and family."""
    own = [figures_of(series.of(family), series.peers) for family in series.families]
    lines = tuple((peer, *(_rate(found.get(peer)) for found in own)) for peer in series.peers)
    title = f"{series.heading}: tokens/s without prefill · tokens per forward"
    return Table(title, ("peer", *series.families), lines)


def _rate(figures: PeerFigures | None) -> str:
    if figures is None:
        return NONE
    rate = f"{figures.decode_rate:.0f}" if figures.decode_rate else NONE
    return f"{rate} · {figures.tpf:.2f}"


def work_table(series: SeriesSamples, read_seconds: float) -> Table:
    """Return the time of forward passes, compared with reading the weights, and output hashes."""
    columns: dict[str, Callable[[PeerFigures], str]] = {
        "peer": lambda one: one.peer,
        "ms per forward": lambda one: _of(one.forward_seconds, lambda s: f"{s * 1000:.2f}"),
        "share of bound": lambda one: _of(one.forward_seconds, lambda s: f"{read_seconds / s:.0%}"),
        "tokens per forward": lambda one: f"{one.effective_tpf:.2f}",
        "output": lambda one: one.output_id[:8],
        "repeats": lambda one: "same" if one.is_repeatable else "differ",
        "draft forwards": lambda one: _of(one.draft_forwards, lambda count: f"{count:.2f}"),
    }
    figures = list(figures_of(series.samples, series.peers).values())
    return Table.of(f"{series.heading}: forward passes and output", figures, columns)


def _of(value: float | None, text: Callable[[float], str]) -> str:
    return text(value) if value else NONE


def impossible(
    compared: Sequence[Compared], curves: Mapping[int, Sequence[Rho]], spread: float
) -> list[str]:
    """Return a sentence for each speedup that tokens per forward pass cannot explain.

    A method cannot be faster than AR by more than its tokens per forward pass, times the saving of
    the cheapest forward pass on the curve, times the spread of AR's repeats (``spread``).
    """
    found = []
    for one in compared:
        curve = curves.get(one.batch_size, ())
        cheapest = min([1.0, *(point.rho.value for point in curve)])
        most = (1 + spread) / cheapest
        if one.eta is not None and one.eta.low > most:
            found.append(
                f"{one.name} can't be right: it is {one.eta.value:.2f} times as fast as its tokens "
                f"per forward allow, and the cost of forward passes explains {most:.2f} at most."
            )
    return found


def rho_table(curves: Mapping[int, Sequence[Rho]]) -> Table:
    """Return rho(Q) by batch size."""
    widths = [one.width for one in next(iter(curves.values()))]
    lines = tuple(
        (str(rows), f"{curve[0].seconds * 1000:.2f}", *(f"{one.rho.value:.2f}" for one in curve))
        for rows, curve in curves.items()
    )
    title = "rho(Q): time of a forward pass of Q tokens per row over that of one"
    columns = ("batch", "ms at Q=1", *(f"Q={width}" for width in widths))
    return Table(title, columns, lines)
