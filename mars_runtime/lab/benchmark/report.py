"""Report the result of a benchmark as tables and as JSON."""

from __future__ import annotations

import hashlib
import statistics as plain
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mars_runtime.lab.benchmark.forward import Rho
from mars_runtime.lab.benchmark.paired import Sample, agreement, ratio
from mars_runtime.lab.benchmark.peers import AR
from mars_runtime.lab.tables import NONE, Table, number, share
from mars_runtime.runs.statistics import Estimate
from mars_runtime.settings import DecodeSettings
from mars_runtime.system.provenance import Quiet
from mars_runtime.tasks import NATURAL

VERSION = 5


@dataclass(frozen=True, slots=True)
class Compared:
    """Ratios of tokens per second. Families have equal weight; natural text counts only in
    ``by_family``, unless it is the only one. eta: None for other engines."""

    peer: str
    baseline: str
    overall: Estimate | None
    whole: Estimate | None
    by_family: dict[str, Estimate | None]
    eta: Estimate | None
    agreement: float | None
    is_exact: bool

    @property
    def name(self) -> str:
        return f"{self.peer} / {self.baseline}"


def compare_all(samples: Sequence[Sample], ours: Mapping[str, DecodeSettings]) -> list[Compared]:
    others = [name for name in _names(samples) if name not in ours]
    pairs = [(name, AR) for name in ours if name != AR]
    pairs += [(name, other) for other in others for name in ours]
    families = list(dict.fromkeys(sample.family for sample in samples))
    averaged = [family for family in families if family != NATURAL] or families
    return [
        Compared(
            peer=peer,
            baseline=base,
            overall=ratio(samples, peer, base, averaged, "decode"),
            whole=ratio(samples, peer, base, averaged, "whole"),
            by_family={
                family: ratio(samples, peer, base, [family], "decode") for family in families
            },
            eta=ratio(samples, peer, base, averaged, "decode", "eta") if base == AR else None,
            agreement=agreement(samples, peer, base),
            is_exact=base == AR and ours[peer].lossless,
        )
        for peer, base in pairs
    ]


@dataclass(frozen=True, slots=True)
class Findings:
    """curves: batch size -> rho by width."""

    origin: Mapping[str, Any]
    subject: Mapping[str, Any]
    arguments: Mapping[str, Any]
    quiet: Quiet
    threads: Mapping[str, int]
    left_out: Sequence[str]
    curves: Mapping[int, Sequence[Rho]]
    samples: Sequence[Sample]
    compared: Sequence[Compared]

    @property
    def warnings(self) -> list[str]:
        warnings = []
        if doubts := self.quiet.doubts:
            warnings.append(
                f"The machine was too busy for reliable figures: {'; '.join(doubts)}. "
                "Measure again when it is idle."
            )
        for compared in self.compared:
            if compared.is_exact and compared.agreement not in (None, 1.0):
                warnings.append(
                    f"{compared.peer} must emit AR's tokens, but only {share(compared.agreement)} "
                    f"of its answers are AR's in {self.subject['dtype']}."
                )
        warnings += impossible(self.compared, self.curves[1], self.quiet.ar_spread or 0.0)
        return warnings + [f"Left out: {reason}." for reason in self.left_out]

    @property
    def origin_lines(self) -> tuple[str, str]:
        hardware = self.origin["hardware"]
        cores = "1 core" if hardware["cores"] == 1 else f"{hardware['cores']} cores"
        machine = ", ".join([hardware["processor"], cores, *hardware["gpus"]])
        subject = ", ".join(str(self.subject[key]) for key in ("name", "device", "dtype"))
        versions = ", ".join(f"{name} {v}" for name, v in self.origin["versions"].items())
        return f"{subject}; {machine}", versions

    def tables(self) -> list[Table]:
        return [
            speed_table(self.samples, self.threads),
            comparisons_table(self.compared),
            rho_table(self.curves),
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "benchmark",
            "version": VERSION,
            **self.origin,
            "subject": dict(self.subject),
            "asked": dict(self.arguments),
            "machine": {**asdict(self.quiet), "doubts": self.quiet.doubts},
            "threads": dict(self.threads),
            "left_out": list(self.left_out),
            "rho": [asdict(rho) for curve in self.curves.values() for rho in curve],
            "comparisons": [asdict(compared) for compared in self.compared],
            "samples": [sample_json(sample) for sample in self.samples],
        }


def sample_json(sample: Sample) -> dict[str, Any]:
    answer = sample.answer
    ids = ",".join(map(str, answer.tokens))
    return {
        "peer": sample.peer,
        "family": sample.family,
        "question": sample.question,
        "round": sample.round,
        "seconds": round(answer.seconds, 7),
        "first_seconds": round(answer.first_seconds, 7),
        "num_tokens": len(answer.tokens),
        "num_forwards": len(answer.chunks),
        "output": hashlib.sha256(ids.encode()).hexdigest()[:8],
    }


def speed_table(samples: Sequence[Sample], threads: Mapping[str, int]) -> Table:
    lines = []
    for peer in _names(samples):
        answers = [sample.answer for sample in samples if sample.peer == peer]
        rates = [rate for answer in answers if (rate := answer.rate("decode")) is not None]
        passes = [
            1000 * (answer.seconds - answer.first_seconds) / len(answer.later)
            for answer in answers
            if answer.later
        ]
        tpf = sum(len(a.tokens) for a in answers) / sum(len(a.chunks) for a in answers)
        lines.append(
            (
                peer,
                str(threads[peer]),
                f"{plain.median(rates):.0f}" if rates else NONE,
                f"{plain.median(len(answer.tokens) / answer.seconds for answer in answers):.0f}",
                f"{1000 * plain.median(answer.first_seconds for answer in answers):.1f}",
                f"{tpf:.2f}",
                f"{plain.median(passes):.2f}" if passes else NONE,
            )
        )
    columns = ("peer", "threads", "tokens/s", "with prefill", "TTFT ms", "TPF", "ms per pass")
    title = "One prompt at a time: medians over answers; TPF over all of them together"
    return Table(title, columns, tuple(lines))


def comparisons_table(compared: Sequence[Compared]) -> Table:
    families = list(compared[0].by_family)
    lines = tuple(
        (
            comparison.name,
            number(comparison.overall),
            *(number(comparison.by_family[family]) for family in families),
            number(comparison.whole),
            number(comparison.eta),
            share(comparison.agreement),
        )
        for comparison in compared
    )
    columns = ("peer / baseline", "average", *families, "with prefill", "eta", "same text")
    return Table("Ratio of tokens/s without prefill, with 95 % intervals", columns, lines)


def rho_table(curves: Mapping[int, Sequence[Rho]]) -> Table:
    widths = [point.width for point in next(iter(curves.values()))]
    lines = tuple(
        (str(rows), f"{curve[0].seconds * 1000:.2f}", *(number(point.rho) for point in curve))
        for rows, curve in curves.items()
    )
    title = "rho(Q): time of a forward pass of Q tokens per row, relative to Q = 1"
    return Table(title, ("batch", "ms at Q=1", *(f"Q={width}" for width in widths)), lines)


def impossible(compared: Sequence[Compared], curve: Sequence[Rho], ar_spread: float) -> list[str]:
    """A speedup over AR can exceed the tokens per forward pass only by 1 + ``ar_spread``, the
    variation between AR runs, divided by the smallest rho."""
    limit = (1 + ar_spread) / min([1.0, *(point.rho.value for point in curve)])
    return [
        f"{comparison.name} cannot be right: the speedup is {comparison.eta.value:.2f} times its "
        f"tokens per forward pass, but at most {limit:.2f} times is possible."
        for comparison in compared
        if comparison.eta is not None and comparison.eta.low > limit
    ]


def _names(samples: Sequence[Sample]) -> list[str]:
    return list(dict.fromkeys(sample.peer for sample in samples))
