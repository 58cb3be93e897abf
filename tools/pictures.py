"""Makes the pictures of the README from the page itself: ``python tools/pictures.py``.

Serves the page as people do, runs a prompt in headless Chromium and writes stills and a moving
picture. Knows where things stand on the page, nothing of what they show.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from soak import served

from browser import chromium, playwright  # isort: skip

PROMPT = "Write a Python function that returns the largest of three numbers."
SIZE = {"width": 1440, "height": 900}
FRAME_SECONDS = 0.25
MOST_FRAMES, GIF_WIDTH, COLOURS = 60, 960, 64
RACE = "#race .mars-race"


def opened(browser: playwright.Browser, address: str, theme: str) -> playwright.Page:
    """The page, its checkpoint loaded."""
    page = browser.new_context(viewport=SIZE).new_page()
    page.set_default_timeout(300_000)
    page.goto(f"{address}?__theme={theme}")
    page.wait_for_selector("#footer")
    page.wait_for_function("!document.querySelector('#footer').innerText.startsWith('Load')")
    return page


def start(page: playwright.Page) -> None:
    """Run the prompt in place of the recording."""
    before = page.locator(RACE).get_attribute("data-run") or ""
    page.fill("#prompt textarea", PROMPT)
    page.click("#run")
    page.wait_for_selector(f"{RACE}:not([data-run='{before}'])")


def moving(page: playwright.Page, path: Path) -> None:
    """Frames of a run from its first token to a moment after its last, as one GIF."""
    start(page)
    page.locator("#race").scroll_into_view_if_needed()
    frames: list[Image.Image] = []
    while len(frames) < MOST_FRAMES:
        began = time.monotonic()
        shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        shot = shot.resize((GIF_WIDTH, round(shot.height * GIF_WIDTH / shot.width)))
        frames.append(shot.quantize(COLOURS))
        if page.locator(RACE).get_attribute("data-state") == "finished":
            break
        time.sleep(max(0.0, FRAME_SECONDS - (time.monotonic() - began)))
    durations = [round(1000 * FRAME_SECONDS)] * (len(frames) - 1) + [4000]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write live.gif, live.png and another-tau.png; the exit code."""
    parser = argparse.ArgumentParser(description="Makes the pictures of the README.")
    parser.add_argument("--checkpoint", default="mars-smollm2", help="that the page opens with")
    parser.add_argument("--out", type=Path, default=Path("assets/screenshots"), help="folder")
    args = parser.parse_args(arguments)
    args.out.mkdir(parents=True, exist_ok=True)
    with served(args.checkpoint) as (_, address), chromium() as browser:
        page = opened(browser, address, "light")
        moving(page, args.out / "live.gif")
        page.wait_for_selector(f"{RACE}[data-state=finished]")
        page.click(".mars-conversation .ct-new")
        start(page)  # again, with nobody taking pictures meanwhile
        page.wait_for_selector(f"{RACE}[data-state=finished]")
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=args.out / "live.png")
        page = opened(browser, address, "dark")
        start(page)
        page.wait_for_selector(f"{RACE}[data-state=finished]")
        page.get_by_role("tab", name="Another τ").click()
        page.locator(f"{RACE} .rv-panels").scroll_into_view_if_needed()
        page.screenshot(path=args.out / "another-tau.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
