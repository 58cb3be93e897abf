"""The folders that are uploaded as Spaces: whole, pinned, and one of them started for real."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from packaging.requirements import Requirement
from scripted_page import eventually

from app import deploy as program
from app.deploy import NO_GIT, TARGETS, DeployError, deploy
from app.engines.engines import read_entries
from app.engines.zerogpu import MAX_LOADED
from app.settings import PREFIX, AppSettings
from app.ui.results import RESULTS, read_points
from mars_runtime.system.machine import cache_folder
from tests.environments import free_port, make_environment, wait_until_it_serves
from tests.published import in_hub_cache, write_published

ROOT = Path(__file__).parents[2]
MEGABYTE = 1_000_000


@pytest.fixture(scope="module", params=TARGETS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of each target."""
    folder = tmp_path_factory.mktemp("spaces") / str(request.param)
    deploy(folder, request.param)
    return folder


def front_of(folder: Path) -> dict[str, Any]:
    _, front, _ = (folder / "README.md").read_text("utf-8").split("---\n", 2)
    return yaml.safe_load(front)


def requirements_of(folder: Path) -> dict[str, Requirement]:
    lines = (folder / "requirements.txt").read_text().splitlines()
    actual = [Requirement(line) for line in lines if not line.startswith("--")]
    return {requirement.name: requirement for requirement in actual}


def variables_of(folder: Path) -> dict[str, str]:
    lines = (folder / "variables.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def version_of(requirement: Requirement) -> str:
    (pin,) = requirement.specifier
    assert pin.operator == "==", f"{requirement} is not pinned"
    return pin.version


def test_the_card_is_what_the_hub_reads(built: Path) -> None:
    front, target = front_of(built), TARGETS[built.name]
    assert front["sdk"] == "gradio"
    assert front["sdk_version"] == version_of(requirements_of(built)["gradio"])
    assert (built / front["app_file"]).is_file()
    assert re.fullmatch(r"3\.12(\.\d+)?", front["python_version"])
    assert front["suggested_hardware"] == target.hardware
    assert len(front["short_description"]) <= 60
    assert front.get("preload_from_hub", []) == list(target.preload)
    hardware = pytest.importorskip("huggingface_hub").SpaceHardware
    assert target.hardware in [item.value for item in hardware]


def test_every_requirement_is_pinned_to_what_the_app_accepts(built: Path) -> None:
    pinned = requirements_of(built)
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    body = {requirement.name: requirement for requirement in map(Requirement, lines)}
    assert pinned.keys() - body.keys() == ({"spaces"} if built.name == "zerogpu" else set())
    for name, requirement in body.items():
        assert requirement.specifier.contains(version_of(pinned[name])), name
    if built.name == "zerogpu":
        assert version_of(pinned["torch"]) == "2.11.0"


def test_the_variables_are_all_that_a_duplicate_needs(built: Path) -> None:
    """Each is read, and together they choose checkpoints that the image holds or brings."""
    variables = variables_of(built)
    assert variables == dict(TARGETS[built.name].variables)
    assert variables.keys() <= {PREFIX + name.upper() for name in AppSettings.__slots__}
    settings = AppSettings.from_environment(variables)
    entries = read_entries(settings.checkpoint, settings.offered)
    assert next(iter(entries)) == variables["MARS_CHECKPOINT"]
    hubs = {entry.hub for entry in entries.values() if entry.hub}
    assert hubs == set(TARGETS[built.name].preload)
    assert built.name == "cpu" or len(entries) <= MAX_LOADED


def test_all_but_the_lab_is_there_and_what_the_app_does_not_need_is_not(built: Path) -> None:
    files = {path.relative_to(built).as_posix(): path.stat().st_size
             for path in built.rglob("*") if path.is_file()}  # fmt: skip
    modules = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("[am]*/**/*.py")]
    missing = [name for name in modules if name not in files]
    assert [name for name in missing if not re.match(r"mars_runtime/lab/|app/deploy", name)] == []
    needless = re.compile(r"tests/|docs/|app/deploy\.|\.|package.*json")
    assert [name for name in files if needless.match(name)] == []
    assert {"app.py", "checkpoints/registry.json"} <= files.keys()
    assert "mars_runtime/model/native/native.cpp" in files
    assert read_points(built / "assets" / "results") == read_points(RESULTS)
    assert len(files) < 1000  # the hub advises less than 10,000 files in a folder
    assert max(files.values()) < 7 * MEGABYTE
    assert sum(files.values()) < 50 * MEGABYTE  # of which five checkpoints are 39, compressed


def test_what_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DeployError) as caught:
        deploy(tmp_path / "space", "cpu", root=tmp_path)
    assert str(caught.value) == NO_GIT
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").write_text("precious")
    monkeypatch.setattr(sys, "argv", ["deploy", "--to", str(tmp_path)])
    assert program.main() == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert "is not empty" in sentence
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@contextmanager
def started(folder: Path, python: Path, log: Path, **variables: str) -> Iterator[str]:
    """Start the Space without a network; yield its address. It leaves no temporary file."""
    scratch, port = log.parent / "scratch", free_port()
    scratch.mkdir(parents=True, exist_ok=True)
    stored = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environment = {
        **stored, **variables_of(folder), "MARS_OFFLINE": "1", "MARS_PORT": str(port),
        "HF_HUB_OFFLINE": "1", "TMPDIR": str(scratch), **variables,
    }  # fmt: skip
    address = f"http://127.0.0.1:{port}/"
    with (
        log.open("wb") as out,
        httpx.Client(base_url=address, trust_env=False) as client,
        subprocess.Popen(
            [str(python), "-s", "app.py"], cwd=folder, env=environment, stdout=out, stderr=out
        ) as process,
    ):
        try:
            wait_until_it_serves(client, process, log)
            yield address
            process.terminate()
            assert process.wait(30) in (0, 128 + signal.SIGTERM)
            assert eventually(lambda: not any(map(Path.is_file, scratch.rglob("*"))), 120)
        finally:
            process.kill()
    assert str(ROOT) not in log.read_text()


def test_the_cpu_space_serves_int8(tmp_path: Path) -> None:
    """From the files that its front matter has the image hold; here tiny ones."""
    cpu_folder = tmp_path / "cpu"
    deploy(cpu_folder, "cpu")
    (preloaded,) = front_of(cpu_folder)["preload_from_hub"]
    in_hub_cache(write_published(tmp_path / "made"), tmp_path, preloaded)
    chosen = {"MARS_CHECKPOINT": "mars-0.5b-blk4", "MARS_DTYPE": "int8", "HF_HOME": str(tmp_path)}
    variables = {**chosen, "MARS_CACHE": str(cache_folder())}
    with started(cpu_folder, Path(sys.executable), tmp_path / "log", **variables) as address:
        models = httpx.get(f"{address}v1/models").json()["data"]
        assert {"mars-smollm2", "mars-tiny"} < {model["id"] for model in models}
        client = pytest.importorskip("gradio_client").Client(address, verbose=False)
        (header, *steps) = client.predict(prompt="Hi.", max_new_tokens=12, api_name="/traces")
        about = json.loads(header)
        assert about["checkpoint"] == "mars-0.5b-blk4"
        assert "int8" in about["dtype"]
        assert steps


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_cpu_space_starts_in_its_environment(tmp_path: Path) -> None:
    cpu_folder = tmp_path / "cpu"
    deploy(cpu_folder, "cpu")
    python = make_environment(tmp_path / "venv", "-r", "requirements.txt", at=cpu_folder)
    with started(cpu_folder, python, tmp_path / "log", MARS_CACHE=str(tmp_path)) as address:
        answer = httpx.post(f"{address}v1/completions", json={"prompt": "Hi.", "max_tokens": 4})
        assert answer.json()["usage"]["completion_tokens"] >= 1
