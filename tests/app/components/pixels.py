"""What a visitor sees of an element, as colours: screenshots read by the page itself."""

from __future__ import annotations

import base64
from typing import Any

from browser import playwright

READ = """async (png) => {
  const image = new Image();
  image.src = `data:image/png;base64,${png}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, image.width, image.height);
  return [image.width, [...new Uint32Array(data.buffer)]];
}"""


class Picture:
    """The colours of an element on the screen, row by row."""

    def __init__(self, page: playwright.Page, element: playwright.Locator) -> None:
        png = base64.b64encode(element.screenshot(animations="disabled")).decode()
        drawn: list[Any] = page.evaluate(READ, png)
        self.width: int = drawn[0]
        self.colours: list[int] = drawn[1]

    def at(self, x: float, y: float) -> int:
        """The colour there, in pixels from the element's corner."""
        return self.colours[round(y) * self.width + round(x)]

    def changed(self, other: Picture) -> list[int]:
        """Places where another picture of the same size has another colour."""
        pairs = zip(self.colours, other.colours, strict=True)
        return [place for place, (mine, theirs) in enumerate(pairs) if mine != theirs]
