"""What tests of the Compare tab do as a visitor would: open it, bring runs in, take them out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import sample_traces as samples
from browser import playwright

from mars_runtime.settings import DecodeSettings

ROW = "#compare .cv-row"
PNG = b"\x89PNG\r\n\x1a\n"
MARS = samples.Script(samples.PROSE, DecodeSettings(tau=0.95, block_size=8))


def open_tab(page: playwright.Page, num_pins: int) -> None:
    page.get_by_role("tab", name="Compare").click()
    page.wait_for_selector(f'#compare .mars-compare[data-pins="{num_pins}"]')


def empty_tray(page: playwright.Page) -> None:
    """Open the tab and delete every run that is kept."""
    page.get_by_role("tab", name="Compare").click()
    page.evaluate("""() => {
      const buttons = document.querySelectorAll("#compare .cv-row button");
      for (const each of buttons) if (each.textContent === "Delete") each.click();
    }""")
    open_tab(page, 0)


def unfold(page: playwright.Page) -> None:
    """Open the row of the runs that wrote the same text."""
    page.click("#compare .cv-foldbutton")
    page.wait_for_selector(f"#compare .cv-fold {ROW.split()[1]}")


def bring(page: playwright.Page, *files: tuple[str, bytes | str]) -> str:
    """Give files to the picker; what is said of them."""
    page.evaluate("document.querySelector('.cv-said').textContent = ''")
    payload = [
        {"name": name, "mimeType": "", "buffer": data if isinstance(data, bytes) else data.encode()}
        for name, data in files
    ]
    page.set_input_files("#compare .cv-files", payload)
    page.wait_for_function("document.querySelector('.cv-said').textContent.endsWith('imported.')")
    return page.inner_text("#compare .cv-said")


def trace_file(name: str, script: samples.Script, **header: str) -> tuple[str, str]:
    trace = samples.run(script)
    trace.header = replace(trace.header, **header)
    return name, "\n".join(trace.lines()) + "\n"


def saved(page: playwright.Page, menu: str, hint: str, line: int = 0) -> tuple[str, bytes]:
    """Open an export menu, press one of its buttons; the file's name and what is in it."""
    page.locator(f"{menu} > summary").click()
    with page.expect_download() as download:
        page.locator(f"{menu} .ex-line button[title='{hint}']").nth(line).click()
    made = download.value.suggested_filename, Path(download.value.path()).read_bytes()
    page.wait_for_selector(f"{menu} .ex-said:text('{made[0]}')")
    page.keyboard.press("Escape")
    assert page.locator(f"{menu} .ex-panel").is_hidden()
    return made
