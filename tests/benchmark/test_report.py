"""Comparisons, their tables, and what is said of figures that cannot be right."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_answers import peer, samples_of

from mars_runtime.lab.benchmark import report
from mars_runtime.lab.benchmark.forward import Rho, rho_curve
from mars_runtime.lab.benchmark.peers import methods
from mars_runtime.lab.benchmark.report import Findings, compare_all
from mars_runtime.runs.statistics import Estimate
from mars_runtime.system.provenance import Quiet

OURS = methods(8)
AR, _, LOSSLESS, LOOKUP, MARS = OURS
SAMPLES = samples_of(
    peer(AR, 1.0),
    peer(LOSSLESS, 0.5, per_forward=2, tokens=(9, 9, 9, 9)),
    peer(MARS, 0.5, per_forward=2),
    peer("llama.cpp", 2.0),
)
WAYS = {name: OURS[name] for name in (AR, LOSSLESS, MARS)}


def curve(*rhos: float) -> list[Rho]:
    return [Rho(1, width + 1, 1.0, Estimate(rho, rho, rho)) for width, rho in enumerate(rhos)]


def test_each_method_is_compared_with_ar_and_with_each_engine():
    assert list(OURS) == [
        *("AR", "lossless τ=0.3 B=4", "lossless τ=0 B=auto groups + lookup", "AR + lookup"),
        "MARS τ=0.95 B=4",
    ]
    actual = {compared.name: compared for compared in compare_all(SAMPLES, WAYS)}
    assert list(actual) == [
        *(f"{LOSSLESS} / AR", f"{MARS} / AR"),
        *("AR / llama.cpp", f"{LOSSLESS} / llama.cpp", f"{MARS} / llama.cpp"),
    ]
    against = actual["AR / llama.cpp"]
    assert against.overall.value == pytest.approx(2.0)
    assert (against.agreement, against.eta, against.is_exact) == (1.0, None, False)
    mars = actual[f"{MARS} / AR"]
    assert mars.eta.value == pytest.approx(1.0)
    assert mars.by_family["natural"].value == pytest.approx(2.0)


def test_tables_have_every_peer_and_pair():
    table = report.speed_table(SAMPLES, dict.fromkeys([*WAYS, "llama.cpp"], 2))
    assert [line[0] for line in table.lines] == [*WAYS, "llama.cpp"]
    # Medians over questions of 1, 2, 3 and 4 s in four forwards: 0.625 s a forward.
    assert table.lines[0] == ("AR", "2", "2", "2", "625.0", "1.00", "625.00")
    table = report.comparisons_table(compare_all(SAMPLES, WAYS))
    assert table.columns[1:5] == ("average", "symbolic", "reading", "natural")
    assert table.lines[1][1:3] == ("2.00 [2.00, 2.00]",) * 2
    assert table.lines[1][-1] == "100 %"
    table = report.rho_table({1: rho_curve(1, [{1: 0.5, 3: 1.0}, {1: 0.5, 3: 1.0}])})
    assert table.columns == ("batch", "ms at Q=1", "Q=1", "Q=3")
    assert table.lines == (("1", "500.00", "1.00 [1.00, 1.00]", "2.00 [2.00, 2.00]"),)


def test_another_text_of_a_lossless_method_is_said():
    nothing: dict[str, Any] = {"origin": {}, "arguments": {}, "threads": {}}
    findings = Findings(
        **nothing,
        subject={"dtype": "bfloat16"},
        quiet=Quiet(2, 0.0, 0.0, 0.0),
        left_out=["OpenVINO GenAI failed"],
        curves={1: curve(1.0)},
        samples=SAMPLES,
        compared=compare_all(SAMPLES, WAYS),
    )
    said, left_out = findings.warnings
    assert said.startswith(f"{LOSSLESS} must emit AR's tokens, but only 0 % of its answers")
    assert left_out == "Left out: OpenVINO GenAI failed."


def test_what_tokens_per_forward_cannot_explain_is_said():
    honest = samples_of(peer("AR", 1.0), peer(MARS, 0.5, per_forward=2))
    wrong = samples_of(peer("AR", 1.0), peer(MARS, 0.4, per_forward=2))

    def doubts(samples: list, spread: float, *rhos: float) -> list[str]:
        ways = {name: OURS[name] for name in (AR, MARS)}
        return report.impossible(compare_all(samples, ways), curve(*rhos), spread)

    assert doubts(honest, 0.0, 1.0, 1.1) == []
    (said,) = doubts(wrong, 0.1, 1.0, 1.1)
    assert "the speedup is 1.25 times its tokens per forward pass" in said
    # Forwards of two tokens that cost less than those of one, or a restless clock, explain it.
    assert doubts(wrong, 0.0, 1.0, 0.8) == []
    assert doubts(wrong, 0.3, 1.0, 1.1) == []
