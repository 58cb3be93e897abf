"""τ as a lens: a finished text seen with another threshold, exactly up to the first difference."""

from __future__ import annotations

import race_scenes
from browser import needs_browser, playwright
from panel_browser import VIEW, open_panel, put, put_scene, recording, settle, stream
from race_browser import MARS, ROOT

from mars_runtime import folds
from mars_runtime.acceptance import accept_prefix

pytestmark = needs_browser
TEXT = f"{MARS} .rv-text"
GROUPS = f"""() => {{ const groups = [];
  document.querySelectorAll('{TEXT} .rv-t').forEach((node) => {{
    if (node.matches(".rv-begin, .rv-mid")) groups.push([0, node.classList.contains("rv-guess")]);
    groups.at(-1)[0] += 1; }});
  return groups; }}"""
PLACES = f"""() => [...document.querySelectorAll('{TEXT} .rv-t')].map((node) => {{
  const range = document.createRange();
  range.selectNodeContents(node);
  const {{ left, top }} = range.getBoundingClientRect();
  return [left, top]; }})"""


def look(page: playwright.Page, tau: float) -> None:
    """Drag the threshold, as the page tells it to the view."""
    page.evaluate(f"tau => {VIEW}.lens.set(tau)", tau)
    settle(page)


def test_a_finished_text_is_seen_in_the_groups_of_another_threshold(still: playwright.Page) -> None:
    made = recording("python")
    put(still, made.value)
    steps = [step for step, _ in folds.row_steps(made.traces()["mars"].events)]
    counts = [accept_prefix([p.confidence for p in step.proposals], 0.5) for step in steps]
    first = next(i for i, step in enumerate(steps) if counts[i] != len(step.accepted))
    before = still.evaluate(PLACES)
    look(still, 0.5)
    groups = still.evaluate(GROUPS)
    assert [count for count, _ in groups[:first]] == [len(s.accepted) for s in steps[:first]]
    assert not any(is_guess for _, is_guess in groups[: first + 1])
    assert sum(count for count, _ in groups) == folds.num_tokens(made.traces()["mars"].events)
    assert all(is_guess for count, is_guess in groups[first + 1 :] if count > 1)
    parts = still.locator(f"{TEXT} .rv-parts")
    assert parts.evaluate("n => n.rvToken") == steps[first].start
    assert still.evaluate(PLACES) == before  # nothing moves
    said = still.inner_text(f"{ROOT} .rv-lens-say")
    assert said.startswith("Seen with τ\u00a0=\u00a00.5. Exact up to forward ")
    assert f"forward {first + 1} took {len(steps[first].accepted)}" in said
    assert "estimate" in said
    guess = still.locator(f"{TEXT} .rv-guess").first
    hatch = "n => getComputedStyle(n).backgroundImage.includes('repeating-linear-gradient(135deg')"
    assert guess.evaluate(hatch)  # not by colour alone
    still.click(f"{ROOT} .rv-lens-bar button")
    settle(still)
    assert still.locator(f"{TEXT}.rv-lens, {TEXT} .rv-guess, {TEXT} [data-l]").count() == 0
    assert still.locator(f"{ROOT} .rv-lens-bar").is_hidden()


def test_its_own_threshold_shows_a_run_as_it_was_written(still: playwright.Page) -> None:
    """Also where B auto and look-ups decided how much was drafted."""
    for name in ("bold", "bank-account", "sky", "rewrite", "lossless"):
        made = recording(name)
        put(still, made.value)
        steps = [step for step, _ in folds.row_steps(made.traces()["mars"].events)]
        look(still, steps[0].settings.tau)
        assert still.evaluate(GROUPS) == [[len(step.accepted), False] for step in steps]
        assert "as it was written: exact." in still.inner_text(f"{ROOT} .rv-lens-say")


def test_in_a_lossless_run_the_lens_says_that_no_token_changes(still: playwright.Page) -> None:
    made = recording("lossless")
    put(still, made.value)
    text = still.locator(TEXT).evaluate("n => n.textContent")
    look(still, 0.99)
    said = still.inner_text(f"{ROOT} .rv-lens-say")
    assert "Lossless: τ changes no token of the text" in said
    assert "would draft" in said
    assert still.locator(TEXT).evaluate("n => n.textContent") == text
    written = folds.num_forwards(made.traces()["mars"].events)
    assert len(still.evaluate(GROUPS)) > written  # less is drafted, so it takes more forwards


def test_while_text_streams_there_is_no_lens(still: playwright.Page) -> None:
    for _ in stream(still, race_scenes.PROSE):
        look(still, 0.5)
        is_over = still.get_attribute(ROOT, "data-state") == "finished"
        assert still.locator(f"{ROOT} .rv-lens-bar").is_visible() == is_over
        assert (still.locator(f"{TEXT}.rv-lens").count() == 1) == is_over
    assert is_over
    put_scene(still, "plainar")
    look(still, 0.5)
    assert still.locator(f"{ROOT} .rv-lens-bar").is_hidden()


def test_the_sub_tab_and_the_lens_have_one_threshold(still: playwright.Page) -> None:
    put(still, recording("python").value)
    panel = open_panel(still, "whatif")
    slider = panel.locator(".rv-wi-knob input")
    slider.fill("0.5")
    settle(still)
    assert "τ\u00a0=\u00a00.5" in still.inner_text(f"{ROOT} .rv-lens-say")
    look(still, 0.7)
    assert slider.input_value() == "0.7"
    assert panel.locator("output").inner_text() == "0.7"
