"""Makes the README's pictures in headless Chromium: a GIF of how the page opens, and a still of a
prompt that was run."""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from PIL import Image
from soak import LOADED, RACE, served

from browser import chromium, playwright  # isort: skip

PROMPT = "Write a Python function that returns the largest of three numbers."
SIZE = {"width": 1440, "height": 900}
FRAME_SECONDS = 0.25
MOST_FRAMES, GIF_WIDTH, COLOURS = 90, 960, 48
PALETTE_EVERY = 6  # every n-th frame is used to choose the palette
REST_SECONDS = 1.5  # seconds after the last pass, until all animations have ended
PLAYER = f"document.querySelector('{RACE}').lineView.player"


def opened(browser: playwright.Browser, address: str) -> playwright.Page:
    page = browser.new_context(viewport=SIZE).new_page()
    page.set_default_timeout(300_000)
    page.goto(f"{address}?__theme=light")
    page.wait_for_function(LOADED)
    return page


def run(page: playwright.Page) -> None:
    """Run the prompt and wait until it has been played to its end."""
    before = page.locator(RACE).get_attribute("data-run") or ""
    page.fill("#prompt textarea", PROMPT)
    page.click("#run")
    page.wait_for_selector(f"{RACE}[data-state=finished]:not([data-run='{before}'])")
    page.wait_for_timeout(1000 * REST_SECONDS)
    page.wait_for_function(f"!{PLAYER}.isMoving")
    page.wait_for_timeout(1000 * REST_SECONDS)


def moving(page: playwright.Page, path: Path) -> None:
    """Record the initial recording, played again: the page plays it once while its model loads."""
    page.wait_for_function(f"!{PLAYER}.isMoving")
    page.evaluate(f"{PLAYER}.toggle()")
    frames: list[Image.Image] = []
    times: list[float] = []
    for _ in range(MOST_FRAMES):
        began = time.monotonic()
        times.append(began)
        is_moving = page.evaluate(f"{PLAYER}.isMoving")
        shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        frames.append(shot.resize((GIF_WIDTH, round(shot.height * GIF_WIDTH / shot.width))))
        if not is_moving:
            break
        time.sleep(max(0.0, FRAME_SECONDS - (time.monotonic() - began)))
    durations = [round(1000 * (after - at)) for at, after in pairwise(times)] + [4000]
    save_gif(path, frames, durations)


def save_gif(path: Path, frames: Sequence[Image.Image], durations: Sequence[int]) -> None:
    """Write a GIF with one palette, so that a frame stores only what has changed."""
    chosen = frames[::PALETTE_EVERY]
    width, height = frames[0].size
    sheet = Image.new("RGB", (width, height * len(chosen)))
    for number, frame in enumerate(chosen):
        sheet.paste(frame, (0, height * number))
    palette = sheet.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE)
    first, *rest = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    first.save(path, save_all=True, append_images=rest, duration=list(durations), loop=0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Makes the pictures of the README.")
    parser.add_argument("--checkpoint", default="mars-smollm2", help="that the page opens with")
    parser.add_argument("--out", type=Path, default=Path("assets/screenshots"), help="folder")
    args = parser.parse_args(arguments)
    args.out.mkdir(parents=True, exist_ok=True)
    with served(args.checkpoint) as (_, address), chromium() as browser:
        page = opened(browser, address)
        moving(page, args.out / "live.gif")
        run(page)
        page.screenshot(path=args.out / "live.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
