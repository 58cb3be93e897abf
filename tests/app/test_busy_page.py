"""What the page does where the server answers that it is busy (429)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Arrive, needs_browser
from live_page import wait_loaded
from scripted_page import TEXT, ScriptedBackend, make_handlers, page_served
from visitor import Visitor

from app.serving.run_limits import FULL

pytestmark = needs_browser
BOX = "#prompt textarea"
PROMPT = "A prompt that nobody wants to type twice."


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    backend = ScriptedBackend(TEXT, 0.05)
    handlers = make_handlers(tmp_path, backend, port=0, max_runs_per_address=1)
    with page_served(handlers) as url:
        yield url


def test_a_run_too_many_says_what_to_do_and_keeps_the_prompt(arrive: Arrive, address: str) -> None:
    page = arrive(address)
    wait_loaded(page)
    page.fill(BOX, PROMPT)
    assert Visitor(address).run(max_new_tokens=300)[0] == 200
    page.click("#run")
    page.wait_for_selector(f"text={FULL.format(1)}")
    assert page.input_value(BOX) == PROMPT
