"""Measures the page of a running app: long tasks while its model answers at full speed, and memory.

Run ``python app.py`` in one terminal and ``python tools/measure_app.py http://127.0.0.1:7860`` in
another. A long request is raced with each panel open, then short ones, each in a new conversation.
The model and the page share the machine, so the page's cost is CPU time. There is no pass or fail.
(``measure_page.py`` has runs of 4,000 tokens, for which a checkpoint's context may be too short.)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from measure_page import (
    FORM,
    RACE,
    Tracing,
    called,
    chromium,
    machine,
    measure_memory,
    playwright,
    row,
    to_its_end,
)

LONG_REQUEST = "Write a short tale about a fox who learns to paint."
SHORT_REQUEST = "What is half of 60? Explain it step by step."


def ask(view: playwright.Page, request: str) -> None:
    """Ask a first question and wait for the whole answer."""
    new = view.locator(".ct-new")
    if new.is_visible():
        new.click()
    view.fill("#prompt textarea", request)
    to_its_end(view, lambda: view.click("#run"))


def measure_tasks(view: playwright.Page, tracing: Tracing) -> Iterator[str]:
    """Yield the table's rows: the long request with each panel open."""
    yield FORM.format("", "CPU > 50", "longest, CPU ms", "wall > 50", "longest", "% busy")
    for tab in view.locator(f"{RACE} .rv-tab").all():
        tab.click()
        tracing.start()
        began = time.perf_counter()
        ask(view, LONG_REQUEST)
        view.wait_for_timeout(1000)
        yield row(f"answering, {tab.inner_text()}", tracing.stop(view), time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("address", help="where the app is served")
    parser.add_argument("--runs", type=int, default=50, help="runs over which memory is measured")
    args = parser.parse_args()
    print(machine(), flush=True)
    with chromium() as browser:
        view = browser.new_page(viewport={"width": 1440, "height": 1000})
        view.set_default_timeout(300_000)
        view.goto(args.address)
        view.wait_for_selector(f"{RACE}[data-state=finished]")
        view.wait_for_function("!document.querySelector('#footer').innerText.startsWith('Load')")
        print(f"{called()} {browser.version}, {view.locator('#footer').inner_text()}", flush=True)
        ask(view, SHORT_REQUEST)  # warm-up: draws the panels
        session = view.context.new_cdp_session(view)
        for line in measure_tasks(view, Tracing(session)):
            print(line, flush=True)
        again = lambda: ask(view, SHORT_REQUEST)  # noqa: E731
        for line in measure_memory(view, session, args.runs, again) if args.runs else ():
            print(line, flush=True)
    print(machine())


if __name__ == "__main__":
    main()
