"""The Grafana dashboard: what it asks for is served, and a real Prometheus answers all of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted_server import Oracle, Place, eventually, serving
from test_openai import chat

from mars_runtime.serving.server import bound

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"
SECONDS = 12.0


def queries() -> list[str]:
    """Every expression of the dashboard, its variables filled in."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    return [one.replace("$model", ".*").replace("$__rate_interval", "2m") for one in asked]


def test_every_series_it_names_is_served_and_every_one_served_is_named(place: Place) -> None:
    served = re.findall(r"^# TYPE (mars:\w+) (\w+)$", place.http.get("/metrics").text, re.MULTILINE)
    kinds = {"counter": "_total", "histogram": "", "gauge": ""}
    known = {name.removesuffix("_total") if kind == "counter" else name for name, kind in served}
    assert {kind for _, kind in served} == kinds.keys()
    named = {
        re.sub(r"(?<!iteration_tokens)_total$", "", re.sub(r"_(bucket|sum|count)$", "", name))
        for query in queries()
        for name in re.findall(r"mars:\w+", query)
    }
    assert named == known


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="there is no prometheus here")
def test_prometheus_answers_every_query(tmp_path: Path) -> None:
    listener = bound("127.0.0.1", 0)
    own = "{}:{}".format(*listener.getsockname())
    listener.close()
    with serving(tmp_path / "server", Oracle(forward_seconds=0.01)) as place:
        target = place.address.removeprefix("http://")
        config = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "mars", "static_configs": [{"targets": [target]}]}],
        }
        (tmp_path / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
        command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml"]
        command += [f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address={own}"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                chat(place, max_tokens=20, extra_body={"lossless": False, "tau": 0.0})
            for query in queries():
                assert eventually(lambda query=query: is_answered(own, query)), query  # type: ignore[misc]
        finally:
            process.terminate()
            process.wait(30)


def is_answered(address: str, query: str) -> bool:
    """Whether Prometheus finds numbers."""
    try:
        answer = httpx.get(f"http://{address}/api/v1/query", params={"query": query}, timeout=10)
    except httpx.TransportError:
        return False
    found: list[Any] = answer.json()["data"]["result"]
    return bool(found) and all(one["value"][1] != "NaN" for one in found)
