"""Everything that a run found: as tables and sentences, as JSON. Measures nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mars_runtime.lab.benchmark import plan
from mars_runtime.lab.benchmark.figures import (
    Compared,
    Measured,
    PeerFigures,
    best_transformers,
    counts_of,
    figures_of,
)
from mars_runtime.lab.benchmark.paired import Sample
from mars_runtime.lab.benchmark.forward import CONTEXT, ForwardWork, MachineLimits, Rho
from mars_runtime.lab.tables import NONE, Table, number, share
from mars_runtime.provenance import Quiet
from mars_runtime.statistics import Spread
from mars_runtime.tasks import NATURAL

VERSION = 3
MIB, GIGA = 2**20, 1e9


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
    work: ForwardWork
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
        found += impossible(self.compared, self.curves, self.quiet.ar_spread or 0.0)
        found += [f"Left out: {reason}." for one in self.series for reason in one.left_out]
        return list(dict.fromkeys(found))

    @property
    def origin_lines(self) -> tuple[str, str]:
        """On what and with what, then the versions of everything that was timed."""
        hardware = self.origin["hardware"]
        cores = "1 core" if hardware["cores"] == 1 else f"{hardware['cores']} cores"
        machine = ", ".join([hardware["processor"], cores, *hardware["gpus"]])
        what = ", ".join(str(self.subject[key]) for key in ("name", "device", "dtype"))
        return f"{what}; {machine}", versions_line(self.origin)

    @property
    def answers(self) -> list[str]:
        """The answers that a reader looks for first; where acceptance is imposed, of AR alone."""
        answered = [one for one in self.compared if not self.note or one.peer == plan.AR]
        return in_short(self.series, answered)

    def series_tables(self, series: Measured) -> list[Table]:
        """Every table of one series."""
        compared = [one for one in self.compared if one.batch_size == series.batch_size]
        floor = self.limits.read_seconds(self.work.num_bytes(series.batch_size, CONTEXT))
        found = [*speed_tables(series), comparisons_table(series, compared)]
        if len(series.families) > 2:
            found += [families_table(series, compared), rates_table(series)]
        survival = survival_table(series)
        return [*found, work_table(series, floor), *([survival] if survival.lines else [])]

    def tables(self) -> list[Table]:
        """Every table: of each series, then of the machine."""
        found = [table for one in self.series for table in self.series_tables(one)]
        limits = limits_table(self.limits, self.work, self.forward_threads)
        return self.noted([*found, rho_table(self.curves), limits])

    def to_markdown(self) -> str:
        """Where it ran, what to doubt, the answers and every table, for a page of text."""
        head = [f"# Benchmark of {self.subject['name']}", *self.origin_lines]
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
            "load": asdict(self.work),
            "rho": [asdict(one) for curve in self.curves.values() for one in curve],
            "answers": self.answers,
            "comparisons": [asdict(one) for one in self.compared],
            "series": [series_json(one) for one in self.series],
        }


def series_json(series: Measured) -> dict[str, Any]:
    """Figures of every peer, over the families and on natural text, and every sample."""
    families = series.of(*series.tasks)
    parts = {
        "families": figures_of(families, series.peers),
        "natural": figures_of(series.of(NATURAL), series.peers),
    }
    peers = [
        {
            "peer": peer,
            "threads": series.threads[peer],
            "first_seconds": series.first_seconds.get(peer),
            "tokens_per_forward_counts": counts_of(families, peer),
            **{part: asdict(own[peer]) if peer in own else None for part, own in parts.items()},
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


def in_short(measured: Sequence[Measured], compared: Sequence[Compared]) -> list[str]:
    """The answers that a reader looks for first, a sentence each; only what was measured."""
    found = []
    for series in measured:
        own = [one for one in compared if one.batch_size == series.batch_size]
        best = best_transformers(series)
        for one in own:
            is_other_cache = one.peer.startswith((plan.BLOCK_CACHE, plan.NO_CACHE))
            if not plan.is_ours(one.peer) or (is_other_cache and one.baseline == plan.AR):
                continue
            if one.overall is not None or one.natural is not None:
                sentence = _sentence(one, is_best=one.baseline == best)
                found.append(f"{series.heading}: {sentence}")
    return found


def _sentence(one: Compared, *, is_best: bool) -> str:
    baseline = f"{one.baseline} (transformers' fastest)" if is_best else one.baseline
    parts = []
    if one.overall is not None:
        where = "mixed batches" if plan.MIXED in one.by_family else "the families' average"
        parts.append(f"{number(one.overall)} on {where}")
    if one.least is not None and len(one.by_family) > 2:
        parts.append(f"least {number(one.least[1])} on {one.least[0].replace('_', ' ')}")
    if one.natural is not None:
        parts.append(f"{number(one.natural)} on natural text")
    return f"{one.peer} over {baseline}, times the tokens/s: {', '.join(parts)}."


def speed_tables(series: Measured) -> list[Table]:
    """Rates and waits of every peer over the families, then on natural text."""
    columns = (
        *("peer", "threads", "tokens/s", "with prefill"),
        *("TTFT ms", "TPOT ms", "chunk ms", "TPF"),
    )
    tables = []
    for where, families in (("over the families", series.tasks), ("on natural text", [NATURAL])):
        lines = [
            (
                peer,
                str(series.threads[peer]),
                f"{found.decode_rate:.0f}" if found.decode_rate else NONE,
                f"{found.whole_rate:.0f}",
                *map(_waits, (found.ttft, found.tpot, found.gap)),
                f"{found.tpf:.2f}",
            )
            for peer, found in figures_of(series.of(*families), series.peers).items()
        ]
        if lines:
            title = f"{series.heading}, {where}: medians; waits as p50 / p99"
            tables.append(Table(title, columns, tuple(lines)))
    return tables


def comparisons_table(series: Measured, compared: Sequence[Compared]) -> Table:
    """A line a comparison: average, least family, natural text, with prefill, eta, agreement."""
    columns = ("peer / baseline", "families", "least", "natural", "with prefill", "eta", "same")
    lines = [
        (
            one.name,
            number(one.overall),
            f"{number(one.least[1])} · {one.least[0]}" if one.least else NONE,
            number(one.natural),
            number(one.whole),
            number(one.eta),
            share(one.agreement),
        )
        for one in compared
    ]
    title = f"{series.heading}: how many times the tokens/s, with 95 % intervals"
    return Table(title, columns, tuple(lines))


def families_table(series: Measured, compared: Sequence[Compared]) -> Table:
    """One line per comparison, one column per family."""
    families = list(dict.fromkeys(family for one in compared for family in one.by_family))
    lines = [
        (one.name, *(number(one.by_family.get(family)) for family in families)) for one in compared
    ]
    title = f"{series.heading}: how many times the tokens/s by family (prefill apart)"
    return Table(title, ("peer / baseline", *families), tuple(lines))


def work_table(series: Measured, floor_seconds: float) -> Table:
    """What forwards cost beside what the machine allows, forwards of a draft model for each of
    them, and which output came."""
    columns = (
        *("peer", "ms per forward", "share of bound", "tokens per forward"),
        *("output", "repeats", "draft forwards"),
    )
    lines = [
        (
            peer,
            f"{seconds * 1000:.2f}" if (seconds := found.forward_seconds) else NONE,
            f"{floor_seconds / seconds:.0%}" if seconds else NONE,
            f"{found.effective_tpf:.2f}",
            found.output_id[:8],
            "same" if found.is_repeatable else "differ",
            f"{found.draft_forwards:.2f}" if found.draft_forwards else NONE,
        )
        for peer, found in figures_of(series.samples, series.peers).items()
    ]
    title = f"{series.heading}: forwards and output"
    return Table(title, columns, tuple(lines))


def survival_table(series: Measured) -> Table:
    """Acceptance by position: of the forwards that proposed so far, the share that gave a token."""
    figures = figures_of(series.samples, list(filter(plan.is_ours, series.peers)))
    found = {peer: one.survival for peer, one in figures.items() if len(one.survival) > 1}
    widest = max(map(len, found.values()), default=0)
    lines = [
        (peer, *(f"{value:.0%}" for value in values), *[NONE] * (widest - len(values)))
        for peer, values in found.items()
    ]
    title = f"{series.heading}: acceptance by position (lossless: of drafts verified)"
    return Table(title, ("peer", *map(str, range(1, widest + 1))), tuple(lines))


def rates_table(series: Measured) -> Table:
    """A line a peer: tokens/s and tokens per forward of each family, and the time to the first
    token where it was taken by itself."""
    own = [figures_of(series.of(family), series.peers) for family in series.families]
    columns = ["peer", *series.families]
    lines = [[peer, *(_rate(found.get(peer)) for found in own)] for peer in series.peers]
    if series.first_seconds:
        columns.append(f"ms to the first token of a prompt of {series.first_length}")
        for line in lines:
            line.append(f"{series.first_seconds[line[0]] * 1000:.0f}")
    title = f"{series.heading}: tokens/s by family, prefill apart · tokens per forward"
    return Table(title, tuple(columns), tuple(map(tuple, lines)))


def _rate(found: PeerFigures | None) -> str:
    if found is None:
        return NONE
    rate = f"{found.decode_rate:.0f}" if found.decode_rate else NONE
    return f"{rate} · {found.tpf:.2f}"


def impossible(
    compared: Sequence[Compared], curves: Mapping[int, Sequence[Rho]], spread: float
) -> list[str]:
    """A sentence for each speedup that tokens per forward can't explain.

    A way can't be faster than AR by more than its tokens per forward times what its forwards may
    save: the cheapest forward on the curve over that of one token, and how far AR's repeats lie
    apart (``spread``).
    """
    found = []
    for one in compared:
        curve = curves.get(one.batch_size, ())
        cheapest = min([1.0, *(point.rho.value for point in curve)])
        most = (1 + spread) / cheapest
        if one.eta is not None and one.eta.low > most:
            found.append(
                f"{one.name} can't be right: it is {one.eta.value:.2f} times as fast as its tokens "
                f"per forward allow, and the costs of forwards explain {most:.2f} at most."
            )
    return found


def rho_table(curves: Mapping[int, Sequence[Rho]]) -> Table:
    """rho(Q) by batch size."""
    widths = [one.width for one in next(iter(curves.values()))]
    lines = [
        (str(rows), f"{curve[0].seconds * 1000:.2f}", *(f"{one.rho.value:.2f}" for one in curve))
        for rows, curve in curves.items()
    ]
    title = "rho(Q): time of a forward of Q tokens per row over that of one, acceptance included"
    columns = ("batch", "ms at Q=1", *(f"Q={width}" for width in widths))
    return Table(title, columns, tuple(lines))


def limits_table(limits: MachineLimits, work: ForwardWork, threads: int) -> Table:
    """What the machine can do, measured, and what an AR forward asks of it."""
    floor = limits.floor_seconds(work.weight_bytes, work.operations(1, 1))
    speed = limits.operations_per_second
    line = (
        str(threads),
        f"{work.weight_bytes / MIB:.1f}",
        f"{limits.bytes_per_second / GIGA:.1f}",
        NONE if speed is None else f"{speed / GIGA:.1f}",
        f"{floor * 1000:.3f}",
    )
    columns = ("threads", "weights MiB", "read GB/s", "GFLOP/s", "least ms an AR forward")
    return Table("Limits of this machine, measured at the size of the weights", columns, (line,))


def _waits(found: Spread | None) -> str:
    if found is None:
        return NONE
    return f"{found.p50 * 1000:.1f} / {found.p99 * 1000:.1f}"


def versions_line(origin: Mapping[str, Any]) -> str:
    """``torch 2.8, transformers 5.1``"""
    return ", ".join(f"{name} {version}" for name, version in origin["versions"].items())
