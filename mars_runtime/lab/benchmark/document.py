"""Everything that a run found, as one value and as JSON. Measures and draws nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mars_runtime.lab.benchmark import report
from mars_runtime.lab.benchmark.compare import Compared
from mars_runtime.lab.benchmark.figures import counts_of, figures_of
from mars_runtime.lab.benchmark.measure import Measured
from mars_runtime.lab.benchmark.paired import Sample
from mars_runtime.lab.evaluation.tables import Table
from mars_runtime.lab.profiling.forward import CONTEXT, ForwardWork, MachineLimits, Rho
from mars_runtime.provenance import Quiet
from mars_runtime.tasks import NATURAL

VERSION = 3


@dataclass(frozen=True, slots=True)
class Findings:
    """A finished run.

    origin: date, commit, hardware, versions (``provenance``). subject: what was decoded: name,
        fingerprint, dtype, device. asked: the arguments. note: what every table must say, for
        shapes without real weights; else empty. forward_threads: threads of limits and curves.
    """

    origin: Mapping[str, Any]
    subject: Mapping[str, Any]
    asked: Mapping[str, Any]
    note: str
    quiet: Quiet
    limits: MachineLimits
    load: ForwardWork
    forward_threads: int
    curves: Mapping[int, Sequence[Rho]]
    series: Sequence[Measured]
    compared: Sequence[Compared]

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before believing a figure."""
        found = [f"{self.note[:1].upper()}{self.note[1:]}."] if self.note else []
        if doubts := self.quiet.doubts:
            found.append(
                f"The machine was too busy to be believed: {'; '.join(doubts)}. "
                "Take these figures for a hint and measure again when it is quiet."
            )
        if self.subject["dtype"] not in ("float32", "bfloat16"):
            found.append("transformers' ways run in float32: they have no such matrices.")
        found += report.impossible(self.compared, self.curves, self.quiet.ar_spread or 0.0)
        found += [f"Left out: {reason}." for one in self.series for reason in one.left_out]
        return list(dict.fromkeys(found))

    @property
    def place(self) -> str:
        """On what and with what, in a line."""
        hardware = self.origin["hardware"]
        cores = "1 core" if hardware["cores"] == 1 else f"{hardware['cores']} cores"
        machine = [hardware["processor"], cores, *hardware["gpus"]]
        subject = self.subject
        what = [str(subject["name"]), str(subject["device"]), str(subject["dtype"])]
        return "; ".join([", ".join(what), ", ".join(machine)])

    @property
    def versions(self) -> str:
        """Of everything that was timed, in a line."""
        return ", ".join(f"{name} {version}" for name, version in self.origin["versions"].items())

    @property
    def answers(self) -> list[str]:
        """The answers that a reader looks for first."""
        return report.in_short(self.series, self.compared)

    def series_tables(self, series: Measured) -> list[Table]:
        """Every table of one series."""
        floor = self.limits.read_seconds(self.load.num_bytes(series.batch_size, CONTEXT))
        return self.noted(report.tables_of(series, self.compared, floor))

    def machine_tables(self) -> list[Table]:
        """What a forward costs and what the machine allows."""
        limits = report.limits_table(self.limits, self.load, self.forward_threads)
        return self.noted([report.rho_table(self.curves), limits])

    def tables(self) -> list[Table]:
        """Every table, of the series first."""
        of_series = [table for one in self.series for table in self.series_tables(one)]
        return [*of_series, *self.machine_tables()]

    def to_markdown(self) -> str:
        """Where it ran, what to doubt, the answers and every table, for a page of text."""
        head = [f"# Benchmark of {self.subject['name']}", self.place, self.versions]
        head.append(f"{self.origin['date']}, commit {self.origin['commit']}")
        head += [f"> {warning}" for warning in self.warnings]
        answers = "\n".join(f"- {answer}" for answer in self.answers)
        tables = [table.to_markdown() for table in self.tables()]
        return "\n\n".join([*head, answers, *tables]) + "\n"

    def noted(self, tables: Sequence[Table]) -> list[Table]:
        """The note in the title of every table."""
        if not self.note:
            return list(tables)
        return [Table(f"{one.title} ({self.note})", one.columns, one.lines) for one in tables]

    def to_json(self) -> dict[str, Any]:
        """Plain values; token ids are left out, hashes of them are kept."""
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
                **asdict(self.limits),
            },
            "load": asdict(self.load),
            "rho": [asdict(one) for curve in self.curves.values() for one in curve],
            "answers": self.answers,
            "comparisons": [asdict(one) for one in self.compared],
            "series": [series_json(one) for one in self.series],
        }


def series_json(series: Measured) -> dict[str, Any]:
    """Figures of every peer, over the families and on natural text, and every sample."""
    parts = {
        "families": [one for one in series.samples if one.family != NATURAL],
        "natural": [one for one in series.samples if one.family == NATURAL],
    }
    peers = [
        {
            "peer": peer,
            "threads": series.threads[peer],
            "peak_bytes": series.peak_bytes.get(peer),
            "first_seconds": series.first_seconds.get(peer),
            "tokens_per_forward_counts": counts_of(parts["families"], peer),
            **{
                part: asdict(found) if (found := figures_of(samples, peer)) else None
                for part, samples in parts.items()
            },
        }
        for peer in series.peers
    ]
    return {
        "batch_size": series.batch_size,
        "first_length": series.first_length,
        "peers": peers,
        "left_out": list(series.left_out),
        "samples": [sample_json(one) for one in series.samples],
        "tuning": [sample_json(one) for one in series.tuning],
    }


def sample_json(one: Sample) -> dict[str, Any]:
    """What was timed, without tokens and moments."""
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
