"""Figures of one answer, on numbers by hand."""

from __future__ import annotations

import pytest
from scripted_answers import row

from mars_runtime.lab.benchmark.answer import Answer, Chunk, Row, fingerprint, one_row, survival

# Two rows in one batch: the first takes 2 + 3, waits one forward, then 1; the second 1 + 1 + 1 + 1.
FAST = row([2, 3, 1], [1.0, 1.5, 2.5])
SLOW = row([1, 1, 1, 1], [1.0, 1.5, 2.0, 2.5])
BATCH = Answer((FAST, SLOW), 2.5, 4)


def test_a_row_waits_for_its_first_tokens_then_for_each():
    assert FAST.ttft == 1.0
    assert FAST.tpf == 2.0
    assert FAST.tpot == pytest.approx(1.5 / 4)
    assert FAST.gaps == (0.5, 1.0)
    refused_first = row([0, 2, 2], [1.0, 2.0, 4.0])
    assert refused_first.ttft == 2.0
    assert refused_first.tpot == 1.0
    assert row([3], [1.0]).tpot is None


def test_the_decode_span_begins_when_every_row_has_tokens():
    assert BATCH.first_seconds == 1.0
    assert BATCH.rate("whole") == pytest.approx(10 / 2.5)
    assert BATCH.rate("decode") == pytest.approx(7 / 1.5)
    late = Answer((row([1, 1], [1.0, 2.0]), row([1], [2.0])), 2.0, 2)
    assert late.first_seconds == 2.0
    assert late.rate("decode") is None
    assert late.decode_seconds() is None


def test_effective_tpf_counts_what_waiting_costs():
    assert BATCH.effective_tpf() == pytest.approx(10 / (4 * 2))
    assert BATCH.effective_tpf("decode") == pytest.approx(7 / (3 * 2))
    assert Answer((row([4], [1.0]),), 1.0, 1).effective_tpf("decode") is None


def test_acceptance_by_position_is_of_the_forwards_that_offered():
    chunks = (Chunk(1.0, 1, 1), Chunk(2.0, 2, 3), Chunk(3.0, 1, 3), Chunk(4.0, 3, 3))
    assert survival([Row(tuple(range(7)), chunks)]) == [1.0, 2 / 3, 1 / 3]
    assert survival([]) == []


def test_a_streamed_row_leaves_padding_out():
    found = one_row([7, 8, 9, 0, 0], [1.0, 2.0], [1, 2])
    assert found.tokens == (7, 8, 9)
    assert found.chunks == (Chunk(1.0, 1, 1), Chunk(2.0, 2, 2))
    assert one_row([7, 8], [1.0, 2.0]).tpf == 1.0


def test_hashes_tell_rows_apart():
    assert fingerprint([[1, 2], [3]]) != fingerprint([[1], [2, 3]])
    assert fingerprint([[1, 2]]) == fingerprint([(1, 2)])


def test_an_answer_without_tokens_is_refused():
    with pytest.raises(ValueError, match="tokens in every row"):
        Answer((Row((), ()),), 1.0, 1)
