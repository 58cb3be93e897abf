"""Groups of tokens as a visitor sees them: separated, counted next to the text, and plain when
copied.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest
import race_scenes
from browser import needs_browser, playwright
from panel_browser import VIEW, put, recording, still_page, stream
from pixels import Picture
from race_browser import MARS, ROOT, shown_text
from test_colours import contrast

from mars_runtime import folds

pytestmark = needs_browser
TEXT = f"{MARS} .rv-text"
SWATCHES = f"""() => [2, 3, 4, 5].map((n) => {{
  const {{ backgroundImage, color }} = getComputedStyle(
    document.querySelector(`{ROOT} .rv-legend .rv-n${{n}}`));
  return [backgroundImage.split("linear-gradient").at(-1), color];
}})"""
# A line end without an empty line: the counts of a paragraph reach below it.
LINES = replace(race_scenes.PROSE, text=race_scenes.PROSE.text.replace("\n\n", "\n"))
LONG = replace(LINES, text=LINES.text * 12)
PLACES = f"""() => [...document.querySelectorAll('{TEXT} .rv-t')]
  .map((node) => [node.offsetLeft, node.offsetTop])"""
FIRST = """nodes => nodes.map((node) => { const { left, top, bottom } = node.getClientRects()[0];
  const box = node.closest(".rv-text").getBoundingClientRect();
  return { name: node.className, width: node.getClientRects()[0].width,
    mid: node.classList.contains("rv-mid"),
    left: left - box.left, top: top - box.top, bottom: bottom - box.top }; })"""


def colour(css: str) -> str:
    """#rrggbb of the first rgb(...) in it."""
    match = re.search(r"rgb\((\d+), (\d+), (\d+)\)", css)
    assert match, css
    return "#" + "".join(f"{int(part):02x}" for part in match.groups())


def test_groups_of_the_same_size_have_a_gap_between_them(still: playwright.Page) -> None:
    assert sum(num_apart(still, name) for name in ("lossless", "summary")) >= 3


def num_apart(still: playwright.Page, name: str) -> int:
    """How many neighbours of one size and line a recording has; each pair has a gap between it."""
    put(still, recording(name).value)
    picture = Picture(still, still.locator(TEXT))
    card = picture.at(3, 3)
    groups = still.eval_on_selector_all(f"{TEXT} .rv-c", FIRST)
    apart = 0
    for before, group in pairwise(groups):
        is_alike = before["name"].split()[1] == group["name"].split()[1] != "rv-n1"
        if not is_alike or before["top"] != group["top"] or group["bottom"] > 250:
            continue
        if group["width"] < 20:  # the space at the end of a line
            continue
        y = group["bottom"] - 1  # of the underline
        assert picture.at(group["left"] + (0.5 if group["mid"] else 2), y) == card
        assert card not in (picture.at(group["left"] - 2, y), picture.at(group["left"] + 10, y))
        apart += 1
    return apart


def test_counts_are_drawn_on_empty_card_and_not_copied(still: playwright.Page) -> None:
    put(still, recording("python").value)
    text = still.locator(TEXT)
    size = "n => getComputedStyle(n, '::after').fontSize"
    assert text.locator("[data-k]").first.evaluate(size) == "11px"
    still.mouse.move(0, 0)
    counted = Picture(still, text)
    style = still.add_style_tag(content=".rv-t::after { color: transparent !important; }")
    without = Picture(still, text)
    style.evaluate("n => n.remove()")
    card = without.at(3, 3)
    ink = counted.changed(without)
    assert len(ink) > 100
    around = {place + dx + dy for place in ink for dx in (-1, 0, 1) for dy in (-counted.width, 0)}
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


def test_a_count_of_two_digits_stays_on_one_line_wherever_its_group_ends() -> None:
    with still_page() as page:  # not the shared page, because the layout below stays changed
        put(page, recording("tale").value)
        heights = page.locator(TEXT).evaluate(
            """(text) => {
              const tokens = [...text.querySelectorAll(".rv-t")];
              for (const token of tokens) token.dataset.k = "15";
              const found = [];
              for (let width = 300; width < 330; width += 1) {  // lines end elsewhere in each
                text.style.width = `${width}px`;
                found.push(...tokens.map((token) => getComputedStyle(token, "::after").height));
              }
              text.style.width = "";
              return found;
            }"""
        )
    assert len(heights) > 30 * 60
    assert set(heights) == {"11px"}


def test_nothing_moves_when_tokens_arrive(still: playwright.Page) -> None:
    seen: list[list[int]] = []
    for _ in stream(still, race_scenes.PROSE):
        positions = still.evaluate(PLACES)[:40]
        assert positions[: len(seen)] == seen
        seen = positions
    assert len(seen) == 40


def test_a_token_under_the_pointer_shows_what_each_mask_had_proposed(
    still: playwright.Page,
) -> None:
    put(still, recording("tau-moved").value)
    still.evaluate(f"{VIEW}.player.seek(Infinity)")
    rows = still.evaluate(
        f"""() => {{ const lane = {VIEW}.run.lanes[0];
          const step = lane.steps.find((s) => s.index > 0 && s.stop === 'threshold');
          return {{ at: step.first, count: step.count, rest: step.proposals.slice(step.count)
            .map(([id], i) => [lane.tokenName(id).replace(/^␣(?=.)/, ''),
              lane.tokens[step.first + step.count + i]?.id === id]) }}; }}"""
    )
    tokens = still.locator(f"{TEXT} .rv-t")
    before = still.evaluate(PLACES)
    tokens.nth(rows["at"]).hover()
    ghosts = still.locator(f"{TEXT} .rv-mask")
    assert ghosts.all_inner_texts() == [name for name, _ in rows["rest"]]
    same = [node == "same" for node in ghosts.evaluate_all("l => l.map((n) => n.dataset.verdict)")]
    assert same[0] == rows["rest"][0][1]
    assert still.evaluate(PLACES) == before
    place = tokens.nth(rows["at"] + rows["count"]).bounding_box()
    ghost = ghosts.first.bounding_box()
    assert abs(ghost["x"] - place["x"]) < 2
    assert ghost["y"] >= place["y"] + place["height"] - 2
    card = still.locator(f"{ROOT} .rv-card").bounding_box()
    assert card["y"] >= ghost["y"] + ghost["height"] - 2
    still.focus(TEXT)
    still.keyboard.press("Home")
    assert still.locator(f"{MARS} .rv-c.rv-on").count() == 1
    still.keyboard.press("Escape")
    assert ghosts.count() == 0


def test_a_paragraph_at_rest_is_drawn_as_it_was_and_keeps_its_height(
    still: playwright.Page,
) -> None:
    """Nothing that overlaps the edge is clipped: counts below the last line, marks in the
    margin.
    """
    (value,) = race_scenes.finished(LINES)()
    still.mouse.move(0, 0)
    put(still, value)
    for place in (0.9, 0.95):  # each a frame: what is whole in one rests from the next on
        still.evaluate(f"share => {VIEW}.player.seek(share * {VIEW}.playhead.length)", place)
        still.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
    text = still.locator(TEXT)
    # Chromium smooths a round corner around what scrolls in one of two ways, as it comes.
    corners = still.add_style_tag(content="* { border-radius: 0 !important; }")
    assert still.locator(f"{TEXT} .rv-laid").count() >= 2
    places = text.evaluate(
        "n => [0.3, 1].map((share) => share * (n.scrollHeight - n.clientHeight))"
    )
    assert places[-1] > 100

    def pictures() -> list[Picture]:
        collected = []
        for top in places:
            text.evaluate("(n, top) => { n.scrollTop = top; }", top)
            collected.append(Picture(still, text))
        return collected

    resting = pictures()
    still.eval_on_selector_all(
        f"{TEXT} .rv-laid", "all => all.forEach((n) => n.classList.remove('rv-laid'))"
    )
    assert [first.changed(other) for first, other in zip(resting, pictures(), strict=True)] == [
        []
    ] * 2
    corners.evaluate("n => n.remove()")


def test_what_a_reader_goes_back_before_takes_no_room(still: playwright.Page) -> None:
    (value,) = race_scenes.finished(LONG)()
    put(still, value)
    heights = []
    for share in (1.0, 0.1, 1.0):
        still.evaluate(f"share => {VIEW}.player.seek(share * {VIEW}.playhead.length)", share)
        still.evaluate("() => new Promise(requestAnimationFrame)")  # the leap has begun
        still.wait_for_function(f"() => {VIEW}.entries.every((pane) => pane.view.isWhole)")
        last, height = still.locator(TEXT).evaluate(
            """(text) => {
          const groups = [...text.querySelectorAll(".rv-c")];
          const seen = groups.filter((n) => n.checkVisibility()).at(-1);
          const top = text.getBoundingClientRect().top - text.scrollTop;
          return [seen.getBoundingClientRect().bottom - top, text.scrollHeight];
        }"""
        )
        heights.append(height)
        assert height - last < 100
    assert heights[0] > 4 * heights[1]


LOOKS = f"""() => [...document.querySelectorAll('{TEXT} .rv-c[data-n] > .rv-t')].map((node) => {{
  const {{ backgroundImage, color }} = getComputedStyle(node);
  const who = [...node.classList].find((name) => name.startsWith("rv-by-"));
  return [who ?? "", backgroundImage, color];
}})"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_group_sizes_and_sources_show_in_fill_and_pattern(
    still: playwright.Page, theme: str
) -> None:
    """Masks fill, prompt lookup hatches, AR's own has neither: each also reads without colour."""
    made = recording("summary")
    put(still, made.value)
    toggle = "dark => document.documentElement.classList.toggle('dark', dark)"
    still.evaluate(toggle, theme == "dark")
    fills, inks = zip(*((colour(a), colour(b)) for a, b in still.evaluate(SWATCHES)), strict=True)
    looks = still.evaluate(LOOKS)
    cards = [
        colour(still.locator(selector).first.evaluate("n => getComputedStyle(n).backgroundColor"))
        for selector in (f"{ROOT} .rv-pane", f"{ROOT} .rv-card")
    ]
    still.evaluate(toggle, False)
    for card in cards:
        assert all(contrast(card, fill) >= 1.5 for fill in fills)
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
            assert contrast(cards[0], colour(ink)) >= 4.5
    events = made.traces()["mars"].events
    sources = [
        token_source
        for source in folds.sources(events)
        if len(source) > 1
        for token_source in source
    ]
    names = {"ar": "", "masks": "rv-by-masks", "look-up": "rv-by-lookup"}
    assert [who for who, _, _ in looks] == [names[item] for item in sources]
