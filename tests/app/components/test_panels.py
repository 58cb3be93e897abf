"""The panel "Against AR" as a visitor uses it."""

from __future__ import annotations

import race_scenes
from browser import needs_browser, playwright
from panel_browser import VIEW, all_texts, go_to, open_at, put_scene, rows_of, stream
from race_browser import MARS

pytestmark = needs_browser
ROWS = rows_of(race_scenes.PROSE)
WRITTEN = [token for row in ROWS for token in row.accepted]
CHECKS = [
    (row.start - len(row.checks) + i, token)
    for row in ROWS
    for i, (token, _) in enumerate(row.checks)
]
"""(place, what AR would have chosen there) of every checked token of PROSE."""
WRONG = [place for place, token in CHECKS if WRITTEN[place] != token]


def wait_for(page: playwright.Page, selector: str, condition: str) -> None:
    """Until what is there is drawn so."""
    page.wait_for_function(f"document.querySelector('{selector}')?.{condition}")


def test_one_sentence_where_nothing_can_be_said(still: playwright.Page) -> None:
    page = still
    against = open_at(page, "against-ar")
    meter, detail = f"{against} .rv-ag-head", f"{against} .rv-ag-detail"
    for scene, there, sentence in (
        ("uncheckedalone", meter, "does not contain"),
        ("unchecked", detail, "after the first difference"),
        ("plainar", meter, "is plain AR"),
        ("losslessdone", meter, "by construction"),
    ):
        put_scene(page, scene)
        assert sentence in page.inner_text(there), scene
    assert page.locator(f"{against} .rv-ag-bar").is_hidden()
    assert "Where AR corrected a draft" in page.inner_text(f"{against} .rv-ag-left h4")
    assert page.locator(f"{against} .rv-ag-list li").count() >= 1
    assert "Same text" in page.inner_text(f"{against} .rv-ag-right h4 >> nth=0")
    page.locator(f"{against} .rv-df").wait_for(state="hidden")  # drawn after the rest


def test_the_meter_counts_what_the_next_forward_said(still: playwright.Page) -> None:
    page = still
    put_scene(page, "prose")
    panel = open_at(page, "against-ar")
    known = len(ROWS) + len(CHECKS)
    share = 100 * (known - len(WRONG)) / known
    head = page.inner_text(f"{panel} .rv-ag-head")
    assert head.startswith(f"{share:.1f} % of {known} compared tokens")
    detail = page.inner_text(f"{panel} .rv-ag-detail")
    assert f"{len(ROWS)} AR's own" in detail
    assert f"{len(CHECKS) - len(WRONG)} of {len(CHECKS)} others agree" in detail
    items = all_texts(page, f"{panel} .rv-ag-where")
    assert items == [f"token {place + 1}" for place in WRONG]
    page.click(f"{panel} .rv-ag-list button >> nth=2")
    step = next(i for i, row in enumerate(ROWS) if WRONG[2] < row.start + len(row.accepted))
    assert page.evaluate(f"{VIEW}.selected.step") == step
    assert page.locator(f"{MARS} .rv-c.rv-chosen").count() == 1
    page.keyboard.press("Escape")
    go_to(page, 5)
    done = [check for row in ROWS[:6] for check in row.checks]
    assert f"of {6 + len(done)} compared tokens" in page.inner_text(f"{panel} .rv-ag-head")


def test_both_texts_are_aligned_around_the_place_where_they_part(still: playwright.Page) -> None:
    page = still
    put_scene(page, "hostile")
    panel = open_at(page, "against-ar")
    assert page.locator(f"{panel} :is(script, img)").count() == 0
    details = []
    for _ in stream(page, race_scenes.PROSE):
        details.append(page.inner_text(f"{panel} .rv-ag-detail"))
    assert any(detail.endswith("not compared yet") for detail in details)
    assert len(set(details)) > 3
    wait_for(page, ".rv-df h4", "textContent.endsWith('1 only in MARS, 1 only in AR')")
    place = race_scenes.PROSE.change[0]
    assert f"First difference at token {place + 1}" in page.inner_text(
        f"{panel} .rv-ag-right h4 >> nth=0"
    )
    assert all_texts(page, f"{panel} .rv-ag-place .rv-mark")[0] == "␣deep"
    summary = page.inner_text(f"{panel} .rv-df h4")
    assert summary.startswith(f"Aligned: {len(WRITTEN) - 1} tokens in both, ")
    assert all_texts(page, f"{panel} .rv-df-first") == ["MARS deep"]
    assert page.locator(f"{panel} .rv-df-second").count() == 1
    folded = page.locator(f"{panel} .rv-df-fold")
    before = folded.count()
    folded.first.click()
    assert folded.count() == before - 1
    assert page.inner_text(f"{panel} .rv-df-text").startswith("Once upon a time")
