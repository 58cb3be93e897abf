"""How it works in a real browser: its pictures against what the runtime itself computes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from browser import needs_browser, playwright, visiting
from explain_page import document

from app.ui import assets
from app.ui.assets import facts
from app.ui.recordings import FOLDER, read_value
from app.ui.views import ExplainView
from mars_runtime.acceptance import accept_prefix
from mars_runtime.folds import row_steps
from mars_runtime.trace import Trace

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


@needs_browser
def test_tau_takes_what_the_rule_says(page: playwright.Page) -> None:
    steps = [step for step, _ in row_steps(trace_of("tau-moved", "mars").events)]
    at = page.evaluate(f"{PICTURES}.tau.index")
    confidences = [p.confidence for p in steps[at].proposals]
    taken = []
    for tau in (0, 0.5, 0.8, 0.95, 1):
        page.evaluate(
            f"""(tau) => {{ const slider = {PICTURES}.tau.range; slider.value = tau;
              slider.dispatchEvent(new Event("input")); }}""",
            tau,
        )
        taken.append(page.locator("[data-picture=tau] .ex-taken").count())
        assert taken[-1] == accept_prefix(confidences, tau)
    assert all(low >= high for low, high in pairwise(taken))
    assert len(set(taken)) > 2  # the forward that the page chose has something to say


def test_every_figure_is_measured_and_none_is_written_down() -> None:
    page = ExplainView.template("")
    assert not re.search(r"@[a-z]", page)
    measured = facts()
    assert measured["tau-rows"] in page
    assert measured["lossless-tpf"] in page
