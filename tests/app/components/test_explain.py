"""How it works in a real browser: its pictures against what the runtime itself computes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from browser import needs_browser, playwright, visiting
from explain_page import document

from app.ui import assets
from app.ui.assets import facts
from app.ui.recordings import FOLDER, read_value
from app.ui.views import ExplainView
from mars_runtime.acceptance import accept_prefix
from mars_runtime.folds import row_steps
from mars_runtime.lab.training.streams import block_ids, two_stream_mask
from mars_runtime.trace import Trace

SHAPES = [(4, 0, 1), (12, 4, 4), (12, 0, 4), (13, 3, 5), (24, 7, 8), (9, 8, 2)]
PICTURES = "document.querySelector('.mars-explain').pictures"


def test_figures_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = dict.fromkeys(facts(), "<b>1 & 2</b>")
    monkeypatch.setattr(assets, "facts", lambda: hostile)
    assert "&lt;b&gt;1 &amp; 2&lt;/b&gt;" in assets.explain_page()
    # the rows, which consist of numbers only
    assert assets.explain_page().count("<b>1 & 2</b>") == 1


@pytest.fixture(scope="module")
def page() -> Iterator[playwright.Page]:
    """The page, loaded once; nothing in it may fail or ask anybody."""
    if playwright is None:
        pytest.skip("playwright is not installed")
    with visiting() as take:
        opened = take("about:blank")
        opened.emulate_media(reduced_motion="no-preference")
        opened.set_viewport_size({"width": 1400, "height": 900})
        opened.set_content(document())
        places = "document.querySelectorAll('[data-picture]').length"
        opened.wait_for_function(f"Object.keys({PICTURES}).length === {places}")
        yield opened


def trace_of(name: str, lane: str) -> Trace:
    return read_value((FOLDER / f"{name}.txt").read_text("utf-8"))[lane]


def runtime_mask(length: int, prompt: int, block_size: int) -> list[list[bool]]:
    """What training masks with: whole blocks, each position of the response masked."""
    blocks = block_ids(length, torch.tensor([prompt]), torch.tensor([block_size]), block_size)
    noisy = torch.arange(prompt, length)[None]
    return two_stream_mask(blocks, blocks[:, prompt:], noisy)[0, 0].tolist()


@needs_browser
def test_the_mask_is_that_of_training(page: playwright.Page) -> None:
    for length, prompt, block_size in SHAPES:
        drawn = page.evaluate(
            """([length, prompt, blockSize, pictures]) => {
              const { mask } = eval(pictures);
              const values = { length, blockSize, prompt };
              for (const [name, value] of Object.entries(values)) {
                const slider = mask.element.querySelector(`input[name=${name}]`);
                slider.value = value;
                slider.dispatchEvent(new Event("input"));
              }
              return mask.grid;
            }""",
            [length, prompt, block_size, PICTURES],
        )
        assert drawn == runtime_mask(length, prompt, block_size)


@needs_browser
def test_the_keys_of_a_query_are_lit_with_the_keyboard(page: playwright.Page) -> None:
    page.evaluate(f"{PICTURES}.mask.turn('length', 12); {PICTURES}.mask.turn('prompt', 4);")
    page.evaluate(f"{PICTURES}.mask.turn('blockSize', 4)")
    page.focus("[data-picture=mask] .ex-mask")
    page.keyboard.press("End")
    seen = "[...document.querySelectorAll('.ex-stream .ex-seen')].map((c) => c.textContent)"
    assert page.evaluate(seen) == [*(f"x{i}" for i in range(8)), "M", "M", "M", "M"]
    page.keyboard.press("ArrowUp")
    assert page.evaluate(seen) == [*(f"x{i}" for i in range(8)), "M", "M", "M"]
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(seen) == [f"x{i}" for i in range(11)]
    assert "It learns x11" in page.inner_text(".ex-side .ex-said")
    page.hover(".ex-stream >> nth=1 >> .ex-slot >> nth=0")
    assert page.evaluate(seen) == ["x0", "x1", "x2", "x3", "M"]


@needs_browser
def test_a_run_is_stepped_and_played_with_the_keyboard(page: playwright.Page) -> None:
    caches = "[data-picture=caches]"
    total = len(list(row_steps(trace_of("block-cache", "mars").events)))
    counts = f"{caches} .ex-lane >> nth=0 >> .ex-count"
    page.focus(f"{caches} .ex-strip >> nth=0")
    page.keyboard.press("Home")
    assert page.locator(f"{caches} .ex-out:not(.ex-empty)").count() == 0
    page.keyboard.press("ArrowRight")
    assert page.inner_text(counts).startswith(f"pass 1 of {total} · 0 tokens written")
    page.keyboard.press("ArrowRight")
    first = next(step for step, _ in row_steps(trace_of("block-cache", "mars").events))
    assert f"· {len(first.accepted)} tokens written" in page.inner_text(counts)
    page.keyboard.press(" ")
    page.wait_for_function(f"{PICTURES}.caches.moment > 2")
    page.keyboard.press(" ")
    assert page.evaluate(f"{PICTURES}.caches.timer") is None
    page.keyboard.press("End")
    assert page.inner_text(counts).endswith("done")
    drawn = page.locator(f"{caches} .ex-lane >> nth=0 >> .ex-final").count()
    last = [step for step, _ in row_steps(trace_of("block-cache", "mars").events)][-1]
    header = trace_of("block-cache", "mars").header
    assert drawn == last.cursor - len(header.prompt_ids) + 1 + 1  # the bar has a final part too


@needs_browser
def test_tau_takes_what_the_rule_says_and_a_mismatch_shows_ars_token(
    page: playwright.Page,
) -> None:
    steps = [step for step, _ in row_steps(trace_of("tau-moved", "mars").events)]
    at = page.evaluate(f"{PICTURES}.tau.index")
    confidences = [p.confidence for p in steps[at].proposals]
    taken = []
    for tau in (0, 0.5, 0.8, 0.95, 1):
        page.evaluate(
            f"""(tau) => {{ const slider = {PICTURES}.tau.knob.input; slider.value = tau;
              slider.dispatchEvent(new Event("input")); }}""",
            tau,
        )
        taken.append(page.locator("[data-picture=tau] .ex-taken").count())
        assert taken[-1] == accept_prefix(confidences, tau)
    assert all(low >= high for low, high in pairwise(taken))
    assert len(set(taken)) > 2  # the forward that the page chose has something to say
    steps = [step for step, _ in row_steps(trace_of("lossless", "mars").events)]
    mismatch = next(step for step in steps if step.stop == "mismatch")
    page.evaluate(f"{PICTURES}.lossless.seek(0)")
    page.click("[data-picture=lossless] .ex-word")
    page.click("[data-picture=lossless] [aria-label='Step forward']")
    said = page.inner_text("[data-picture=lossless] .ex-said")
    assert said.startswith(f"AR agrees with {len(mismatch.accepted) - 1} of ")
    assert page.locator("[data-picture=lossless] .ex-out.ex-replaced").count() == 1


def test_every_figure_is_measured_and_none_is_written_down() -> None:
    page = ExplainView.template("")
    assert not re.search(r"@[a-z]", page)
    measured = facts()
    assert measured["tau-rows"] in page
    assert measured["lossless-tpf"] in page
