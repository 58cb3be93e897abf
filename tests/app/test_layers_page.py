"""The panel "Layers" as the page asks for it: what is posted, what is answered, what is drawn."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from browser import Arrive, needs_browser
from live_page import ROOT, run
from scripted_page import TEXT, ScriptedBackend

from app.engines.engines import Engines
from app.live.layers_panel import UNREADABLE, layers_response
from app.settings import AppSettings
from mars_runtime.layers import Column, Fed, Layers

POSTED = {"checkpoint": "x", "ids": [1, 2], "cursor": 1, "groups": [1], "text": [1, 2, 3]}


def found(fed: Fed) -> Layers:
    """Three layers: every mask predicts 66 from layer 2 on, its real token from layer 1 on."""
    end = len(fed.ids)
    columns = [Column(at, None, ((65, 0.5),) * 4) for at in range(fed.cursor, end)]
    masks = [
        Column(end + i, end, ((67, 0.2), (67, 0.3), (66, 0.4), (66, 0.9)))
        for i in range(fed.groups[-1])
    ]
    real = [
        Column(mask.position, None, ((67, 0.2), (66, 0.3), (66, 0.4), (66, 0.95)))
        for mask in masks
        if mask.position < len(fed.text)
    ]
    return Layers((*columns, *masks), tuple(real))


class Looking(ScriptedBackend):
    """Notes what it is asked; can be looked into while ``is_open``."""

    is_open = True

    def __init__(self) -> None:
        super().__init__(TEXT, 0.001)
        self.asked: list[Fed] = []

    def read_layers(self, fed: Fed) -> Generator[None, None, Layers]:
        return self._looked(fed) if self.is_open else super().read_layers(fed)

    def _looked(self, fed: Fed) -> Generator[None, None, Layers]:
        self.asked.append(fed)
        yield
        return found(fed)


@pytest.fixture(scope="module")
def scripted_backend() -> Looking:
    return Looking()


@pytest.mark.parametrize(
    "changes",
    [
        {"checkpoint": 1}, {"ids": []}, {"ids": [1, -2]}, {"ids": [1, True]}, {"ids": [1, 2.0]},
        {"ids": "12"}, {"cursor": "1"}, {"groups": []}, {"groups": [0] * 65}, {"text": None},
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_sentence(changes: dict[str, Any]) -> None:
    engines = Engines(AppSettings(checkpoint="mars-tiny"))
    for posted in ({**POSTED, **changes}, None, [], "x", {}):
        assert layers_response(engines, posted, "") == {"error": UNREADABLE}
    assert "list" in layers_response(engines, POSTED, "")["error"]  # of checkpoints


@needs_browser
def test_a_chosen_forward_is_read_and_drawn(visit: Arrive, scripted_backend: Looking) -> None:
    page = visit("?prompt=Say+it.&tau=0.5&max_new_tokens=40")
    page.wait_for_function("document.querySelector('#tau input[type=range]').value === '0.5'")
    run(page)
    page.click(f"{ROOT} [role=tab][id$='-layers-tab']")
    page.wait_for_selector(f"{ROOT} .rv-la-table td")
    lane = f"document.querySelector('{ROOT}').lineView.run.lanes[0]"
    page.evaluate(f"document.querySelector('{ROOT}').lineView.choose({lane}, 2)")
    page.wait_for_function(
        f"document.querySelector('{ROOT} .rv-la-head').textContent.startsWith('Pass 3 of')"
    )
    page.wait_for_selector(f"{ROOT} .rv-la-table td")
    step = page.evaluate(f"(({{cursor, pending, fed}}) => [cursor, pending, fed])({lane}.steps[2])")
    ids = page.evaluate(f"[...{lane}.header.prompt_ids, ...{lane}.ids]")
    fed = scripted_backend.asked[-1]
    assert [fed.cursor, fed.num_pending, fed.num_pending + sum(fed.groups)] == step
    assert list(fed.text) == ids
    assert fed.ids == fed.text[: len(fed.ids)]
    rows = page.locator(f"{ROOT} .rv-la-table tbody tr")
    heads = [rows.nth(i).locator("th").inner_text() for i in range(4)]
    assert heads == ["3", "2", "1", "embedding"]
    masks, mask_cells = sum(fed.groups), f"{ROOT} .rv-la-table tbody td.rv-la-mask"
    assert page.locator(mask_cells).count() == 4 * masks
    assert page.locator(f"{mask_cells}.rv-la-known").count() == 2 * masks
    assert page.locator(f"{ROOT} .rv-la-table td.rv-la-real.rv-la-first").count() == masks
    first = page.locator(f"{ROOT} .rv-la-masks li").first.inner_text()
    assert first.startswith("Mask 1 settles on “B” at layer 2 of 3")
    assert "the real token in its place settles on “B” at layer 1." in first
    assert page.locator(mask_cells).first.get_attribute("title") == "after layer 3 of 3: “B” 0.900"


@needs_browser
def test_what_cannot_be_read_says_why(visit: Arrive, scripted_backend: Looking) -> None:
    scripted_backend.is_open = False
    page = visit("?prompt=Say+it.&max_new_tokens=20")
    page.wait_for_function("document.querySelector('#prompt textarea').value === 'Say it.'")
    run(page)
    page.click(f"{ROOT} [role=tab][id$='-layers-tab']")
    page.wait_for_selector(f"{ROOT} .rv-la-say:text('own process')")
    assert page.locator(f"{ROOT} .rv-la-scroll").is_hidden()
