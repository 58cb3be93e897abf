"""The drawer of a pass: from a token to its reason, and from one wrong place to the next."""

from __future__ import annotations

import race_scenes
from browser import needs_browser, playwright, settle
from race_browser import MARS, ROOT, VIEW, asks, put, rows_of

from mars_runtime.acceptance import accept_prefix

pytestmark = needs_browser
DRAWER = f"{ROOT} .rv-drawer"
ROWS = rows_of(race_scenes.PROSE)
WRITTEN = [token for row in ROWS for token in row.accepted]
WRONG = [
    place
    for row in ROWS
    for place, (token, _) in enumerate(row.checks, row.start - len(row.checks))
    if WRITTEN[place] != token
]
"""Places of PROSE where AR would have chosen another token."""
FIRST = race_scenes.PROSE.change[0]
PLACES = sorted({*WRONG, FIRST})


def at(page: playwright.Page) -> tuple[str, int, int]:
    """Return the lane, pass and token (from 1, 0 for none) that the drawer shows."""
    settle(page)
    data = page.locator(DRAWER).evaluate("node => ({...node.dataset})")
    return data["lane"], int(data["pass"]), int(data["token"])


def pass_of(place: int) -> int:
    """Return the number of the pass that wrote a token."""
    return next(i for i, row in enumerate(ROWS, 1) if place < row.start + len(row.accepted))


def test_a_token_opens_its_pass_and_leads_to_others(page: playwright.Page) -> None:
    put(page, race_scenes.finished(race_scenes.PROSE))
    page.click(f"{MARS} .rv-t >> nth=3")
    assert at(page) == ("mars", pass_of(3), 4)
    assert page.locator(f"{ROOT} .rv-charts").is_hidden()
    rows = page.locator(f"{DRAWER} .dr-rows > li")
    assert rows.count() == len(ROWS[pass_of(3) - 1].proposals)
    assert page.locator(f"{DRAWER} .dr-rows > [aria-current=true]").count() == 1
    page.click(f"{DRAWER} [aria-label='Next pass']")
    assert at(page) == ("mars", pass_of(3) + 1, 0)

    # The first difference, from the result, from the head of the pane, and by the buttons.
    for opener in (f"{ROOT} .rv-headline button", f"{MARS} .rv-differs"):
        page.keyboard.press("Escape")
        page.click(opener)
        assert at(page) == ("mars", pass_of(FIRST), FIRST + 1)
    assert page.locator(f"{DRAWER} .dr-places li").count() == len(PLACES)
    here = PLACES.index(FIRST)
    for button, by in (("Next place", 1), ("Previous place", 0), ("Previous place", -1)):
        page.click(f"{DRAWER} [aria-label='{button}']")
        place = PLACES[here + by]
        assert at(page) == ("mars", pass_of(place), place + 1)
    page.click(f"{DRAWER} .dr-places button >> nth=-1")
    assert at(page) == ("mars", pass_of(PLACES[-1]), PLACES[-1] + 1)
    assert page.locator(f"{MARS} .rv-c.rv-chosen .rv-picked").count() == 1

    page.keyboard.press("Escape")
    page.wait_for_selector(DRAWER, state="hidden")
    assert page.locator(f"{ROOT} .rv-charts").is_visible()
    assert page.locator(f"{MARS} .rv-chosen").count() == 0
    page.focus(f"{MARS} .rv-text")
    for key in ("Home", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector(f"{DRAWER}[data-pass='2']:focus")
    page.keyboard.press("Escape")
    page.wait_for_selector(f"{MARS} .rv-text:focus")


def test_another_threshold_and_a_branch(page: playwright.Page) -> None:
    put(page, race_scenes.finished(race_scenes.PROSE))
    asks(page, ["branch"])
    refused = next(i for i, row in enumerate(ROWS) if row.stop == "threshold")
    page.evaluate(f"{VIEW}.choose({VIEW}.run.lanes[0], {refused})")
    assert at(page) == ("mars", refused + 1, 0)
    confidences = [proposal.confidence for proposal in ROWS[refused].proposals]
    for tau in (0.0, 0.5, 0.95, 1.0):
        page.fill(f"{DRAWER} input", str(tau))
        num = page.get_attribute(f"{DRAWER} .dr-tau", "data-num")
        assert num == str(accept_prefix(confidences, tau)), tau
    page.click(f"{DRAWER} [data-fate=refused] .dr-proposal button")
    count = len(ROWS[refused].accepted)
    (branch,) = page.evaluate("window.asked")
    assert branch["lane"] == "mars"
    assert branch["token"] == ROWS[refused].start + count
    assert branch["id"] == ROWS[refused].proposals[count].token
    page.keyboard.press("Escape")


def test_a_phone_shows_a_sheet_that_leaves_the_token_in_sight(page: playwright.Page) -> None:
    page.set_viewport_size({"width": 390, "height": 780})
    put(page, race_scenes.finished(race_scenes.LOSSLESS))
    token = page.locator(f"{MARS} .rv-t").nth(20)
    token.click()
    assert at(page)[2] == 21
    sheet = page.locator(DRAWER).bounding_box()
    assert sheet["y"] + sheet["height"] <= 780
    assert token.bounding_box()["y"] + token.bounding_box()["height"] <= sheet["y"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    put(page, race_scenes.finished(race_scenes.HOSTILE))
    page.click(f"{MARS} .rv-t >> nth=0")
    assert page.locator(f"{DRAWER} :is(script, img)").count() == 0
