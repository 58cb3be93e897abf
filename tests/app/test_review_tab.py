"""Stories of a reviewer in the Review tab: judging masked pairs by keys, reading the bundled study,
making a set. Skipped where chromium is not installed; needs no weights.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from browser import Arrive, listening, needs_browser, playwright
from live_page import open_tab, wait_loaded
from review_page import EVIL, KEY, write_set
from scripted_page import TEXT, ScriptedBackend, eventually, make_handlers, page_served

from app.handlers import Handlers
from app.ui.files import file_address
from mars_runtime.review import exports
from mars_runtime.review.judgements import current
from mars_runtime.review.prompts import Item
from mars_runtime.review.sets import ReviewSet

pytestmark = needs_browser

VIEW = ".mars-review"
SET, PROMPTS, MASKED = (f".rw-bar select >> nth={number}" for number in range(3))
ALL, FIGURES, NEW = (f".rw-part >> nth={number} >> summary" for number in range(3))
NUM_ITEMS, NUM_SAME = 10, 2
SAID = {"a": "left", "s": "equal", "d": "right"}
SEEN = "prompts of this set; votes on them are marked as unblinded"
STORED = """async ([name, store]) => {
  const opened = await new Promise((done) => {
    const request = indexedDB.open(name, 1);
    request.onsuccess = () => done(request.result);
  });
  const request = opened.transaction(store).objectStore(store).getAll();
  const rows = await new Promise((done) => { request.onsuccess = () => done(request.result); });
  opened.close();
  return rows;
}"""
ROWS, SETS = ["mars-review-rows", "rows"], ["mars-review-sets", "sets"]
FORBID = """
const refuse = () => { throw new DOMException("The operation is insecure.", "SecurityError"); };
for (const name of ["getItem", "setItem", "removeItem"]) Storage.prototype[name] = refuse;
IDBFactory.prototype.open = refuse;
"""
"""A frame in a browser without third-party cookies."""


@pytest.fixture(scope="module")
def backend() -> ScriptedBackend:
    return ScriptedBackend(TEXT)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten prompts with two methods, two of them with equal answers; 500 prompts with four
    methods.
    """

    def small(number: int, way: int) -> str:
        doubled = "two " if way and number >= NUM_SAME else ""
        return f"{EVIL} one two {doubled}three {number}"

    def large(_: int, way: int) -> str:
        return " ".join(words[: 90 - way] + words[way:])

    folder, words = tmp_path_factory.mktemp("data"), [f"word{n}" for n in range(100)]
    items = [Item(f"p{n}", f"{EVIL} {n}") for n in range(NUM_ITEMS)]
    write_set(folder / "review" / "small", ["ar", "tau=0"], items, small)
    items = [Item(f"p{n}", f"Prompt {n}") for n in range(500)]
    write_set(
        folder / "review" / "large", ["ar", "tau=0", "tau=0.5", "tau=0.9"], items, large
    ).summarize()
    return folder


@pytest.fixture(scope="module")
def review(data: Path) -> ReviewSet:
    return ReviewSet.open(data / "review" / "small")


@pytest.fixture(scope="module")
def new_handlers(
    data: Path, backend: ScriptedBackend, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], Handlers]:
    folder = tmp_path_factory.mktemp("page")
    return lambda: make_handlers(folder, backend, port=0, data=str(data), review_key=KEY)


@pytest.fixture(scope="module")
def handlers(new_handlers: Callable[[], Handlers]) -> Handlers:
    return new_handlers()


@pytest.fixture(scope="module")
def address(handlers: Handlers) -> Iterator[str]:
    with page_served(handlers) as url:
        yield url


def opened(page: playwright.Page) -> playwright.Page:
    page.wait_for_selector(f"{VIEW}[data-phase=open] .rw-answer >> nth=1")
    return page


def press(page: playwright.Page, key: str) -> None:
    """Press a key that leads to another prompt."""
    before = page.get_attribute(VIEW, "data-at")
    page.keyboard.press(key)
    page.wait_for_selector(f"{VIEW}:not([data-at='{before}'])")


def stored(page: playwright.Page, where: list[str] = ROWS) -> list[dict[str, Any]]:
    stored_rows: list[dict[str, Any]] = page.evaluate(STORED, where)
    return stored_rows


def wait_stored(
    page: playwright.Page,
    is_so: Callable[[list[dict[str, Any]]], bool],
    where: list[str] = ROWS,
) -> None:
    """Wait until the browser has stored rows that meet a condition."""
    assert eventually(lambda: is_so(stored(page, where)), 90)


def downloaded(page: playwright.Page, form: str) -> str:
    with page.expect_download() as download:
        page.click(f"{VIEW} .rw-exports [data-form={form}]")
    return Path(download.value.path()).read_text("utf-8")


def test_prompts_are_judged_masked_by_keys_and_nothing_is_lost(
    arrive: Arrive, address: str, review: ReviewSet
) -> None:
    """Reloads, a second window, files out, and the file of another reviewer in."""
    bodies: list[tuple[str, str]] = []

    def hear(answer: playwright.Response) -> None:
        if "/review/" in answer.url and "view." not in answer.url:
            bodies.append((answer.url, answer.text()))

    page = arrive(f"{address}robots.txt")
    page.on("response", hear)
    page.goto(f"{address}#review=small&masked=end&beside=1")
    opened(page)
    count = NUM_ITEMS - NUM_SAME
    assert f"1 of {count}, {NUM_SAME} identical" in page.inner_text(".rw-place")
    pressed: dict[str, str] = {}
    for number in range(count):
        item = str(page.get_attribute(VIEW, "data-at"))
        pressed[item] = "asd"[number % 3]
        page.keyboard.press("n")
        assert re.search("doubled words|missing", page.inner_text(".rw-said"))
        for key in (pressed[item], "4", "Shift+Digit2"):
            page.keyboard.press(key)
        if number == 3:
            page.keyboard.press("t")
            page.keyboard.type("rep")
            page.keyboard.press("Enter")
            page.keyboard.press("Escape")
            page.keyboard.press("c")
            page.keyboard.type(f"{EVIL} jk")
            page.keyboard.press("Escape")
        if number == 4:  # undone, and said again
            page.keyboard.press("u")
            page.keyboard.press("Shift+Digit3")
        if number == 6:
            wait_stored(
                page,
                lambda rows, at=item: any(row["ratings"][1] for row in rows if row["item"] == at),
            )
            page.reload()
            opened(page)
            assert page.get_attribute(VIEW, "data-judged") == str(number + 1)
            assert page.get_attribute(VIEW, "data-at") == item
        if number < count - 1:
            press(page, "j")
    assert page.get_attribute(VIEW, "data-judged") == str(count)
    assert_no_side_is_known(page, bodies)

    second = page.context.new_page()
    second.goto(f"{address}#review=small&masked=end&beside=1")
    opened(second)
    assert second.get_attribute(VIEW, "data-judged") == str(count)
    second.keyboard.press("u")
    page.wait_for_selector(f"{VIEW}[data-unsent]")
    second.close()

    page.click(".rw-reveal")
    page.wait_for_selector(f"{VIEW}[data-masked=''] .rw-marks >> nth=1")
    judgements = exports.read_jsonl(downloaded(page, "jsonl"), review.id)
    actual = {row.item: row for row in current(judgements).values()}
    assert {item: row.preference for item, row in actual.items()} == {
        item: SAID[key] for item, key in pressed.items()
    }
    assert {row.is_masked for row in judgements} == {True}
    (noted,) = [row for row in actual.values() if row.note]
    assert (noted.note, noted.tags[0]) == (f"{EVIL} jk", ("repetition",))
    table = list(csv.DictReader(io.StringIO(downloaded(page, "csv"), newline="")))
    assert {line["item"]: line["preference"] for line in table} == {
        item: SAID[key] for item, key in pressed.items()
    }
    assert "&lt;img src=x" in downloaded(page, "html")
    scores = [
        example["score"] for example in json.loads(downloaded(page, "comparator"))["examples"]
    ]
    assert len([score for score in scores if score is not None]) == count

    bens = [
        {**row.as_json(), "id": f"ben{n}", "reviewer": "ben"}
        for n, row in enumerate(actual.values())
    ]
    text = exports.to_jsonl(review, [exports.read_judgement(ben) for ben in bens])
    page.set_input_files(".rw-file", {"name": "b.jsonl", "mimeType": "", "buffer": text.encode()})
    page.wait_for_selector(f".rw-said:text('{count} rows from b.jsonl added')")
    page.reload()
    page.wait_for_selector(f"{VIEW}[data-phase=open] .rw-marks >> nth=1")
    both = exports.read_jsonl(downloaded(page, "jsonl"), review.id)
    assert {row.id for row in judgements} < {row.id for row in both}
    assert sum(row.reviewer == "ben" for row in both) == count
    page.click(FIGURES)
    page.wait_for_selector(".rw-agreement:text('Krippendorff')")
    said = f"2 reviewers on {count} shared pairs: preference: 1"
    assert said in page.inner_text(".rw-agreement")
    page.remove_listener("response", hear)


def assert_no_side_is_known(page: playwright.Page, bodies: list[tuple[str, str]]) -> None:
    """Before the reveal, nothing that the browser received, stored or shows reveals which method
    wrote which text.
    """
    for row in stored(page):
        assert not {"left", "right"} & row.keys()
        assert row["sealed"]
        assert row["pair"] == ["ar", "tau=0"]
    urls = [url for url, _ in bodies]
    assert any("/masked/0-1/" in url for url in urls)
    assert not [url for url in urls if "/items/" in url or "/reveal" in url]
    for url, body in bodies:
        if "/masked/0-1/" in url:
            text = json.dumps({**json.loads(body), "sealed": ""})  # which may hold any letters
            assert not re.search('tau|"ar"', text)
    assert "tau" not in page.locator(f"{VIEW} .rw-answers").evaluate("node => node.outerHTML")
    for hidden in (".rw-marks", ".rw-strip", ".rw-open", ".rw-exports", ".rw-wide"):
        assert page.locator(f"{VIEW} {hidden}:visible").count() == 0
    assert "word" not in page.locator(f"{VIEW} .rw-rows").evaluate("node => node.textContent")


def test_the_study_opens_is_read_by_keys_and_opens_in_live(arrive: Arrive, address: str) -> None:
    page = arrive(f"{address}#review=study&at=chat-4&beside=2&f.category=chat")
    opened(page)
    assert "Five ways, 100 prompts" in page.inner_text(f"{VIEW} .rw-status")
    assert page.inner_text(".rw-place") == "4 of 16"
    assert page.inner_text(".rw-count") == "16 of 100 prompts"
    assert page.locator(".rw-answer >> nth=1 >> .rw-strip rect").count() > 50
    assert page.locator(".rw-otherwise").first.get_attribute("title").startswith("AR would write")
    page.keyboard.press("n")
    assert page.locator(".rw-now").count() >= 2
    page.locator(".rw-answer >> nth=1 >> .rw-strip .rw-b4").first.click()
    assert page.locator(".rw-lit").count() == 1
    page.click(".rw-wide")
    page.wait_for_selector(".rw-answer >> nth=4")
    page.keyboard.press("o")
    page.wait_for_selector("#race .mars-race[data-state=finished] .rv-recorded:visible")
    assert "Five ways, 100 prompts, chat-4" in page.inner_text("#race .rv-recorded")


def test_what_was_read_openly_is_named_once_sides_are_masked(arrive: Arrive, address: str) -> None:
    """What was drawn of it goes, what was read stays known, also after a reload."""
    page = arrive(f"{address}#review=small&beside=1")
    opened(page)
    for _ in range(4):
        page.keyboard.press("a")
        press(page, "j")
    for part, drawn in ((ALL, ".rw-rows .rw-row"), (FIGURES, ".js-plotly-plot")):
        page.click(part)
        page.wait_for_selector(f"{VIEW} {drawn} >> nth=0")
        page.click(part)  # closed again, it keeps what it drew
    assert SEEN not in page.inner_text(VIEW)
    page.select_option(MASKED, "end")
    page.wait_for_selector(f"{VIEW}[data-masked=end] .rw-answer h3:text('Left')")
    drawn = page.locator(f"{VIEW} .rw-answers, {VIEW} .rw-part").evaluate_all(
        "nodes => nodes.map((node) => node.outerHTML).join()"
    )
    assert not re.search("rw-marks|rw-strip|word 4|<td|svg-container", drawn)
    assert f"You have seen the labels of 5 {SEEN}" in page.inner_text(VIEW)
    page.keyboard.press("a")
    press(page, "j")
    page.reload()
    opened(page)
    assert f"You have seen the labels of 5 {SEEN}" in page.inner_text(VIEW)
    page.keyboard.press("d")
    page.wait_for_selector(f"{VIEW}[data-judged='6']")
    wait_stored(page, lambda rows: len(rows) == 6)
    masked = [row for row in stored(page) if row["is_masked"]]
    assert sorted(row["is_revealed"] for row in masked) == [False, True]
    assert not [row for row in masked if {"left", "right"} & row.keys()]


def fill_new_set(page: playwright.Page, ways: str = "ar\ntau=0,B=4\nlossless,B=4") -> None:
    page.click(NEW)
    page.fill(".rw-prompts", "Say one.\nSay two.")
    page.fill(".rw-ways", ways)
    page.fill(".rw-limit", "24")
    page.fill(".rw-setname", "mine")
    page.click(".rw-begin")


def test_a_set_is_made_on_the_page_and_stays_in_the_browser(arrive: Arrive, address: str) -> None:
    """Until the tab is opened, neither its script nor its style nor a set is requested."""
    page = arrive(f"{address}robots.txt")
    requests: list[str] = []

    def hear(request: playwright.Request) -> None:
        requests.append(request.url.removeprefix(address))

    page.on("request", hear)
    page.goto(address)
    wait_loaded(page)
    assert not [url for url in requests if re.match(r"(files/)?review", url)]
    open_tab(page, "sets")
    opened(page)
    files = {file_address(name) for name in ("review.js", "review.css")}
    assert page.get_attribute(VIEW, "data-masked") == "each"  # nothing gives a side away
    assert {*files, "review/sets", "review/sets/study/masked/0-1"} <= set(requests)
    assert "review/sets/study" not in requests
    page.remove_listener("request", hear)
    page.select_option(MASKED, "")
    page.wait_for_selector(f"{VIEW}[data-masked=''] .rw-answer >> nth=1")
    fill_new_set(page)
    page.wait_for_selector(f"{VIEW} .rw-status:text('mine: 2 prompts')")
    assert page.locator(f"{SET} >> option").all_inner_texts()[-1] == "mine (yours)"
    page.reload()
    opened(page)
    page.wait_for_selector(f"{VIEW} .rw-status:text('mine: 2 prompts')")
    fill_new_set(page, "fast")
    page.wait_for_selector(".rw-making .rw-progress:text('Choose 2 to 3 methods')")


def test_review_opens_and_judges_without_storage(browser: playwright.Browser, address: str) -> None:
    with closing(browser.new_context()) as context, listening() as listen:
        context.add_init_script(FORBID)
        page = context.new_page()
        listen(page, address)
        page.goto(f"{address}#review=study")
        opened(page)
        page.click(f"{VIEW} .rw-answer >> nth=0")
        page.keyboard.press("a")
        page.wait_for_selector(f"{VIEW} [aria-pressed=true]")
