"""The panel "Statistics" as a visitor uses it: numbers, keyboard, streaming, replay, sentences."""

from __future__ import annotations

from collections import Counter

import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright
from panel_browser import all_texts, go_to, open_at, put_scene, rows_of, stream

from mars_runtime import folds
from mars_runtime.events import RowStep, Step
from tests import trace_folds

pytestmark = needs_browser


def picture(panel: str, name: str) -> str:
    """Where a picture is."""
    return f'{panel} [data-picture="{name}"]'


def check_counts(page: playwright.Page, panel: str, rows: list[RowStep]) -> None:
    """The first two pictures are the folds of these forwards."""
    events = [Step((row,)) for row in rows]
    shares = trace_folds.acceptance_by_position(events)
    shown = all_texts(page, f"{picture(panel, 'positions')} .rv-pic-top")
    assert shown == [str(int(100 * share + 0.5)) for share in shares]
    counts = trace_folds.tokens_per_forward_counts(events)
    shown = all_texts(page, f"{picture(panel, 'counts')} .rv-pic-top")
    assert shown == [str(counts.get(number, 0)) for number in range(1, max(counts) + 1)]
    table = page.locator(f"{picture(panel, 'counts')} table tbody tr")
    assert table.count() == max(counts)
    said = page.inner_text(f"{picture(panel, 'counts')} .rv-pic-say")
    assert f"{folds.tpf(events):.2f} on average" in said


def test_the_pictures_are_the_folds_of_what_is_shown(still: playwright.Page) -> None:
    page = still
    put_scene(page, "prose")
    panel = open_at(page, "statistics")
    rows = rows_of(race_scenes.PROSE)
    check_counts(page, panel, rows)
    judged = sum(len(row.checks) for row in rows)
    bins = all_texts(page, f"{picture(panel, 'calibration')} .rv-pic-sub")
    assert sum(map(int, bins)) == judged
    agreed = page.inner_text(f"{picture(panel, 'calibration')} .rv-pic-say")
    mine = [token for row in rows for token in row.accepted]
    right = sum(
        mine[row.start - len(row.checks) + i] == token
        for row in rows
        for i, (token, _) in enumerate(row.checks)
    )
    assert agreed.startswith(f"AR would have chosen {right} of {judged} tokens")
    kinds = all_texts(page, f"{picture(panel, 'kinds')} td")
    numbers = Counter(dict(zip(("words", "numbers", "punctuation"), kinds, strict=False)))
    assert numbers["numbers"] == "none"
    in_words = sum(any(c.isalpha() for c in text) for text in token_texts())
    assert f"({in_words} tokens)" in numbers["words"]
    go_to(page, 11)
    check_counts(page, panel, rows[:12])


def token_texts() -> list[str]:
    """The tokens of PROSE as text; pieces of a character stand with the last of them."""
    trace = samples.run(race_scenes.PROSE)
    texts, pieces = [], b""
    for token in folds.accepted_tokens(trace.events)[:-1]:
        pieces += trace.vocabulary[token]
        try:
            texts.append(pieces.decode())
            pieces = b""
        except UnicodeDecodeError:
            continue
    return texts


def test_arrow_keys_read_the_values(still: playwright.Page) -> None:
    page = still
    put_scene(page, "prose")
    panel = open_at(page, "statistics")
    plot = f"{picture(panel, 'positions')} .rv-pic-bars"
    page.focus(plot)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    rows = rows_of(race_scenes.PROSE)
    proposed = sum(len(row.proposals) > 1 for row in rows)
    emitted = sum(len(row.accepted) > 1 for row in rows)
    said = page.inner_text(f"{picture(panel, 'positions')} .rv-pic-say")
    assert said.startswith(f"Position 2: {emitted} of {proposed} forwards")
    page.keyboard.press("Escape")
    said = page.inner_text(f"{picture(panel, 'positions')} .rv-pic-say")
    assert said.startswith("Of the forwards that proposed")
    page.hover(f"{picture(panel, 'counts')} .rv-pic-bar >> nth=0")
    assert "took 1 token." in page.inner_text(f"{picture(panel, 'counts')} .rv-pic-say")
    page.mouse.move(0, 0)  # or the next test would begin on a bar


def test_streaming_updates_the_bars_that_are_there(still: playwright.Page) -> None:
    page = still
    values = stream(page, race_scenes.PROSE)
    for _ in range(4):
        next(values)
    panel = open_at(page, "statistics")
    page.evaluate("window.bar = document.querySelector('[data-picture=counts] .rv-pic-bar')")
    before = page.inner_text(f"{picture(panel, 'counts')} .rv-pic-say")
    for _ in values:
        pass
    assert page.evaluate("window.bar.isConnected")
    assert page.inner_text(f"{picture(panel, 'counts')} .rv-pic-say") != before
    check_counts(page, panel, rows_of(race_scenes.PROSE))


def test_one_sentence_where_nothing_can_be_said(still: playwright.Page) -> None:
    page = still
    put_scene(page, "uncheckedalone")
    panel = open_at(page, "statistics")
    none = f"{picture(panel, 'calibration')} .rv-pic-none"
    assert "does not tell what AR would have chosen" in page.inner_text(none)
    put_scene(page, "unchecked")
    said = page.inner_text(f"{picture(panel, 'calibration')} .rv-pic-say")
    assert "up to the first difference" in said
    put_scene(page, "plainar")
    assert "AR's own choice" in page.inner_text(none)
    put_scene(page, "losslessdone")
    said = page.inner_text(f"{picture(panel, 'calibration')} .rv-pic-say")
    assert "tokens and drafts" in said
