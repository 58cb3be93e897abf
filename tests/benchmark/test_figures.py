"""Figures of a peer, comparisons of a series and their tables."""

from __future__ import annotations

import pytest
from scripted_answers import peer, samples_of

from mars_runtime.lab.benchmark import plan, report
from mars_runtime.lab.benchmark.figures import SeriesSamples, compare_all, counts_of, figures_of
from mars_runtime.lab.benchmark.forward import Rho
from mars_runtime.statistics import Estimate

PEERS = [
    peer(plan.GENERATE, 2.0),
    peer(plan.LOOKUP, 4.0, per_forward=2),
    peer(plan.AR, 1.0),
    peer("MARS τ=0.95 B=4", 0.5, per_forward=2),
    peer("block cache 8", 0.75, per_forward=2),
    peer("block cache 16", 0.6, per_forward=2),
    peer(plan.NO_CACHE, 3.0, per_forward=2),
]


@pytest.fixture(scope="module")
def series() -> SeriesSamples:
    samples = tuple(samples_of(*PEERS))
    names = [peer.name for peer in PEERS]
    return SeriesSamples(8, samples, dict.fromkeys(names, 1))


def test_figures_of_a_peer(series: SeriesSamples):
    natural = [sample for sample in series.samples if sample.family == "natural"]
    (figures,) = figures_of(natural, ["MARS τ=0.95 B=4", "nobody"]).values()
    assert figures.peer == "MARS τ=0.95 B=4"
    # Two tokens after 1 s, two more after 2 s.
    assert figures.tpf == 2.0
    assert (figures.whole_rate, figures.decode_rate) == (2.0, 2.0)
    assert figures.ttft.p50 == figures.ttft.p99 == 1.0
    assert figures.forward_seconds == 1.0
    assert figures.is_repeatable
    assert counts_of(natural, "MARS τ=0.95 B=4") == {2: 4}


def test_one_output_hash_for_equal_outputs(series: SeriesSamples):
    figures = figures_of(series.samples, series.peers)
    assert list(figures) == series.peers
    assert len({figure.output_id for figure in figures.values()}) == 1


def test_comparisons_name_the_best_of_their_kind(series: SeriesSamples):
    actual = compare_all(series, "MARS τ=0.95 B=4")
    names = {item.name: item for item in actual}
    assert names["AR / transformers generate"].overall.value == pytest.approx(2.0)
    against = names["MARS τ=0.95 B=4 / block cache 16"]
    assert against.overall.value == pytest.approx(1.2)
    assert names["block cache 16 / no cache"].overall.value == pytest.approx(5.0)
    mars = names["MARS τ=0.95 B=4 / AR"]
    assert mars.eta.value == pytest.approx(1.0)
    assert mars.by_family["natural"].value == pytest.approx(2.0)
    assert mars.agreement == 1.0
    assert f"{plan.LOOKUP} / {plan.AR}" in names


def test_tables_set_natural_text_apart(series: SeriesSamples):
    families, natural = report.speed_tables(series)
    assert [line[0] for line in families.lines] == series.peers
    assert "natural text" in natural.title
    assert natural.lines[2][2:4] == ("1", "1")
    table = report.comparisons_table(series, compare_all(series, None))
    assert table.columns[:5] == ("peer / baseline", "average", "symbolic", "reading", "natural")
    assert table.lines[0][1:3] == ("2.00 [2.00, 2.00]",) * 2
    rates = report.rates_table(series)
    assert rates.columns == ("peer", "symbolic", "reading", "natural")
    assert {line[0]: line[3] for line in rates.lines}["MARS τ=0.95 B=4"] == "2 · 2.00"
    work = report.work_table(series, read_seconds=0.25)
    # Medians over questions of 1, 2, 3 and 4 s in four forwards: 0.625 s a forward.
    assert work.lines[2][:3] == ("AR", "625.00", "40%")


def curve(*rhos: float) -> list[Rho]:
    return [Rho(8, width + 1, 1.0, Estimate(rho, rho, rho)) for width, rho in enumerate(rhos)]


def test_what_tokens_per_forward_cannot_explain_is_said():
    honest = samples_of(peer("AR", 1.0), peer("MARS", 0.5, per_forward=2))
    wrong = samples_of(peer("AR", 1.0), peer("MARS", 0.4, per_forward=2))
    names = ["AR", "MARS"]

    def doubts(samples: list, spread: float, *rhos: float) -> list[str]:
        measured = SeriesSamples(8, tuple(samples), dict.fromkeys(names, 1))
        return report.impossible(compare_all(measured, None), {8: curve(*rhos)}, spread)

    assert doubts(honest, 0.0, 1.0, 1.1) == []
    (said,) = doubts(wrong, 0.1, 1.0, 1.1)
    assert "the speedup is 1.25 times its tokens per forward pass" in said
    # Forwards of two tokens that cost less than those of one, or a restless clock, explain it.
    assert doubts(wrong, 0.0, 1.0, 0.8) == []
    assert doubts(wrong, 0.3, 1.0, 1.1) == []
