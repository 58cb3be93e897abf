"""Compute the figures of each peer in a benchmark series, and compare the peers."""

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
    """All timed answers of a benchmark series.

    threads: peer -> the number of threads with which it was fastest. left_out: for each peer that
    could not run, a sentence with the reason.
    """

    batch_size: int
    samples: tuple[Sample, ...]
    threads: Mapping[str, int]
    left_out: tuple[str, ...] = ()

    @property
    def peers(self) -> list[str]:
        return list(dict.fromkeys(sample.peer for sample in self.samples))

    @property
    def families(self) -> list[str]:
        """All families in the order of their first sample, natural text included."""
        return list(dict.fromkeys(sample.family for sample in self.samples))

    @property
    def tasks(self) -> list[str]:
        """All families except natural text."""
        return [family for family in self.families if family != NATURAL]

    @property
    def heading(self) -> str:
        return "One prompt at a time" if self.batch_size == 1 else f"Batches of {self.batch_size}"

    def of(self, *families: str) -> list[Sample]:
        return [sample for sample in self.samples if sample.family in families]


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """The speed and the output of a peer, computed from a set of samples.

    - decode_rate, whole_rate: tokens per second without and with prefill; median over answers.
    - ttft: seconds from the start to the first tokens of a row.
    - tpf: mean tokens per forward pass of a row, up to EOS.
    - effective_tpf: tokens per forward pass of a batch, divided by its number of rows. Rows that
      wait or have ended lower this figure.
    - draft_forwards: forward passes of a draft model per forward pass of a row.
    - forward_seconds: median time of a forward pass, without the first pass of an answer; None if
      no answer has a second pass.
    - output_id: hash of the tokens of the first round.
    - is_repeatable: whether every round gave the same tokens.
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
    """Return the figures of each of ``peers`` that has samples, by name of the peer."""
    by_peer = {peer: [sample for sample in samples if sample.peer == peer] for peer in peers}
    return {peer: _figures(peer, own) for peer, own in by_peer.items() if own}


def _figures(peer: str, samples: Sequence[Sample]) -> PeerFigures:
    answers = [sample.answer for sample in samples]
    rows = [row for answer in answers for row in answer.rows]
    rates = [rate for answer in answers if (rate := answer.rate("decode")) is not None]
    forwards = [
        seconds / (answer.num_forwards - 1)
        for answer in answers
        if (seconds := answer.decode_seconds()) is not None and answer.num_forwards > 1
    ]
    first_round = samples[0].round
    first = {sample.question: sample.answer for sample in samples if sample.round == first_round}
    outputs = {(sample.question, sample.answer.output_id) for sample in samples}
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
    """Return the histogram of a peer: tokens accepted in a forward pass -> number of passes.

    A benchmark with ``--shape`` can impose this histogram on a model with random weights.
    """
    chunks = (
        chunk.num_tokens
        for sample in samples
        if sample.peer == peer
        for row in sample.answer.rows
        for chunk in row.chunks
    )
    return dict(sorted(Counter(filter(None, chunks)).items()))


@dataclass(frozen=True, slots=True)
class Compared:
    """A peer compared with a baseline, as ratios of tokens per second.

    - overall: ratio without prefill. Families have equal weight; natural text is excluded.
    - whole: like ``overall``, but with prefill.
    - by_family: ratio without prefill for each family, natural text included.
    - eta: ratio of tokens per second divided by the ratio of tokens per forward pass; only for
      methods of this runtime that are compared with AR.
    - agreement: share of rows for which both peers emitted the same tokens.
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
    """Compare a peer with a baseline. Only a method of this runtime compared with AR has an eta."""
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
    """Return the comparisons that ``plan.comparisons`` lists for the peers that ran.

    cursor: name of the method that was also measured with the block cache and without a cache.
    """
    blocks = [peer for peer in measured.peers if peer.startswith(plan.BLOCK_CACHE)]
    best_block = fastest(measured.of(*measured.tasks) or measured.samples, blocks)
    pairs = plan.comparisons(measured.peers, best_block, cursor)
    return [compare(measured, *pair) for pair in pairs]
