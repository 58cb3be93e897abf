"""Pure modules of ``assets/web/`` by themselves in a browser: no page of the app around them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from browser import playwright, visiting

from mars_runtime.web import WEB

ORIGIN = "http://modules.test/"
LANE = """
const laneOf = (lines, name = "mars") => Lane.of(lines, { lane: name, title: name });
"""


@contextmanager
def modules_page() -> Iterator[playwright.Page]:
    """An empty page that may import the modules."""
    with visiting() as take:
        page = take(ORIGIN)
        page.route(f"{ORIGIN}**", _serve)
        page.goto(ORIGIN)
        yield page
        page.unroute(f"{ORIGIN}**", _serve)


def evaluate(page: playwright.Page, module: str, body: str, *given: Any) -> Any:
    """What ``body`` returns; it sees the module as ``m``, ``given``, and ``laneOf(lines)``."""
    return page.evaluate(
        f"""async (given) => {{
  const m = await import("{ORIGIN}{module}");
  const {{ Lane }} = await import("{ORIGIN}core/trace.js");
  {LANE}
  {body}
}}""",
        list(given),
    )


def _serve(route: playwright.Route) -> None:
    name = route.request.url.removeprefix(ORIGIN)
    if not name:
        route.fulfill(content_type="text/html", body="<!doctype html><title>modules</title>")
        return
    source = Path(WEB / name).read_text("utf-8")
    route.fulfill(content_type="text/javascript", body=source)
