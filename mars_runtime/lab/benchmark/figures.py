"""The figures of one peer over some of its samples: rates, waits, tokens per forward, output.

Pure folds over samples; compares nothing (``paired.py``) and draws nothing.
"""

from __future__ import annotations

import statistics as plain
from collections.abc import Sequence
from dataclasses import dataclass

from mars_runtime import statistics
from mars_runtime.lab.benchmark.answer import fingerprint, survival
from mars_runtime.lab.benchmark.paired import Sample


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Half of the values are at or below ``p50``, 99 in 100 at or below ``p99``."""

    p50: float
    p99: float


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
    ttft: Percentiles
    tpot: Percentiles | None
    gap: Percentiles | None
    tpf: float
    effective_tpf: float
    draft_forwards: float
    forward_seconds: float | None
    survival: tuple[float, ...]
    output_id: str
    is_repeatable: bool


def figures_of(samples: Sequence[Sample], peer: str) -> PeerFigures | None:
    """The figures of ``peer``, None where it has no sample."""
    own = [one for one in samples if one.peer == peer]
    if not own:
        return None
    answers = [one.answer for one in own]
    rows = [row for answer in answers for row in answer.rows]
    rates = [rate for answer in answers if (rate := answer.rate("decode")) is not None]
    tpots = [tpot for row in rows if (tpot := row.tpot) is not None]
    forwards = [
        seconds / (answer.num_forwards - 1)
        for answer in answers
        if (seconds := answer.decode_seconds()) is not None and answer.num_forwards > 1
    ]
    return PeerFigures(
        peer=peer,
        num_rows=len(rows),
        num_tokens=sum(answer.num_tokens for answer in answers),
        decode_rate=plain.median(rates) if rates else None,
        whole_rate=plain.median(answer.num_tokens / answer.seconds for answer in answers),
        ttft=percentiles([row.ttft for row in rows]),
        tpot=percentiles(tpots) if tpots else None,
        gap=percentiles(gaps) if (gaps := [gap for row in rows for gap in row.gaps]) else None,
        tpf=plain.mean(row.tpf for row in rows),
        effective_tpf=plain.mean(answer.effective_tpf() or 0.0 for answer in answers),
        draft_forwards=sum(row.num_draft_forwards for row in rows)
        / sum(len(row.chunks) for row in rows),
        forward_seconds=plain.median(forwards) if forwards else None,
        survival=tuple(survival(rows)),
        output_id=_output_id(own, own[0].round),
        is_repeatable=_is_repeatable(own),
    )


def percentiles(values: Sequence[float]) -> Percentiles:
    """By linear interpolation between neighbours, as numpy's."""
    return Percentiles(statistics.percentile(values, 50), statistics.percentile(values, 99))


def counts_of(samples: Sequence[Sample], peer: str) -> dict[int, int]:
    """Tokens taken by a forward of a row -> how many forwards took so many: what a shape without
    real weights can be forced to (``--shape``)."""
    counts: dict[int, int] = {}
    for one in samples:
        for row in one.answer.rows if one.peer == peer else ():
            for chunk in row.chunks:
                if chunk.num_tokens:
                    counts[chunk.num_tokens] = counts.get(chunk.num_tokens, 0) + 1
    return dict(sorted(counts.items()))


def _output_id(samples: Sequence[Sample], number: int) -> str:
    answers = {one.question: one.answer for one in samples if one.round == number}
    return fingerprint([row.tokens for key in sorted(answers) for row in answers[key].rows])


def _is_repeatable(samples: Sequence[Sample]) -> bool:
    """Whether every round of a question gave the same tokens."""
    seen: dict[int, str] = {}
    return all(
        seen.setdefault(one.question, one.answer.output_id) == one.answer.output_id
        for one in samples
    )
