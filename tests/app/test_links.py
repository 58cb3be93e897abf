"""Links that replay a run: read with suspicion, kept within bounds, opened by a new visitor."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
import sample_traces as samples
from browser import needs_browser, opened
from live_page import ROOT, run, wait_loaded
from scripted_page import TEXT, ScriptedBackend

from app.live import shared_runs as module
from app.live.shared_runs import FULL, GONE, NOT_KEPT, OFTEN, UNREADABLE, SharedRuns

MOST = 4_000_000
HEAD = {"run": "", "lanes": [{"lane": "mars", "title": "<b>x</b>"}, {"lane": "ar", "title": "y"}]}


def value_of(lanes: dict[str, list[str]], head: object = HEAD) -> str:
    lines = [f"{lane}\t{line}" for lane, own in lanes.items() for line in own]
    return "\n".join([json.dumps(head), *lines]) + "\n"


@pytest.fixture(scope="module")
def value() -> str:
    """A race as a link brings it."""
    import race_scenes

    return value_of({name: list(own) for name, own in samples.lanes(race_scenes.PROSE).items()})


def test_a_run_is_written_anew_and_marked_as_recorded(value: str) -> None:
    told = SharedRuns(None, MOST).read({"value": value}, "")
    head, *lines = told["value"].splitlines()
    about = json.loads(head)
    assert [lane["title"] for lane in about["lanes"]] == ["MARS", "plain AR"]
    assert about["recorded"]
    assert about["run"] != ""
    assert {line.partition("\t")[0] for line in lines} == {"mars", "ar"}
    again = SharedRuns(None, MOST).read({"value": told["value"]}, "")
    assert again["value"].splitlines()[1:] == lines


@pytest.mark.parametrize(
    "broken",
    [
        None,
        7,
        "",
        "no JSON\n",
        "[" * 100_000,
        json.dumps({"lanes": []}),
        json.dumps({"lanes": [{"lane": "else"}]}),
        json.dumps({"lanes": [{"lane": "mars"}, {"lane": "mars"}]}),
        json.dumps({"lanes": [{"lane": ["mars"]}]}),
        json.dumps({"lanes": [{"lane": "mars"}]}) + '\nmars\t{"type": "step"}',
        "x" * (MOST + 1),
    ],
)
def test_what_is_no_run_is_one_sentence(broken: object) -> None:
    runs = SharedRuns(None, MOST)
    for answer in (runs.read({"value": broken}, ""), runs.read(broken, "")):
        assert set(answer) == {"error"}
        assert answer["error"].endswith(".")


def test_a_run_is_kept_under_a_name_that_cannot_be_guessed(value: str, tmp_path: Path) -> None:
    runs = SharedRuns(tmp_path / "data", MOST)
    names = [runs.keep(value, "a")["name"] for _ in range(2)]
    assert len(set(names)) == 2
    assert all(len(name) == 22 for name in names)
    found = runs.read({"name": names[0]}, "b")["value"]
    assert found.splitlines()[1:] == runs.read({"value": value}, "")["value"].splitlines()[1:]
    for name in ("A" * 22, "../" + names[0], names[0] + ".run.gz", "", 7, None):
        assert runs.read({"name": name}, "b") == {"error": GONE}
    assert runs.keep("no run", "a") == {"error": UNREADABLE}
    assert len(list((tmp_path / "data").iterdir())) == 2


def test_what_was_kept_is_not_trusted_either(value: str, tmp_path: Path) -> None:
    runs = SharedRuns(tmp_path, MOST)
    name = runs.keep(value, "a")["name"]
    (path,) = tmp_path.iterdir()
    path.write_bytes(gzip.compress(b'{"lanes": [{"lane": "mars"}]}\nmars\t{"type": "evil"}'))
    assert "cannot be read" in runs.read({"name": name}, "b")["error"]
    path.write_bytes(gzip.compress(b"0" * 50_000_000))  # a small file that grows
    assert runs.read({"name": name}, "b") == {"error": UNREADABLE}
    path.write_bytes(b"no gzip")
    assert runs.read({"name": name}, "b") == {"error": GONE}


def test_few_of_one_address_and_so_many_in_all(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_OF_ONE", 3)
    monkeypatch.setattr(module, "MAX_KEPT", 4)
    runs = SharedRuns(tmp_path, MOST)
    names = [runs.keep(value, "a").get("name") for _ in range(4)]
    assert names[3] is None
    assert runs.keep(value, "a") == {"error": OFTEN}
    for age, name in enumerate(names[:3]):
        os.utime(tmp_path / f"{name}.run.gz", (1000 + age, 1000 + age))
    for _ in range(2):
        assert "name" in runs.keep(value, "b")
    assert len(list(tmp_path.iterdir())) == 4
    assert runs.read({"name": names[0]}, "b") == {"error": GONE}  # the oldest
    assert "value" in runs.read({"name": names[1]}, "b")
    monkeypatch.setattr(module, "MAX_KEPT_BYTES", 1)
    runs.keep(value, "c")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_page_without_a_folder_keeps_none(value: str, tmp_path: Path) -> None:
    assert SharedRuns(None, MOST).keep(value, "") == {"error": NOT_KEPT}
    (tmp_path / "file").write_text("")
    assert SharedRuns(tmp_path / "file", MOST).keep(value, "") == {"error": FULL}


@needs_browser
def test_a_link_replays_the_run_in_a_fresh_browser(
    address: str, scripted_backend: ScriptedBackend
) -> None:
    scripted_backend.forward_seconds = 0.001
    lanes = f"document.querySelector('{ROOT}').lineView.run.lanes"
    written = f"{lanes}.map((lane) => [lane.ids, lane.steps.map((s) => s.seconds)])"
    with opened(f"{address}?prompt=Say+it.&max_new_tokens=30") as page:
        wait_loaded(page)
        page.wait_for_function("document.querySelector('#prompt textarea').value === 'Say it.'")
        run(page)
        page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        page.locator(f"{ROOT} .rv-top .ex-menu > summary").click()
        line = page.locator(f"{ROOT} .rv-top .ex-menu .ex-line", has_text="Link")
        line.get_by_text("Copy", exact=True).click()
        page.wait_for_selector(f"{ROOT} .ex-said:text('Link copied')")
        link = page.evaluate("window.copied")
        assert "#run=" in link
        wanted = page.evaluate(written)
    with opened(link) as other:
        other.wait_for_selector(f"{ROOT}[data-state=finished] .rv-recorded:not([hidden])")
        assert other.evaluate(written) == wanted
        # It plays from its start.
        other.wait_for_selector(f"{ROOT} .rv-pane:has-text('{TEXT[:8]}')")
        other.goto("about:blank")
        other.goto(link.partition("#")[0] + "#run=broken")
        other.wait_for_selector(f"{ROOT} :text('ask for the link again')")
