"""What the Frontier tab shows of result files, by hand and of those in the repository."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import needs_browser, playwright
from live_page import run
from scripted_page import ScriptedBackend

from app.frontier import RESULTS, Failure, frontier_json, read_sets
from app.serving.settings import AppSettings
from mars_runtime.settings import DecodeSettings

EXACT = {"value": 1.0, "low": 1.0, "high": 1.0}
HALF = {"value": 0.5, "low": 0.25, "high": 0.75}
AR = {"method": "ar", "tau": 1.0, "block_size": 1}
BOLD = {"tau": 0.5, "block_size": 4}


def row(settings: dict[str, Any], tpf: dict[str, float], **more: Any) -> dict[str, Any]:
    return {"checkpoint": "some", "settings": settings, "tpf": tpf, **more}


def write(folder: Path, name: str, told: dict[str, Any]) -> None:
    (folder / f"{name}.json").write_text(json.dumps(told), encoding="utf-8")


def test_requests_stand_at_their_agreement_and_tasks_at_their_accuracy(tmp_path: Path) -> None:
    rows = [row(AR, EXACT, agreement=1.0), row(BOLD, HALF, agreement=0.65)]
    write(tmp_path, "chat_evaluation", {"requests": rows})
    write(tmp_path, "evaluation", {"averages": [row(AR, EXACT, accuracy=HALF)] * 2})
    requests, tasks = read_sets(tmp_path)
    assert (requests.quality, tasks.quality) == ("agreement", "accuracy")
    assert [point.name for point in requests.points] == ["AR", "MARS τ=0.5 B=4"]
    assert requests.points[1].quality.value == 0.65
    assert requests.points[1].settings == DecodeSettings(tau=0.5, block_size=4)
    assert tasks.points[0].quality.low == 0.25


def test_thresholds_that_adapt_are_a_set_beside_fixed_ones(tmp_path: Path) -> None:
    held = {**BOLD, "tau": 0.0, "threshold": "agreement", "target": 0.9}
    rows = [row(way, HALF, accuracy=HALF) for way in (BOLD, held)]
    write(tmp_path, "thresholds", {"averages": rows})
    (found,) = read_sets(tmp_path)
    assert found.title == "some: thresholds that adapt, on six families of tasks"
    assert [point.settings.threshold for point in found.points] == ["fixed", "agreement"]


def test_benchmarks_are_sets_of_their_own(tmp_path: Path) -> None:
    def cell(task: str, settings: dict[str, Any]) -> dict[str, Any]:
        return row(settings, EXACT, accuracy=HALF, task=task, num_answers=50)

    cells = [cell(task, way) for task in ("bbh_local", "humaneval_sandbox") for way in (AR, BOLD)]
    write(tmp_path, "lm_eval", {"cells": [*cells, cell("ifeval_local", AR)]})
    found = read_sets(tmp_path)
    assert [one.title for one in found] == [
        "some: BIG-Bench Hard, without examples (50 prompts)",
        "some: HumanEval (50 prompts)",
    ]


def test_every_method_is_one_set_though_some_have_a_checkpoint_of_their_own(tmp_path: Path) -> None:
    twin = {"method": "block_diffusion", "tau": 0.95, "block_size": 8}
    drafted = {"method": "speculative", "draft": "small", "masked": "both"}
    ways = [
        ("some", AR),
        ("some", drafted),
        *(("some", {**drafted, "masked": place}) for place in ("none", "target", "draft")),
        ("twin", twin),
    ]
    rows = [{**row(way, EXACT, accuracy=HALF), "checkpoint": name} for name, way in ways]
    write(tmp_path, "methods", {"averages": rows})
    (found,) = read_sets(tmp_path)
    assert [(point.checkpoint, point.name) for point in found.points] == [
        ("some", "AR"),
        ("some", "speculative small K=4, masks in both"),
        ("twin", "block diffusion τ=0.95 B=8 · twin"),
    ]


def test_what_goes_wrong_fits_the_page_and_says_no_figure() -> None:
    told = json.loads(frontier_json())["failures"]
    assert len({one["title"] for one in told}) == len(told) >= 4
    for one in told:
        assert 0 < len(one["prompt"]) <= AppSettings().max_prompt_chars
        assert not re.search(r"\d %|\d tokens", one["why"])


def test_nothing_measured_is_nothing_shown(tmp_path: Path) -> None:
    assert read_sets(tmp_path) == []


def test_the_results_of_the_repository_are_shown_with_the_papers_apart() -> None:
    told = json.loads(frontier_json())
    assert {one["checkpoint"] for one in told["sets"]} >= {"mars-smollm2", "mars-tiny"}
    for one in told["sets"]:
        assert (RESULTS / one["source"]).is_file()
        assert all(0 <= point["quality"]["value"] <= 1 for point in one["points"])
        assert all(point["tpf"]["value"] >= 1 for point in one["points"])
    assert "2604.07023" in told["paper"]["source"]


def test_the_papers_numbers_are_those_of_its_tables() -> None:
    """Where the tables are at hand."""
    path = Path(__file__).parents[3] / "shared" / "reference" / "mars_paper.json"
    if not path.is_file():
        pytest.skip("the paper's tables are not beside this repository")
    tables = json.loads(path.read_text(encoding="utf-8"))
    paper = json.loads((RESULTS / "paper.json").read_text(encoding="utf-8"))
    sweep = tables["threshold_sweep_table8"]
    places = {name: place for place, name in enumerate(sweep["columns"])}
    for curve in paper["curves"]:
        heads = [f"{curve['benchmark']} B={curve['block_size']}"]
        heads.append(f"{heads[0]} [acc,TPF]")
        (place,) = {places[head] for head in heads if head in places}
        rows = sweep[curve["checkpoint"]]
        assert [(p["tau"], [p["accuracy"], p["tpf"]]) for p in curve["points"]] == [
            (each[0], each[place]) for each in rows
        ]
    measured = tables["multi_token_table4"]
    for row in paper["benchmarks"]:
        if row["name"].endswith("τ=0.95"):
            for name, value in row["accuracy"].items():
                assert value == measured["accuracy"]["0.5B"]["B=4"][name]
                assert row["tpf"][name] == measured["tokens_per_forward"]["0.5B"]["B=4"][name]


VIEW = "#frontier .mars-frontier"
HEADERS = "document.querySelector('#race .mars-race').lineView.run.lanes.map((l) => l.header)"
FAILURE = Failure(
    "Too bold", "See why.", "Fail.", "scripted", DecodeSettings(tau=0.5, block_size=4)
)
SPECULATIVE = {"method": "speculative", "draft": "a-draft-of-a-long-name", "masked": "both"}
LOSSLESS = {"tau": 0.0, "block_size": 8, "lossless": True, "groups": "every"}


def estimate(value: float) -> dict[str, float]:
    return {"value": value, "low": value * 0.9, "high": min(1.0, value * 1.1)}


@pytest.fixture(scope="module", autouse=True)
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Results of the page's only checkpoint, and the paper's own."""
    folder = tmp_path_factory.mktemp("results")
    ways = [(AR, 1.0, 1.0), (BOLD, 0.6, 1.8), (LOSSLESS, 1.0, 2.4)]
    rows = [
        {"checkpoint": "scripted", "settings": way, "agreement": quality, "tpf": estimate(tpf)}
        for way, quality, tpf in ways
    ]
    drafted = {**rows[0], "settings": SPECULATIVE}
    told = [{**row, "accuracy": estimate(0.7)} for row in (*rows, drafted)]
    (folder / "chat_evaluation.json").write_text(json.dumps({"requests": rows}), encoding="utf-8")
    (folder / "evaluation.json").write_text(json.dumps({"averages": told}), encoding="utf-8")
    (folder / "paper.json").write_bytes(Path(frontier.RESULTS / "paper.json").read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frontier, "RESULTS", folder)
        patch.setattr(frontier, "failures", lambda: [FAILURE])
        yield


@pytest.fixture
def page(
    visit: Callable[..., playwright.Page], scripted_backend: ScriptedBackend
) -> playwright.Page:
    scripted_backend.forward_seconds = 0.001
    opened = visit("?prompt=Say+it.&tau=0.95&lossless=false&max_new_tokens=24")
    opened.wait_for_function("document.querySelector('#tau input[type=range]').value === '0.95'")
    return opened


def open_tab(page: playwright.Page) -> None:
    page.get_by_role("tab", name="Frontier").click()
    page.wait_for_selector(f"{VIEW}[data-points='3']")


@needs_browser
def test_every_way_stands_in_chart_and_table(page: playwright.Page) -> None:
    open_tab(page)
    names = ["AR", "MARS τ=0.5 B=4", "lossless τ=0 B=8 groups"]
    drawn = page.locator(f"{VIEW} .fv-point")
    assert [drawn.nth(n).get_attribute("data-name") for n in range(3)] == names
    assert page.locator(f"{VIEW} .fv-open").all_inner_texts() == names[::-1]
    best = page.locator(f"{VIEW} .fv-point[data-best=true]")
    assert best.get_attribute("data-name") == names[2]
    assert "Run something on the Live tab" in page.inner_text(f"{VIEW} .fv-said")
    assert page.locator(f"{VIEW} .fv-layer").is_hidden()  # nobody measured the paper's agreement
    chart = page.locator(f"{VIEW} .fv-chart svg").bounding_box()
    named = page.locator(f"{VIEW} .fv-way").all()
    assert len(named) >= 1
    for box in (each.bounding_box() for each in named):  # no name is cut
        assert chart["x"] <= box["x"]
        assert box["x"] + box["width"] <= chart["x"] + chart["width"]


@needs_browser
@pytest.mark.parametrize("width", [1280, 390])
def test_no_column_of_the_table_is_out_of_sight(page: playwright.Page, width: int) -> None:
    open_tab(page)
    page.select_option(f"{VIEW} select", index=1)
    page.wait_for_selector(f"{VIEW}[data-points='4']")
    page.set_viewport_size({"width": width, "height": 900})
    table = page.locator(f"{VIEW} .fv-table")
    assert "a-draft-of-a-long-name K=4, masks in both" in table.inner_text()
    assert table.evaluate("e => e.scrollWidth <= e.clientWidth")


@needs_browser
def test_the_papers_curves_are_a_layer_named_as_such(page: playwright.Page) -> None:
    open_tab(page)
    page.select_option(f"{VIEW} select", index=1)
    assert page.locator(f"{VIEW} .fv-curve").count() == 0
    page.check(f"{VIEW} .fv-layer input")
    assert page.locator(f"{VIEW} .fv-curve").count() == 4
    assert all("(paper)" in name for name in page.locator(f"{VIEW} .fv-name").all_text_contents())
    assert "2604.07023" in page.inner_text(f"{VIEW} .fv-source")


@needs_browser
def test_the_visitors_run_is_a_point_and_a_point_opens_as_a_run(page: playwright.Page) -> None:
    run(page)
    open_tab(page)
    assert page.locator(f"{VIEW} circle.fv-own").count() == 1
    assert "1.00 tokens per forward, AR's own text" in page.inner_text(f"{VIEW} .fv-said")
    before = page.get_attribute("#race .mars-race", "data-run")
    page.locator(f"{VIEW} .fv-point[data-name='MARS τ=0.5 B=4'] .fv-dot").click()
    page.wait_for_selector(f"#race .mars-race[data-state=finished]:not([data-run='{before}'])")
    header, _ = page.evaluate(HEADERS)
    assert header["prompt"] == "Say it."
    assert header["checkpoint"] == "scripted"
    chosen = header["settings"]
    assert (chosen["tau"], chosen["block_size"], chosen["lossless"]) == (0.5, 4, False)
    open_tab(page)
    assert "4.00 tokens per forward" in page.inner_text(f"{VIEW} .fv-said")
    page.select_option(f"{VIEW} select", index=1)
    assert page.locator(f"{VIEW} path.fv-own").count() == 1


@needs_browser
def test_a_way_opens_from_the_table_by_the_keyboard(page: playwright.Page) -> None:
    open_tab(page)
    page.locator(f"{VIEW} .fv-open", has_text="lossless").focus()
    assert "lossless τ=0 B=8 groups" in page.inner_text(f"{VIEW} .fv-readout")
    page.keyboard.press("Enter")
    page.wait_for_selector("#race .mars-race[data-state=finished]")
    mars, _ = page.evaluate(HEADERS)
    assert mars["settings"]["lossless"] is True
    assert mars["settings"]["groups"] == "every"


@needs_browser
def test_what_goes_wrong_opens_as_a_run(page: playwright.Page) -> None:
    open_tab(page)
    assert page.inner_text(f"{VIEW} .fv-failures li") == "Too bold: See why."
    page.locator(f"{VIEW} .fv-failure", has_text="Too bold").click()
    page.wait_for_selector("#race .mars-race[data-state=finished]")
    mars, plain = page.evaluate(HEADERS)
    assert (mars["prompt"], mars["settings"]["tau"], mars["settings"]["lossless"]) == (
        *("Fail.", 0.5, False),
    )
    assert plain["settings"]["method"] == "ar"
