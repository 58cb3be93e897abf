"""What the Frontier tab shows of result files, by hand and of those in the repository."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from app.settings import AppSettings
from app.tradeoff.frontier import frontier_json
from app.ui.results import RESULTS, read_sets
from mars_runtime.settings import DecodeSettings

EXACT = {"value": 1.0, "low": 1.0, "high": 1.0}
HALF = {"value": 0.5, "low": 0.25, "high": 0.75}
AR = {"method": "ar", "tau": 1.0, "block_size": 1}
BOLD = {"tau": 0.5, "block_size": 4}


def row(settings: dict[str, Any], tpf: dict[str, float], **more: Any) -> dict[str, Any]:
    return {"checkpoint": "some", "settings": settings, "tpf": tpf, **more}


def write(folder: Path, name: str, values: dict[str, Any]) -> None:
    (folder / f"{name}.json").write_text(json.dumps(values), encoding="utf-8")


def test_requests_stand_at_their_agreement_and_tasks_at_their_accuracy(tmp_path: Path) -> None:
    rows = [row(AR, EXACT, agreement=1.0), row(BOLD, HALF, agreement=0.65)]
    write(tmp_path, "chat_evaluation", {"requests": rows})
    write(tmp_path, "evaluation", {"averages": [row(AR, EXACT, accuracy=HALF)] * 2})
    requests, tasks = read_sets(tmp_path)
    assert (requests.quality, tasks.quality) == ("agreement", "accuracy")
    assert [point.name for point in requests.points] == ["AR", "MARS τ=0.5 B=4"]
    assert requests.points[1].quality.value == 0.65
    assert requests.points[1].settings == DecodeSettings(tau=0.5, block_size=4)
    assert tasks.points[0].quality.low == 0.25


def test_a_speed_is_shown_where_it_was_measured(tmp_path: Path) -> None:
    rows = [row(AR, EXACT, agreement=1.0, speed=EXACT), row(BOLD, EXACT, agreement=0.5, speed=HALF)]
    write(tmp_path, "page_ways", {"ways": rows})
    write(tmp_path, "chat_evaluation", {"requests": [{**item, "speed": None} for item in rows]})
    without, timed = read_sets(tmp_path)
    assert [point.speed for point in without.points] == [None, None]
    assert [point.speed.value for point in timed.points if point.speed] == [1.0, 0.5]


def test_every_method_is_one_set_though_some_have_a_checkpoint_of_their_own(tmp_path: Path) -> None:
    twin = {"method": "block_diffusion", "tau": 0.95, "block_size": 8}
    drafted = {"method": "speculative", "draft": "small", "masked": "both"}
    ways = [
        ("some", AR),
        ("some", drafted),
        *(("some", {**drafted, "masked": place}) for place in ("none", "target", "draft")),
        ("twin", twin),
    ]
    rows = [{**row(way, EXACT, accuracy=HALF), "checkpoint": name} for name, way in ways]
    write(tmp_path, "methods", {"averages": rows})
    (actual,) = read_sets(tmp_path)
    assert [(point.checkpoint, point.name) for point in actual.points] == [
        ("some", "AR"),
        ("some", "speculative small K=4, masks in both"),
        ("twin", "block diffusion τ=0.95 B=8 · twin"),
    ]


def test_what_goes_wrong_fits_the_page_and_says_no_figure() -> None:
    document = json.loads(frontier_json())["failures"]
    assert len({entry["title"] for entry in document}) == len(document) >= 4
    for item in document:
        assert 0 < len(item["prompt"]) <= AppSettings().max_prompt_chars
        assert not re.search(r"\d %|\d tokens", item["why"])


def test_the_results_of_the_repository_are_shown_with_the_papers_apart() -> None:
    document = json.loads(frontier_json())
    assert {entry["checkpoint"] for entry in document["sets"]} >= {"mars-smollm2", "mars-tiny"}
    for item in document["sets"]:
        assert (RESULTS / item["source"]).is_file()
        assert all(0 <= point["quality"]["value"] <= 1 for point in item["points"])
        assert all(point["tpf"]["value"] >= 1 for point in item["points"])
    assert "2604.07023" in document["paper"]["source"]
