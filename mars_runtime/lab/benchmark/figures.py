"""Figures of a measured series: of each peer, and of peers compared, with intervals."""

from __future__ import annotations

import statistics as plain
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mars_runtime.lab.benchmark import plan
from mars_runtime.lab.benchmark.paired import Sample, agreement, fastest, fingerprint, ratio
from mars_runtime.statistics import Estimate, Spread, spread
from mars_runtime.tasks import NATURAL


@dataclass(frozen=True, slots=True)
class SeriesSamples:
    """The samples of a series.

    threads: the best number for each peer. left_out: a sentence for each peer that cannot run here.
    """

    batch_size: int
    samples: tuple[Sample, ...]
    threads: Mapping[str, int]
    left_out: tuple[str, ...] = ()

    @property
    def peers(self) -> list[str]:
        return list(dict.fromkeys(one.peer for one in self.samples))

    @property
    def families(self) -> list[str]:
        """All families in order, natural text included."""
        return list(dict.fromkeys(one.family for one in self.samples))

    @property
    def tasks(self) -> list[str]:
        """The families without natural text."""
        return [family for family in self.families if family != NATURAL]

    @property
    def heading(self) -> str:
        return "One prompt at a time" if self.batch_size == 1 else f"Batches of {self.batch_size}"

    def of(self, *families: str) -> list[Sample]:
        """Return the samples of some families."""
        return [one for one in self.samples if one.family in families]


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """Figures of a peer over some questions.

    decode_rate, whole_rate: median tokens per second of a question, without and with prefill.
    ttft: seconds to the first tokens, over rows. tpf: mean over rows, up to EOS. effective_tpf:
    over whole batches, rows that wait or have ended included. draft_forwards: forward passes of a
    draft model per forward pass of the rows. forward_seconds: median time of a forward pass after
    the first; None if there is none. output_id: a hash of the tokens of the first round.
    is_repeatable: whether later rounds gave the same tokens.
    """

    peer: str
    num_rows: int
    num_tokens: int
    decode_rate: float | None
    whole_rate: float
    ttft: Spread | None
    tpf: float
    effective_tpf: float
    draft_forwards: float
    forward_seconds: float | None
    output_id: str
    is_repeatable: bool


def figures_of(samples: Sequence[Sample], peers: Sequence[str]) -> dict[str, PeerFigures]:
    """Return the figures of those ``peers`` that have samples."""
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
        tpf=plain.mean(row.tpf for row in rows),
        effective_tpf=plain.mean(answer.effective_tpf() or 0.0 for answer in answers),
        draft_forwards=sum(row.num_draft_forwards for row in rows)
        / sum(len(row.chunks) for row in rows),
        forward_seconds=plain.median(forwards) if forwards else None,
        output_id=fingerprint([row.tokens for key in sorted(first) for row in first[key].rows]),
        is_repeatable=len(outputs) == len({question for question, _ in outputs}),
    )


def counts_of(samples: Sequence[Sample], peer: str) -> dict[int, int]:
    """Return how many forward passes of a row accepted how many tokens: the histogram that a shape
    with random weights can be forced to (``--shape``)."""
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
    """The ratio of tokens per second to a baseline, without prefill except for ``whole``.

    overall: families have equal weight, natural text is left out. by_family: natural text included.
    eta: speedup over tokens saved, for methods of this runtime. agreement: rows with equal tokens.
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


def compare(measured: SeriesSamples, peer: str, baseline: str) -> Compared:
    """Compare two peers. Only methods of this runtime compared with its AR have an eta."""
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


def compare_all(measured: SeriesSamples, cursor: str | None) -> list[Compared]:
    """Return every comparison that ``plan`` lists for the peers that ran.

    cursor: the method that is also decoded with the block cache and without a cache.
    """
    blocks = [peer for peer in measured.peers if peer.startswith(plan.BLOCK_CACHE)]
    best_block = fastest(measured.of(*measured.tasks) or measured.samples, blocks)
    pairs = plan.comparisons(measured.peers, best_block, cursor)
    return [compare(measured, *pair) for pair in pairs]
