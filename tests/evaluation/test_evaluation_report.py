"""Summaries and averages on outcomes written by hand."""

from __future__ import annotations

import pytest

from mars_runtime.lab.evaluation import tables
from mars_runtime.lab.evaluation.measure import Outcome
from mars_runtime.lab.evaluation.plan import Cell
from mars_runtime.lab.evaluation.report import average, summarise
from mars_runtime.settings import DecodeSettings

AR = DecodeSettings(method="ar", tau=1.0, block_size=1)
MARS = DecodeSettings(method="mars", tau=0.95, block_size=4)


def outcome(num_tokens: int, num_forwards: int, is_right: bool | None, output: str) -> Outcome:
    return Outcome(num_tokens, num_forwards, True, is_right, output, "")


def cell(family: str, settings: DecodeSettings, checkpoint: str = "mars-tiny") -> Cell:
    return Cell(checkpoint, checkpoint, "float32", family, family, 2, settings)


RESULTS = {
    cell("symbolic", AR): (outcome(4, 4, True, "a"), outcome(6, 6, True, "b")),
    cell("reading", AR): (outcome(4, 4, False, "c"), outcome(6, 6, True, "d")),
    cell("natural", AR): (outcome(8, 8, None, "e"), outcome(8, 8, None, "f")),
    cell("symbolic", MARS): (outcome(4, 2, True, "a"), outcome(6, 2, False, "x")),
    cell("reading", MARS): (outcome(4, 1, False, "c"), outcome(6, 6, True, "d")),
    cell("natural", MARS): (outcome(8, 8, None, "e"), outcome(8, 4, None, "f")),
}


def test_a_summary_holds_row_mean_and_pooled_tpf():
    found = {one.cell: one for one in summarise(RESULTS)}
    one = found[cell("symbolic", MARS)]
    assert one.tpf.value == pytest.approx((2.0 + 3.0) / 2)
    assert one.tpf_pooled.value == pytest.approx(10 / 4)
    assert one.accuracy is not None
    assert one.accuracy.value == 0.5
    assert one.agreement == 0.5
    assert (one.num_tokens, one.num_forwards, one.ended) == (10, 4, 1.0)


def test_natural_text_has_tpf_but_no_accuracy_and_stays_out_of_averages():
    natural = [one for one in summarise(RESULTS) if one.cell.family == "natural"]
    assert [one.accuracy for one in natural] == [None, None]
    assert natural[1].tpf.value == pytest.approx(1.5)
    assert all("natural" not in one.families for one in average(RESULTS))


def test_averages_count_families_alike_and_compare_with_ar_prompt_by_prompt():
    ar, mars = average(RESULTS)
    assert ar.accuracy.value == pytest.approx(0.75)
    assert ar.accuracy_change is None
    assert mars.accuracy.value == pytest.approx(0.5)
    assert mars.accuracy_change is not None
    assert mars.accuracy_change.value == pytest.approx(-0.25)
    assert mars.tpf.value == pytest.approx(((2 + 3) / 2 + (4 + 1) / 2) / 2)
    assert mars.agreement == pytest.approx(0.75)
    assert ar.agreement == 1.0


def test_another_checkpoint_is_never_the_measure():
    results = {cell("reading", MARS, "other"): RESULTS[cell("reading", MARS)], **RESULTS}
    other = next(one for one in average(results) if one.checkpoint == "other")
    assert other.accuracy_change is None
    assert other.agreement is None


def test_tables_say_the_same_in_words():
    table = tables.averages_table(average(RESULTS), summarise(RESULTS))
    assert table.lines[1][0] == "mars-tiny · MARS τ=0.95 B=4"
    assert table.lines[1][1].startswith("50.0 [")
    assert table.lines[1][2].startswith("-25.0 [")
    assert table.lines[1][4] == "75.0 %"
    assert table.lines[1][5].startswith("1.50 [")
    families = tables.families_table(summarise(RESULTS))
    assert families.columns == ("way", "symbolic", "reading", "natural")
    assert families.lines[1] == (
        "mars-tiny · MARS τ=0.95 B=4",
        "50 % · 2.50",
        "50 % · 2.50",
        "1.50",
    )


def test_markdown_has_a_line_for_each_way():
    markdown = tables.averages_table(average(RESULTS), summarise(RESULTS)).to_markdown()
    lines = markdown.splitlines()
    assert lines[0].startswith("**")
    assert lines[3] == "| :-- | --: | --: | --: | --: | --: |"
    assert len(lines) == 4 + 2


def test_details_have_every_cell():
    assert len(tables.details_table(summarise(RESULTS)).lines) == len(RESULTS)


@pytest.mark.parametrize(
    ("given", "said"), [(None, "–"), (1.0, "100 %"), (0.9996, "100.0 %"), (0.5, "50.0 %")]
)
def test_only_all_is_a_round_hundred(given: float | None, said: str):
    assert tables.share(given) == said
