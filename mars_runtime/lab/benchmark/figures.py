"""Figures of a measured series: of each peer, and of peers compared, with intervals.

Pure folds over samples; measures and draws nothing.
"""

from __future__ import annotations

import statistics as plain
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mars_runtime.lab.benchmark import plan
from mars_runtime.lab.benchmark.paired import (
    Sample,
    agreement,
    fastest,
    fingerprint,
    ratio,
    survival,
)
from mars_runtime.statistics import Estimate, Spread, spread
from mars_runtime.tasks import NATURAL


@dataclass(frozen=True, slots=True)
class Measured:
    """What a series gave. threads: each peer's best. first_seconds: medians, to the first token of
    a prompt of ``first_length`` tokens.

    tuning: the samples by which the threads were chosen, in no figure. left_out: a sentence for
    each peer that could not run here.
    """

    batch_size: int
    samples: tuple[Sample, ...]
    threads: Mapping[str, int]
    tuning: tuple[Sample, ...] = ()
    left_out: tuple[str, ...] = ()
    first_length: int = 0
    first_seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def peers(self) -> list[str]:
        return list(dict.fromkeys(one.peer for one in self.samples))

    @property
    def families(self) -> list[str]:
        """In order, natural text among them."""
        return list(dict.fromkeys(one.family for one in self.samples))

    @property
    def heading(self) -> str:
        """How the series is called."""
        return "One prompt at a time" if self.batch_size == 1 else f"Batches of {self.batch_size}"

    def of(self, *families: str) -> list[Sample]:
        """The samples of some families."""
        return [one for one in self.samples if one.family in families]

    @property
    def tasks(self) -> list[str]:
        """The families but natural text."""
        return [family for family in self.families if family != NATURAL]


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """One peer over some questions.

    decode_rate, whole_rate: median tokens/s of a question, prefill apart or with it.
    ttft, tpot, gap: seconds over rows: to the first tokens, a token after them, from chunk to chunk
        of a row; None where nothing came after the first tokens.
    tpf: mean over rows, to EOS. effective_tpf: over whole batches, rows that wait or ended too.
    draft_forwards: of a draft model, for each forward of the rows.
    forward_seconds: median time of a forward after the first; None as above.
    output_id: of all tokens of the first round. is_repeatable: later rounds gave the same.
    """

    peer: str
    num_rows: int
    num_tokens: int
    decode_rate: float | None
    whole_rate: float
    ttft: Spread | None
    tpot: Spread | None
    gap: Spread | None
    tpf: float
    effective_tpf: float
    draft_forwards: float
    forward_seconds: float | None
    survival: tuple[float, ...]
    output_id: str
    is_repeatable: bool


def figures_of(samples: Sequence[Sample], peers: Sequence[str]) -> dict[str, PeerFigures]:
    """The figures of those ``peers`` that have samples."""
    own = {peer: [one for one in samples if one.peer == peer] for peer in peers}
    return {peer: _figures(peer, found) for peer, found in own.items() if found}


def _figures(peer: str, own: Sequence[Sample]) -> PeerFigures:
    answers = [one.answer for one in own]
    rows = [row for answer in answers for row in answer.rows]
    rates = [rate for answer in answers if (rate := answer.rate("decode")) is not None]
    forwards = [
        seconds / (answer.num_forwards - 1)
        for answer in answers
        if (seconds := answer.decode_seconds()) is not None and answer.num_forwards > 1
    ]
    first = {one.question: one.answer for one in own if one.round == own[0].round}
    outputs = {(one.question, one.answer.output_id) for one in own}
    return PeerFigures(
        peer=peer,
        num_rows=len(rows),
        num_tokens=sum(answer.num_tokens for answer in answers),
        decode_rate=plain.median(rates) if rates else None,
        whole_rate=plain.median(answer.num_tokens / answer.seconds for answer in answers),
        ttft=spread(row.ttft for row in rows),
        tpot=spread(row.tpot for row in rows),
        gap=spread(gap for row in rows for gap in row.gaps),
        tpf=plain.mean(row.tpf for row in rows),
        effective_tpf=plain.mean(answer.effective_tpf() or 0.0 for answer in answers),
        draft_forwards=sum(row.num_draft_forwards for row in rows)
        / sum(len(row.chunks) for row in rows),
        forward_seconds=plain.median(forwards) if forwards else None,
        survival=tuple(survival(rows)),
        output_id=fingerprint([row.tokens for key in sorted(first) for row in first[key].rows]),
        is_repeatable=len(outputs) == len({question for question, _ in outputs}),
    )


def counts_of(samples: Sequence[Sample], peer: str) -> dict[int, int]:
    """Tokens taken by a forward of a row -> how many forwards took so many: what a shape without
    real weights can be forced to (``--shape``)."""
    chunks = (
        chunk.num_tokens
        for one in samples
        if one.peer == peer
        for row in one.answer.rows
        for chunk in row.chunks
    )
    return dict(sorted(Counter(filter(None, chunks)).items()))


@dataclass(frozen=True, slots=True)
class Compared:
    """How many times the tokens/s of the baseline, prefill apart unless it says ``whole``.

    overall: families count alike, natural text left out. by_family: each, natural text too.
    eta: speedup over tokens saved, for this runtime's ways. agreement: rows with the same tokens.
    """

    batch_size: int
    peer: str
    baseline: str
    overall: Estimate | None
    whole: Estimate | None
    by_family: dict[str, Estimate | None]
    eta: Estimate | None
    agreement: float | None

    @property
    def name(self) -> str:
        return f"{self.peer} / {self.baseline}"

    @property
    def natural(self) -> Estimate | None:
        return self.by_family.get(NATURAL)

    @property
    def least(self) -> tuple[str, Estimate] | None:
        """The family with the smallest ratio."""
        known = [
            (family, found)
            for family, found in self.by_family.items()
            if found is not None and family != NATURAL
        ]
        return min(known, key=lambda pair: pair[1].value) if known else None


def compare(measured: Measured, peer: str, baseline: str) -> Compared:
    """One comparison, over all families of the series, natural text apart. eta is asked of this
    runtime's ways against its AR."""
    samples, families = measured.samples, measured.tasks
    has_eta = baseline == plan.AR and plan.is_ours(peer)
    return Compared(
        batch_size=measured.batch_size,
        peer=peer,
        baseline=baseline,
        overall=ratio(samples, peer, baseline, families, "decode"),
        whole=ratio(samples, peer, baseline, families, "whole"),
        by_family={
            family: ratio(samples, peer, baseline, [family], "decode")
            for family in measured.families
        },
        eta=ratio(samples, peer, baseline, families, "decode", "eta") if has_eta else None,
        agreement=agreement(samples, peer, baseline),
    )


def compare_all(measured: Measured, cursor: str | None) -> list[Compared]:
    """Every comparison that ``plan`` makes of the peers that ran. ``cursor`` is the way that block
    cache and no cache decode too."""
    wanted = plan.comparisons(measured.peers, best_block(measured), cursor)
    return [compare(measured, *pair) for pair in wanted]


def best_block(measured: Measured) -> str | None:
    """The size of the block cache with the most tokens per second."""
    return _best(measured, [one for one in measured.peers if one.startswith(plan.BLOCK_CACHE)])


def best_transformers(measured: Measured) -> str | None:
    """transformers' fastest way of those that ran."""
    return _best(measured, plan.TRANSFORMERS)


def _best(measured: Measured, peers: Sequence[str]) -> str | None:
    """Of natural text only where there is nothing else."""
    return fastest(measured.of(*measured.tasks) or measured.samples, peers)
