"""The clip of a race: a video that plays and a GIF that other programs read, both small."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright
from panel_browser import ROOT, put, still_page
from PIL import Image

pytestmark = needs_browser
MOST_BYTES = 3_000_000
PLAYED = """async (data) => {
  const video = document.createElement("video");
  video.muted = true;
  video.src = URL.createObjectURL(await (await fetch(data)).blob());
  await video.play();
  const [width, height] = [video.videoWidth, video.videoHeight];
  await new Promise((resolve) => { video.onended = resolve; });
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width, height });
  const pen = canvas.getContext("2d");
  pen.drawImage(video, 0, 0);
  const colours = new Set(new Uint32Array(pen.getImageData(0, 0, width, height).data.buffer));
  return { width, height, seconds: video.currentTime, colours: colours.size };
}"""


@pytest.fixture(scope="module")
def page() -> Iterator[playwright.Page]:
    """The race view by itself, with a recording in it."""
    with still_page() as made:
        yield made


def clip(page: playwright.Page, kind: str) -> tuple[str, bytes]:
    """Name and content of the clip that the menu makes."""
    page.locator(f"{ROOT} .rv-top .ex-menu > summary").click()
    line = page.locator(f"{ROOT} .rv-top .ex-menu .ex-line", has_text="Clip")
    with page.expect_download(timeout=120_000) as download:
        line.get_by_text(kind, exact=True).click()
    page.keyboard.press("Escape")
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_the_gif_is_read_by_others_and_ends_with_the_headline(page: playwright.Page) -> None:
    name, content = clip(page, "GIF")
    assert name.endswith(".gif")
    assert len(content) < MOST_BYTES
    with Image.open(io.BytesIO(content)) as picture:
        assert picture.size == (1200, 675)
        assert 10 <= picture.n_frames <= 60
        assert picture.info["loop"] == 0
        frames, milliseconds = [], 0
        for number in range(picture.n_frames):
            picture.seek(number)
            milliseconds += picture.info["duration"]
            frames.append(picture.convert("RGB").tobytes())
    assert 5_500 <= milliseconds <= 6_500
    assert len(set(frames)) > len(frames) // 2  # it moves
    assert num_in_mars(frames[-1]) > 5_000  # its headline is large, in MARS's colour
    assert num_in_mars(frames[0]) < 1_000


def num_in_mars(frame: bytes) -> int:
    """Return the pixels of the headline that are nearly in MARS's colour, in the light theme."""
    box = Image.frombytes("RGB", (1200, 675), frame).crop((44, 190, 1156, 270))
    colour = (0x1B, 0x75, 0x99)
    pixels = zip(*[iter(box.tobytes())] * 3, strict=True)
    return sum(max(abs(a - b) for a, b in zip(p, colour, strict=True)) < 20 for p in pixels)


DRAWN = """() => {
  const { prototype } = CanvasRenderingContext2D;
  const { fillText } = prototype;
  window.drawn = [];
  prototype.fillText = function (text, ...place) {
    window.drawn.push(text);
    return fillText.call(this, text, ...place);
  };
}"""
"""Records every line of text that a picture gets."""


def test_text_from_the_right_is_drawn_from_the_right(page: playwright.Page) -> None:
    script = samples.Script("كتب الولد رسالة", race_scenes.START)
    (value,) = race_scenes.finished(script, recorded="2026-11-20")()
    put(page, value)
    page.evaluate(DRAWN)
    _, content = clip(page, "GIF")
    assert any(line.startswith("Measured: ") for line in page.evaluate("window.drawn.slice(-7)"))
    with Image.open(io.BytesIO(content)) as picture:
        picture.seek(picture.n_frames - 2)  # the last one before the card
        lane = picture.convert("L").crop((44, 240, 578, 275))
    background = lane.getpixel((0, 0))
    ink = Image.eval(lane, lambda value: 255 if abs(value - background) > 60 else 0).getbbox()
    assert ink is not None
    assert lane.width - ink[2] < 10
    assert ink[0] > 200


def test_the_video_plays(page: playwright.Page) -> None:
    name, content = clip(page, "WebM")
    assert name.endswith(".webm")
    assert len(content) < MOST_BYTES
    data = f"data:video/webm;base64,{base64.b64encode(content).decode()}"
    played = page.evaluate(PLAYED, data)
    assert (played["width"], played["height"]) == (1200, 675)
    assert 5 <= played["seconds"] <= 9
    assert played["colours"] > 20
