"""The Review tab in a real browser: twenty prompts judged by keys alone with their sides masked,
reloads, a second window, files out and in; the study that ships; a set made on the page.

Skipped where Debian's chromium is not installed. Nothing here needs weights.
"""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Arrive, needs_browser, playwright
from live_page import wait_loaded
from scripted_page import TEXT, ScriptedBackend, make_handlers, page_served

from app.handlers import Handlers
from app.ui.files import file_address
from mars_runtime.review import exports
from mars_runtime.review.answers import Answer
from mars_runtime.review.judgements import JudgementStore, current
from mars_runtime.review.prompts import Item, read_prompts
from mars_runtime.review.sets import About, ReviewSet
from mars_runtime.review.ways import read_ways

pytestmark = needs_browser

VIEW = ".mars-review"
NUM_ITEMS, NUM_SAME = 22, 2
KEYS = ("a", "s", "d")
SAID = {"a": "left", "s": "equal", "d": "right"}
EVIL = '<img src=x onerror="alert(1)">'
STORED = """async () => {
  const opened = await new Promise((done) => {
    const request = indexedDB.open("mars-review-rows", 1);
    request.onsuccess = () => done(request.result);
  });
  const request = opened.transaction("rows").objectStore("rows").getAll();
  const rows = await new Promise((done) => { request.onsuccess = () => done(request.result); });
  opened.close();
  return { rows, local: { ...localStorage }, session: { ...sessionStorage } };
}"""


def write_large(folder: Path) -> None:
    """500 prompts by four ways."""
    about = About("large", read_ways(["ar", "tau=0", "tau=0.5", "tau=0.9"], "tiny"), 0, {})
    words = [f"word{n}" for n in range(100)]
    made = ReviewSet.create(folder, about, [Item(f"p{n}", f"Prompt {n}") for n in range(500)])
    for n in range(500):
        for way in range(4):
            text = " ".join(words[: 90 - way] + words[way:])
            made._answers[n, way] = Answer(text, tuple(text.split(" ")), (1,) * 100)
    made.summarize()


def write_set(folder: Path) -> ReviewSet:
    """22 prompts by two ways, two of whose answers are the same."""
    about = About("small", read_ways(["ar", "tau=0"], "tiny"), 0, {})
    items = [Item(f"p{n}", f"{EVIL} {n}") for n in range(NUM_ITEMS)]
    made = ReviewSet.create(folder, about, items)
    for n in range(NUM_ITEMS):
        made.add_text(n, 0, f"{EVIL} one two three {n}")
        changed = "one two two three" if n >= NUM_SAME else "one two three"
        made.add_text(n, 1, f"{EVIL} {changed} {n}")
    made.summarize()
    return made


@pytest.fixture(scope="module")
def review(tmp_path_factory: pytest.TempPathFactory) -> ReviewSet:
    return write_set(tmp_path_factory.mktemp("data") / "review" / "small")


@pytest.fixture(scope="module")
def backend() -> ScriptedBackend:
    return ScriptedBackend(TEXT)


@pytest.fixture(scope="module")
def handlers(
    review: ReviewSet, backend: ScriptedBackend, tmp_path_factory: pytest.TempPathFactory
) -> Handlers:
    data = str(review._folder.parents[1])
    write_large(review._folder.parent / "large")
    folder = tmp_path_factory.mktemp("page")
    return make_handlers(folder, backend, port=0, data=data, review_key="the key of a test")


@pytest.fixture(scope="module")
def address(handlers: Handlers) -> Iterator[str]:
    with page_served(handlers) as url:
        yield url


def opened(page: playwright.Page) -> playwright.Page:
    page.wait_for_selector(f"{VIEW}[data-phase=open] .rw-answer >> nth=1")
    return page


def press(page: playwright.Page, key: str) -> None:
    """A key that leads to another prompt."""
    before = page.get_attribute(VIEW, "data-at")
    page.keyboard.press(key)
    page.wait_for_selector(f"{VIEW}:not([data-at='{before}'])")


def downloaded(page: playwright.Page, form: str) -> str:
    with page.expect_download() as download:
        page.click(f"{VIEW} .rw-exports [data-form={form}]")
    return Path(download.value.path()).read_text("utf-8")


def test_twenty_prompts_are_judged_masked_by_keys_and_nothing_is_lost(
    arrive: Arrive, address: str, review: ReviewSet
) -> None:
    bodies: list[tuple[str, str]] = []

    def hear(answer: playwright.Response) -> None:
        if "/review/" in answer.url and "view." not in answer.url:
            bodies.append((answer.url, answer.text()))

    page = arrive(f"{address}robots.txt")
    page.on("response", hear)
    page.goto(f"{address}#review=small&masked=end&beside=1")
    opened(page)
    assert f"1 of {NUM_ITEMS - NUM_SAME}; {NUM_SAME} more" in page.inner_text(".rw-place")
    pressed: dict[str, str] = {}
    for n in range(20):
        item = str(page.get_attribute(VIEW, "data-at"))
        pressed[item] = KEYS[n % 3]
        page.keyboard.press("n")
        assert "doubled words" in page.inner_text(".rw-said") or "missing" in page.inner_text(
            ".rw-said"
        )
        page.keyboard.press(KEYS[n % 3])
        page.keyboard.press("4")
        page.keyboard.press("Shift+Digit2")
        if n == 3:
            page.keyboard.press("t")
            page.keyboard.type("rep")
            page.keyboard.press("Enter")
            page.keyboard.press("Escape")
            page.keyboard.press("c")
            page.keyboard.type(f"{EVIL} jk")
            page.keyboard.press("Escape")
        if n == 4:  # taken back, and said anew
            page.keyboard.press("u")
            page.keyboard.press("Shift+Digit3")
        if n in (6, 13):
            page.wait_for_function("document.querySelector('.rw-where').textContent.length > 0")
            page.wait_for_timeout(200)
            page.reload()
            opened(page)
            assert page.get_attribute(VIEW, "data-judged") == str(n + 1)
            assert page.get_attribute(VIEW, "data-at") == item
        if n < 19:
            press(page, "j")
    assert page.get_attribute(VIEW, "data-judged") == "20"
    search_for_sides(page, bodies)

    second = page.context.new_page()
    second.goto(f"{address}#review=small&masked=end&beside=1")
    opened(second)
    assert second.get_attribute(VIEW, "data-judged") == "20"
    second.keyboard.press("u")
    page.wait_for_selector(f"{VIEW}[data-unsent]")
    second.close()

    page.click(".rw-reveal")
    page.wait_for_selector(f"{VIEW}[data-masked=''] .rw-marks >> nth=1")
    own = exports.read_jsonl(downloaded(page, "jsonl"), review.id)
    found = {row.item: row for row in current(own).values()}
    assert found.keys() == pressed.keys()
    assert {row.is_masked for row in own} == {True}
    for item, key in pressed.items():
        assert found[item].preference == SAID[key]
    fourth = next(row for row in found.values() if row.note)
    assert fourth.note == f"{EVIL} jk"
    assert fourth.tags[0] == ("repetition",)
    assert len({row.left for row in found.values()}) == 2  # sides were drawn, not fixed
    table = list(csv.DictReader(io.StringIO(downloaded(page, "csv"), newline="")))
    assert {line["item"]: line["preference"] for line in table} == {
        item: SAID[key] for item, key in pressed.items()
    }
    assert "&lt;img src=x" in downloaded(page, "html")
    scores = [each["score"] for each in json.loads(downloaded(page, "comparator"))["examples"]]
    assert len([score for score in scores if score is not None]) == 20

    bens = [
        {**row.as_json(), "id": f"ben{n}", "reviewer": "ben"}
        for n, row in enumerate(found.values())
    ]
    text = exports.to_jsonl(review, [exports.read_judgement(each) for each in bens])
    given = {"name": "ben.jsonl", "mimeType": "", "buffer": text.encode()}
    page.set_input_files(".rw-file", given)
    page.wait_for_selector(".rw-said:text('20 rows of ben.jsonl came in')")
    page.reload()
    page.wait_for_selector(f"{VIEW}[data-phase=open] .rw-marks >> nth=1")
    both = exports.read_jsonl(downloaded(page, "jsonl"), review.id)
    assert {row.id for row in own} < {row.id for row in both}
    assert sum(row.reviewer == "ben" for row in both) == 20
    page.click(".rw-part >> nth=1 >> summary")
    page.wait_for_selector(".rw-agreement:text('Krippendorff')")
    assert "2 reviewers on 20 shared pairs: preference: 1" in page.inner_text(".rw-agreement")
    assert "only large differences show" in page.inner_text(".rw-caution")
    page.remove_listener("response", hear)


def search_for_sides(page: playwright.Page, bodies: list[tuple[str, str]]) -> None:
    """Before the reveal: which way wrote which text stands nowhere that the browser can see."""
    kept = page.evaluate(STORED)
    assert len(kept["rows"]) > 40
    for row in kept["rows"]:
        assert not {"left", "right"} & row.keys()
        assert row["sealed"]
        assert row["pair"] == ["ar", "tau=0"]
    assert set(kept["local"]) >= {"mars-review-name"}
    asked = [url for url, _ in bodies]
    assert any("/masked/0-1/" in url for url in asked)
    assert not [url for url in asked if "/items/" in url or "/reveal" in url]
    for url, body in bodies:
        if "/masked/0-1/" in url:
            told = {**json.loads(body), "sealed": ""}  # where any letters may stand by chance
            assert "tau" not in json.dumps(told)
            assert '"ar"' not in body
    drawn = page.locator(f"{VIEW} .rw-answers").evaluate("node => node.outerHTML")
    assert "tau" not in drawn
    for hidden in (".rw-marks", ".rw-strip", ".rw-open", ".rw-exports", ".rw-wide"):
        assert page.locator(f"{VIEW} {hidden}:visible").count() == 0
    rows = page.locator(f"{VIEW} .rw-rows").evaluate("node => node.textContent")
    assert "word" not in rows


def test_the_study_opens_is_read_by_keys_and_opens_in_live(arrive: Arrive, address: str) -> None:
    page = arrive(f"{address}#review=study&at=chat-4&beside=2&f.category=chat")
    opened(page)
    assert "Five ways, 100 prompts" in page.inner_text(f"{VIEW} .rw-status")
    assert page.inner_text(".rw-place") == "4 of 16"
    assert page.inner_text(".rw-count") == "16 of 100 prompts"
    assert page.locator(".rw-answer >> nth=1 >> .rw-strip rect").count() > 50
    assert page.locator(".rw-otherwise").first.get_attribute("title").startswith("AR would have")
    page.keyboard.press("n")
    assert page.locator(".rw-now").count() >= 2
    page.locator(".rw-answer >> nth=1 >> .rw-strip .rw-b4").first.click()
    assert page.locator(".rw-lit").count() == 1
    page.click(".rw-wide")
    page.wait_for_selector(".rw-answer >> nth=4")
    page.keyboard.press("o")
    page.wait_for_selector("#race .mars-race[data-state=finished] .rv-recorded:visible")
    assert "Five ways, 100 prompts, chat-4" in page.inner_text("#race .rv-recorded")


KEPT = """async () => {
  const opened = await new Promise((done) => {
    const request = indexedDB.open("mars-review-sets", 1);
    request.onsuccess = () => done(request.result);
  });
  const request = opened.transaction("sets").objectStore("sets").getAll();
  const sets = await new Promise((done) => { request.onsuccess = () => done(request.result); });
  opened.close();
  return sets.map(({ made, asked }) => ({ made, isAsked: Boolean(asked) }));
}"""


def fill_new_set(page: playwright.Page) -> None:
    page.click(".rw-part >> nth=2 >> summary")
    page.fill(".rw-prompts", "Say one.\nSay two.")
    page.fill(".rw-ways", "ar\ntau=0,B=4\nlossless,B=4")
    page.fill(".rw-limit", "24")
    page.fill(".rw-setname", "mine")
    page.click(".rw-begin")


def started_again(handlers: Handlers) -> None:
    """The server forgets what lies in memory and in its own folders, as by a kill."""
    for job in handlers.making._jobs.values():
        job.state = "stopped"
    handlers.making._jobs.clear()
    handlers.library._visitors.clear()
    handlers.library._open.clear()


def test_a_set_outlives_the_server_that_makes_it(
    arrive: Arrive, address: str, handlers: Handlers, backend: ScriptedBackend
) -> None:
    backend.forward_seconds = 0.05
    page = arrive(f"{address}#review=small")
    opened(page)
    fill_new_set(page)
    until = time.monotonic() + 60
    while not any(each["made"] for each in page.evaluate(KEPT)):
        assert time.monotonic() < until
        page.wait_for_timeout(100)
    started_again(handlers)
    said = ".rw-unfinished p:text('The server does not know “mine” any more, as after a restart; ')"
    page.wait_for_selector(said)
    assert "of 6 answers are kept in this browser: make the rest." in page.inner_text(said)
    page.reload()
    opened(page)
    page.wait_for_selector(said)  # without a press
    assert "mine" not in page.locator(".rw-bar select >> nth=0").inner_text()
    page.click(".rw-rest")
    page.wait_for_selector(".rw-progress:text('of 6 answers')")
    page.reload()  # and while it is made again
    opened(page)
    page.wait_for_selector(f"{VIEW} .rw-status:text('mine: 2 prompts')")
    assert page.evaluate(KEPT) == [{"made": None, "isAsked": False}]
    assert page.is_hidden(".rw-unfinished")
    backend.forward_seconds = 0.0


def test_a_set_is_made_on_the_page_and_stays_in_the_browser(arrive: Arrive, address: str) -> None:
    """Until the tab is opened nothing of it is asked for: neither script nor style nor a set."""
    page = arrive(f"{address}robots.txt")
    asked: list[str] = []

    def hear(request: playwright.Request) -> None:
        asked.append(request.url.removeprefix(address))

    page.on("request", hear)
    page.goto(address)
    wait_loaded(page)
    assert len(asked) > 10
    assert not [url for url in asked if re.match(r"(files/)?review", url)]
    page.locator(".tab-container:visible > [role=tab]", has_text="Review").click()
    opened(page)
    files = {file_address(name) for name in ("review.js", "review.css")}
    assert page.get_attribute(VIEW, "data-masked") == "each"  # nothing gives a side away
    assert {*files, "review/sets", "review/sets/study/masked/0-1"} <= set(asked)
    assert "review/sets/study" not in asked
    assert "cannot be unseen" not in page.inner_text(VIEW)
    page.remove_listener("request", hear)
    page.select_option(".rw-bar select >> nth=2", "")
    page.wait_for_selector(f"{VIEW}[data-masked=''] .rw-answer >> nth=1")
    page.select_option(".rw-bar select >> nth=0", "small")
    page.wait_for_selector(f"{VIEW} .rw-status:text('small: 22 prompts')")
    fill_new_set(page)
    page.wait_for_selector(f"{VIEW} .rw-status:text('mine: 2 prompts')")
    assert page.locator(".rw-bar select >> nth=0 >> option").all_inner_texts()[-1] == "mine (yours)"
    page.reload()
    opened(page)
    page.wait_for_selector(f"{VIEW} .rw-status:text('mine: 2 prompts')")
    page.click(".rw-part >> nth=2 >> summary")
    page.fill(".rw-prompts", "Say one.")
    page.fill(".rw-ways", "fast")
    page.click(".rw-begin")
    page.wait_for_selector(".rw-making .rw-progress:text('Give 2 to 3 ways')")


REACHABLE = """() => {
  const { reviewView } = document.querySelector(".mars-review");
  const found = [], seen = new Set(), left = [reviewView];
  while (left.length) {
    const value = left.pop();
    if (value === null || typeof value !== "object" || value instanceof Node) continue;
    if (value === window || seen.has(value)) continue;
    seen.add(value);
    if (value instanceof Map || value instanceof Set) left.push(...value.keys(), ...value.values());
    if (value instanceof Promise) found.push("a promise");
    for (const [name, held] of Object.entries(value)) {
      const isOf = ["answers", "marks", "mark"].includes(name);
      if (isOf && held && Object.keys(held).length) found.push(name);
      left.push(held);
    }
  }
  const { prompts, maskeds } = reviewView;
  return { found, asked: prompts.asked.size, masked: maskeds.asked.size };
}"""
"""What the tab's script holds of answers: all that can be reached but promises of masked pairs."""


def test_what_was_read_openly_goes_when_sides_are_masked(arrive: Arrive, address: str) -> None:
    page = arrive(f"{address}#review=small&beside=1")
    opened(page)
    for _ in range(4):  # some of them differ, and only those are drawn
        page.keyboard.press("a")
        press(page, "j")
    for part, drawn in enumerate((".rw-rows .rw-row", ".rw-machine td", ".js-plotly-plot")):
        summary = page.locator(f".rw-part >> nth={min(part, 1)} >> summary")
        summary.click()
        page.wait_for_selector(f"{VIEW} {drawn} >> nth=0")
        summary.click()  # closed again, it keeps what it drew
    told = page.evaluate(REACHABLE)
    assert told["asked"] > 4
    assert {"answers", "marks", "mark"} <= set(told["found"])
    assert "cannot be unseen" not in page.inner_text(VIEW)
    page.select_option(".rw-bar select >> nth=2", "end")
    page.wait_for_selector(f"{VIEW}[data-masked=end] .rw-answer h3:text('Left')")
    told = page.evaluate(REACHABLE)
    assert told["asked"] == 0
    assert told["masked"] > 0
    assert not {"answers", "marks", "mark"} & set(told["found"])
    drawn = page.locator(f"{VIEW} .rw-answers, {VIEW} .rw-part").evaluate_all(
        "nodes => nodes.map((node) => node.outerHTML).join()"
    )
    for gone in ("rw-marks", "rw-strip", "word 4", "<td", "svg-container"):
        assert gone not in drawn
    said = "You have read 5 prompts of this set with the sides in sight, which cannot be unseen"
    assert said in page.inner_text(f"{VIEW}")
    page.keyboard.press("a")
    press(page, "j")
    page.reload()  # nor does that make it unseen
    opened(page)
    assert said in page.inner_text(f"{VIEW}")
    page.keyboard.press("d")
    page.wait_for_selector(f"{VIEW}[data-judged='6']")
    rows = page.evaluate(STORED)["rows"]
    masked = [row for row in rows if row["is_masked"]]
    assert {row["item"]: row["is_revealed"] for row in masked} == {"p4": True, "p5": False}
    assert not [row for row in masked if {"left", "right"} & row.keys()]


STEPS = """async () => {
  const root = document.querySelector(".mars-review");
  const taken = [];
  for (let n = 0; n < 9; n += 1) {
    const [from, at] = [performance.now(), root.dataset.at];
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "j", bubbles: true }));
    while (root.dataset.at === at) await new Promise((go) => setTimeout(go));
    taken.push(performance.now() - from);
    await new Promise((go) => setTimeout(go, 200));
  }
  return taken.sort((a, b) => a - b)[4];
}"""


def choose(page: playwright.Page, name: str, said: str) -> float:
    """Open a set of the list; milliseconds until it is read."""
    before = page.evaluate("performance.now()")
    page.select_option(".rw-bar select >> nth=0", name)
    page.wait_for_selector(f"{VIEW} .rw-status:text('{said}')")
    opened(page)
    taken: float = page.evaluate("performance.now()") - before
    return taken


@pytest.mark.timed
def test_500_prompts_by_four_ways_open_and_turn_at_once(
    arrive: Arrive, address: str, handlers: Handlers
) -> None:
    """By a server that has not read the set yet; on a busy machine three attempts count."""
    page = arrive(f"{address}#review=study")
    opened(page)
    taken = [choose(page, "large", "large: 500 prompts")]
    while taken[-1] >= 2000 and len(taken) < 3:
        choose(page, "study", "Five ways, 100 prompts")
        handlers.library.forget("large")
        taken.append(choose(page, "large", "large: 500 prompts"))
    assert min(taken) < 2000
    page.click(".rw-wide")
    page.wait_for_selector(".rw-answer >> nth=3")
    assert page.evaluate(STEPS) < 100
    page.click(".rw-part >> nth=0 >> summary")
    page.wait_for_selector(".rw-rows .rw-row")
    assert page.locator(".rw-rows .rw-row").count() < 60
    page.locator(".rw-all .rw-scroll").evaluate("node => { node.scrollTop = node.scrollHeight; }")
    page.wait_for_selector(".rw-goto:text('p499')")
    page.fill(".rw-find", "Prompt 49")
    assert page.inner_text(".rw-count") == "11 of 500 prompts"
    assert "f.text=Prompt" in page.url


def test_with_the_key_each_judgement_is_a_row_of_the_server(
    arrive: Arrive, address: str, review: ReviewSet
) -> None:
    page = arrive(f"{address}#review=small&masked=each&beside=1")
    opened(page)
    page.fill(".rw-key", "wrong")
    page.keyboard.press("Tab")
    page.wait_for_selector(".rw-said:text('This is not the review key')")
    page.fill(".rw-key", "the key of a test")
    page.keyboard.press("Tab")
    page.wait_for_selector(".rw-where:text('on this server')")
    page.locator(VIEW).focus()
    page.keyboard.press("d")
    page.wait_for_selector(".rw-marks >> nth=1")  # told after the judgement
    page.wait_for_selector(f"{VIEW}[data-unsent='0'][data-judged='1']")
    store = JudgementStore(review._folder.parent / "judgements.sqlite")
    [row] = store.rows(review.id)
    assert (row.item, row.preference, row.is_masked, row.is_revealed) == (
        "p2",
        "right",
        True,
        False,
    )
    right = page.inner_text(".rw-answer >> nth=1 >> h3")
    assert row.right == right
    page.keyboard.press("1")
    page.wait_for_function("document.querySelector('.mars-review').dataset.unsent === '0'")
    page.wait_for_timeout(300)
    assert [row.is_revealed for row in store.rows(review.id)] == [False, True]


def test_prompts_of_a_file_are_read_as_the_file_holds_them(arrive: Arrive, address: str) -> None:
    """A table in UTF-16, corrected in the box; then what is no text, and what is typed instead."""
    page = arrive(f"{address}#review=small")
    opened(page)
    page.click(".rw-part >> nth=2 >> summary")
    table = "prompt;id\nSay one.;7\nSay tow.;8\n".encode("utf-16")
    page.set_input_files(".rw-promptfile", {"name": "x.csv", "mimeType": "", "buffer": table})
    page.wait_for_selector(".rw-progress:text('x.csv is in the box above.')")
    text = page.input_value(".rw-prompts")
    assert text == "prompt;id\nSay one.;7\nSay tow.;8\n"
    page.fill(".rw-prompts", text.replace("tow", "two"))
    assert prompts_posted(page) == [("7", "Say one."), ("8", "Say two.")]

    latin = {"name": "y.csv", "mimeType": "", "buffer": "prompt\nné\n".encode("latin-1")}
    page.set_input_files(".rw-promptfile", latin)
    page.wait_for_selector(".rw-progress:text('This file is not text in UTF-8')")
    page.fill(".rw-prompts", "Say; three.")
    assert prompts_posted(page) == [("1", "Say; three.")]


def prompts_posted(page: playwright.Page) -> list[tuple[str, str]]:
    """Id and text of each prompt that the server reads out of what the page posts."""
    posted: list[dict[str, str]] = []

    def hear(route: playwright.Route) -> None:
        posted.append(route.request.post_data_json)
        route.fulfill(status=400, json={"detail": f"Post {len(posted)}."})

    page.route("**/review/make", hear)
    page.click(".rw-begin")
    page.wait_for_selector(".rw-progress:text('Post 1.')")
    page.unroute("**/review/make")
    [told] = posted
    found = read_prompts(told["prompts"], name=told["file"])
    return [(item.id, item.prompt) for item in found.items]
