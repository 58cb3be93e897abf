"""Groups of tokens as a visitor sees them: separated, counted next to the text, and plain when
copied.
"""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import race_scenes
from browser import needs_browser, playwright
from panel_browser import put, recording, stream
from pixels import Picture
from race_browser import MARS, ROOT, shown_text
from test_colours import contrast

from mars_runtime.runs import folds

pytestmark = needs_browser
TEXT = f"{MARS} .rv-text"
SWATCHES = f"""() => [2, 3, 4, 5].map((n) => {{
  const {{ backgroundImage, color }} = getComputedStyle(
    document.querySelector(`{ROOT} .rv-legend .rv-n${{n}}`));
  return [backgroundImage.split("linear-gradient").at(-1), color];
}})"""
PLACES = f"""() => [...document.querySelectorAll('{TEXT} .rv-t')]
  .filter((node) => node.offsetParent).map((node) => {{
    // Unlike offsetLeft, also known before the browser finds that a new segment is in view.
    const [own, segment] = [node, node.closest(".rv-seg")].map((n) => n.getBoundingClientRect());
    return [Math.round(own.x - segment.x), Math.round(own.y - segment.y)];
  }})"""


def colour(css: str) -> str:
    """#rrggbb of the first rgb(...) in it."""
    match = re.search(r"rgb\((\d+), (\d+), (\d+)\)", css)
    assert match, css
    return "#" + "".join(f"{int(part):02x}" for part in match.groups())


def test_counts_are_drawn_on_empty_card_and_not_copied(still: playwright.Page) -> None:
    put(still, recording("average").value)
    text = still.locator(TEXT)
    size = "n => getComputedStyle(n, '::after').fontSize"
    still.locator(f"{ROOT} .rv-legend button").last.click()  # more marks
    still.locator(f"{ROOT} .rv-legend .rv-more-marks button").click()  # group sizes
    assert text.locator("[data-k]").first.evaluate(size) == "13px"
    still.mouse.move(0, 0)
    counted = Picture(still, text)
    style = still.add_style_tag(content=".rv-t::after { color: transparent !important; }")
    without = Picture(still, text)
    style.evaluate("n => n.remove()")
    card = without.at(3, 3)
    corner, width = 8, counted.width  # no count is drawn at the card's rounded corners
    ink = [place for place in counted.changed(without) if corner <= place % width < width - corner]
    assert len(ink) > 100
    around = {place + dx + dy for place in ink for dx in (-1, 0, 1) for dy in (-width, 0)}
    assert {without.colours[place] for place in around} == {card}
    assert text.locator("[data-k]").count() > 5
    copied = text.evaluate(
        """(node) => {
          const selection = getSelection();
          selection.selectAllChildren(node);
          const text = selection.toString();
          selection.removeAllRanges();
          return text;
        }"""
    )
    assert copied.strip() == shown_text(still, MARS).strip()


def test_nothing_moves_when_tokens_arrive(still: playwright.Page) -> None:
    seen: list[list[int]] = []
    for _ in stream(still, race_scenes.PROSE):
        positions = still.evaluate(PLACES)[:40]
        assert positions[: len(seen)] == seen
        seen = positions
    assert len(seen) == 40


LOOKS = f"""() => [...document.querySelectorAll('{ROOT} .rv-c[data-n] > .rv-t')].map((node) => {{
  const {{ backgroundImage, color }} = getComputedStyle(node);
  const who = [...node.classList].find((name) => name.startsWith("rv-by-"));
  return [who ?? "", backgroundImage, color];
}})"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_group_sizes_and_sources_show_in_fill_and_pattern(
    still: playwright.Page, theme: str
) -> None:
    """Masks fill, prompt lookup hatches, AR's own has neither: each also reads without colour."""
    made = recording("average")
    put(still, made.value)
    toggle = "dark => document.documentElement.classList.toggle('dark', dark)"
    still.evaluate(toggle, theme == "dark")
    fills, inks = zip(*((colour(a), colour(b)) for a, b in still.evaluate(SWATCHES)), strict=True)
    looks = still.evaluate(LOOKS)
    pane = still.locator(f"{ROOT} .rv-pane").first
    ground = colour(pane.evaluate("n => getComputedStyle(n).backgroundColor"))
    still.evaluate(toggle, False)
    assert all(contrast(ground, fill) >= 1.5 for fill in fills)
    assert all(contrast(first, other) >= 1.5 for first, other in pairwise(fills))
    assert all(contrast(ink, fill) >= 4.5 for ink, fill in zip(inks, fills, strict=True))
    by = {name: [image for who, image, _ in looks if who == name] for name, _, _ in looks}
    assert set(by) == {"", "rv-by-masks", "rv-by-lookup"}
    assert set(by[""]) == {"none"}
    assert all("repeating" in image for image in by["rv-by-lookup"])
    assert not any("repeating" in image for image in by["rv-by-masks"])
    for who, image, ink in looks:
        if who == "rv-by-masks":
            assert contrast(colour(image), colour(ink)) >= 4.5
        if who == "":
            assert contrast(ground, colour(ink)) >= 4.5
    sources = [
        token_source
        for trace in made.traces().values()
        for source in folds.sources(trace.events)
        if len(source) > 1
        for token_source in source
    ]
    names = {"ar": "", "masks": "rv-by-masks", "look-up": "rv-by-lookup"}
    assert [who for who, _, _ in looks] == [names[item] for item in sources]
