"""Links: controls and runs."""

from __future__ import annotations

import json

import pytest
import race_scenes
import sample_traces as samples
from browser import needs_browser, opened, playwright
from live_page import ROOT, run, wait_loaded
from page_texts import texts
from scripted_page import TEXT, ScriptedBackend

from app.live.order import IGNORED, read_link
from app.live.shared_runs import read_shared
from app.ui.controls import Limits, RefusalError


def limits_of(checkpoint: object) -> Limits:
    if checkpoint not in ("small", "deep"):
        raise RefusalError("checkpoint", "Choose a model from the list.")
    return Limits(40, 100, 4 if checkpoint == "small" else 12)


def read(**query: str) -> tuple[dict[str, object], str]:
    return read_link(query, limits_of, "small")


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ({}, {}),
        ({"tau": "1"}, {"tau": 1}),  # what is not named is not touched
        ({"__theme": "dark", "__sign": "abc", "given": "[1]", "pace": "3"}, {}),
        ({"view": "ar", "lanes": "mars"}, {"view": ["mars"]}),
        ({"view": "api", "tau": "1"}, {"tau": 1}),  # gradio's own
        ({"block_size": "auto", "lossless": "true"}, {"block_size": "auto", "lossless": True}),
        ({"prompt": "<b>Say</b>.", "seed": "7"}, {"prompt": "<b>Say</b>.", "seed": 7}),
        ({"temperature": "0", "metric": "margin"}, {"temperature": 0, "metric": "margin"}),
        ({"block_size": "9", "checkpoint": "deep"}, {"block_size": 9, "checkpoint": "deep"}),
    ],
)
def test_a_link_sets_what_it_names(query: dict[str, str], values: dict[str, object]) -> None:
    assert read(**query) == (values, "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tau", "2"),
        ("tau", "9" * 5000),
        ("block_size", "9"),  # of another checkpoint
        ("lossless", "perhaps"),
        ("lanes", "both"),
        ("checkpoint", "../etc"),
        ("prompt", " "),
        ("prompt", "a" * 41),
        ("prompt", "a\0b"),
    ],
)
def test_a_bad_value_is_named_in_a_sentence_and_the_rest_applies(name: str, text: str) -> None:
    good = {"tau": "0.5", "seed": "3"}
    good.pop(name, None)
    values, sentence = read(**good, **{name: text})
    assert values == {key: float(value) for key, value in good.items()}
    assert sentence.startswith(f"{IGNORED} {name}: ")
    assert len(sentence) < 160


MOST = 4_000_000
HEAD = {"run": "", "lanes": [{"lane": "mars", "title": "<b>x</b>"}, {"lane": "ar", "title": "y"}]}


def test_a_run_is_rewritten_and_marked_as_recorded() -> None:
    lanes = samples.lanes(race_scenes.PROSE)
    lines = [f"{lane}\t{line}" for lane, lane_lines in lanes.items() for line in lane_lines]
    shared = read_shared("\n".join([json.dumps(HEAD), *lines]) + "\n", "", MOST)
    head, *lines = shared["value"].splitlines()
    about = json.loads(head)
    assert [lane["title"] for lane in about["lanes"]] == ["MARS", "plain AR"]
    assert about["recorded"]
    assert about["run"] != ""
    assert {line.partition("\t")[0] for line in lines} == {"mars", "ar"}
    again = read_shared(shared["value"], "", MOST)
    assert again["value"].splitlines()[1:] == lines


@pytest.mark.parametrize(
    "broken",
    [
        None,
        7,
        "",
        "no JSON\n",
        "[" * 100_000,
        *(json.dumps({"lanes": lanes}) for lanes in ([], [{"lane": "else"}], [{"lane": ["mars"]}],
                                                     [{"lane": "mars"}, {"lane": "mars"}])),
        json.dumps({"lanes": [{"lane": "mars"}]}) + '\nmars\t{"type": "step"}',
        "x" * (MOST + 1),
    ],
)  # fmt: skip
def test_what_is_no_run_is_one_sentence(broken: object) -> None:
    answer = read_shared(broken, "", MOST)
    assert set(answer) == {"error"}
    assert answer["error"].endswith(".")


@needs_browser
def test_a_link_replays_the_run(address: str, scripted_backend: ScriptedBackend) -> None:
    scripted_backend.forward_seconds = 0.001
    lanes = f"document.querySelector('{ROOT}').lineView.run.lanes"
    written = f"{lanes}.map((lane) => [lane.ids, lane.steps.map((s) => s.seconds)])"
    with opened(f"{address}?prompt=Say+it.&max_new_tokens=30&block_size=3") as page:
        wait_loaded(page)
        page.wait_for_function("document.querySelector('#prompt textarea').value === 'Say it.'")
        assert page.input_value("#block_size input") == "3"
        run(page)
        page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        page.locator(f"{ROOT} .rv-top .ex-menu > summary").click()
        page.get_by_role("button", name=texts()["SHARE"]["run"]["hint"]).click()
        page.wait_for_selector(f"{ROOT} .ex-said:text('{texts()['SHARE']['runCopied']}')")
        link = page.evaluate("window.copied")
        assert "#run=" in link
        wanted = page.evaluate(written)
    with opened(link) as other:
        other.wait_for_selector(f"{ROOT}[data-state=finished] .rv-recorded:not([hidden])")
        assert other.evaluate(written) == wanted
        other.wait_for_selector(f"{ROOT} .rv-pane:has-text('{TEXT[:8]}')")
        other.wait_for_function("document.querySelector('#prompt textarea').value === 'Say it.'")
        # Gradio sets the controls one after the other, the prompt first.
        playwright.expect(other.locator(f"{ROOT} .rv-foreign")).to_have_text("")
        other.goto("about:blank")
        other.goto(link.partition("#")[0] + "#run=broken")
        other.wait_for_selector(f"{ROOT} :text('Ask for a new link')")
