"""The panel "Against AR" as a visitor uses it: meter, differences, texts aligned, sentences."""

from __future__ import annotations

import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright
from panel_browser import VIEW, all_texts, go_to, open_at, put_scene, rows_of, stream
from race_browser import MARS

from mars_runtime import folds

pytestmark = needs_browser


def test_the_meter_counts_what_the_next_forward_said(still: playwright.Page) -> None:
    page = still
    put_scene(page, "prose")
    panel = open_at(page, "against-ar")
    rows = rows_of(race_scenes.PROSE)
    mine = [token for row in rows for token in row.accepted]
    checks = [
        (row.start - len(row.checks) + i, token)
        for row in rows
        for i, (token, _) in enumerate(row.checks)
    ]
    wrong = [(place, token) for place, token in checks if mine[place] != token]
    known = len(rows) + len(checks)
    share = 100 * (known - len(wrong)) / known
    head = page.inner_text(f"{panel} .rv-ag-head")
    assert head.startswith(f"{share:.1f} % of {known} judged tokens")
    detail = page.inner_text(f"{panel} .rv-ag-detail")
    assert f"{len(rows)} AR's own" in detail
    assert f"{len(checks) - len(wrong)} of {len(checks)} others agree" in detail
    items = all_texts(page, f"{panel} .rv-ag-where")
    assert items == [f"token {place + 1}" for place, _ in wrong[:8]]
    page.click(f"{panel} .rv-ag-list button >> nth=2")
    place = wrong[2][0]
    step = next(i for i, row in enumerate(rows) if place < row.start + len(row.accepted))
    assert page.evaluate(f"{VIEW}.selected.step") == step
    assert page.locator(f"{MARS} .rv-c.rv-chosen").count() == 1
    page.keyboard.press("Escape")
    go_to(page, 5)
    done = [check for row in rows[:6] for check in row.checks]
    assert f"of {6 + len(done)} judged tokens" in page.inner_text(f"{panel} .rv-ag-head")


def test_both_texts_are_aligned_around_the_place_where_they_part(still: playwright.Page) -> None:
    page = still
    put_scene(page, "prose")
    panel = open_at(page, "against-ar")
    place = race_scenes.PROSE.change[0]
    page.wait_for_selector(f"{panel} .rv-df-first")
    assert f"First difference at token {place + 1}" in page.inner_text(
        f"{panel} .rv-ag-right h4 >> nth=0"
    )
    assert all_texts(page, f"{panel} .rv-ag-place .rv-mark")[0] == "␣deep"
    total = folds.num_tokens(samples.run(race_scenes.PROSE).events)
    summary = page.inner_text(f"{panel} .rv-df h4")
    assert summary == f"Aligned: {total - 1} tokens in both, 1 only in MARS, 1 only in AR"
    assert all_texts(page, f"{panel} .rv-df-first") == ["MARS deep"]
    assert page.locator(f"{panel} .rv-df-second").count() == 1
    folded = page.locator(f"{panel} .rv-df-fold")
    before = folded.count()
    folded.first.click()
    assert folded.count() == before - 1
    assert page.inner_text(f"{panel} .rv-df-text").startswith("Once upon a time")


def test_lossless_is_equal_by_construction_and_shows_corrections(still: playwright.Page) -> None:
    page = still
    put_scene(page, "losslessdone")
    panel = open_at(page, "against-ar")
    assert "by construction" in page.inner_text(f"{panel} .rv-ag-head")
    assert page.locator(f"{panel} .rv-ag-bar").is_hidden()
    assert "Where AR corrected a draft" in page.inner_text(f"{panel} .rv-ag-left h4")
    assert page.locator(f"{panel} .rv-ag-list li").count() >= 1
    assert "Same text" in page.inner_text(f"{panel} .rv-ag-right h4 >> nth=0")
    page.locator(f"{panel} .rv-df").wait_for(state="hidden")  # drawn after the rest


def test_one_sentence_where_there_is_nothing_to_compare(still: playwright.Page) -> None:
    page = still
    put_scene(page, "plainar")
    panel = open_at(page, "against-ar")
    assert "plain AR itself" in page.inner_text(f"{panel} .rv-ag-head")
    put_scene(page, "uncheckedalone")
    assert "does not say what AR would have chosen" in page.inner_text(f"{panel} .rv-ag-head")
    put_scene(page, "unchecked")
    detail = page.inner_text(f"{panel} .rv-ag-detail")
    assert "after the first difference" in detail


def test_hostile_text_stays_text_and_a_stream_ends_aligned(still: playwright.Page) -> None:
    page = still
    put_scene(page, "hostile")
    panel = open_at(page, "against-ar")
    assert page.locator(f"{panel} :is(script, img)").count() == 0
    details = []
    for _ in stream(page, race_scenes.PROSE):
        details.append(page.inner_text(f"{panel} .rv-ag-detail"))
    assert any(detail.endswith("not judged yet") for detail in details)
    assert len(set(details)) > 3
    page.wait_for_function(
        "document.querySelector('.rv-df h4').textContent.endsWith('1 only in MARS, 1 only in AR')"
    )
