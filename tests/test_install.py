"""The installed package: what the wheel holds, and that it runs outside the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from environments import free_port, wait_until_it_serves
from packaging.requirements import Requirement

from mars_runtime.__main__ import EXTRAS

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11; pytest brings it there
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
MAX_WHEEL = 60_000_000  # bytes; the hub and the package index take more
PROMPT = "Sort these numbers: 7, 3, 5"


def tracked() -> list[str]:
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a clone")
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the tracked files, built in an environment that pip makes for it."""
    clone, folder = map(tmp_path_factory.mktemp, ("clone", "wheel"))
    for name in tracked():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, clone / name)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(clone)]
    done = subprocess.run(build, capture_output=True, text=True)
    if done.returncode and re.search(r"No matching distribution.*hatchling", done.stderr):
        pytest.skip("the build backend cannot be fetched here")
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of an environment with a read-only wheel and the packages of this process."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    binaries = folder / "bin"
    (packages,) = folder.glob("lib/python*/site-packages")
    install = [sys.executable, "-m", "pip", "--python", str(binaries / "python"), "install", "-q"]
    subprocess.run([*install, "--no-deps", "--no-index", str(wheel)], check=True)
    others = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "others.pth").write_text("\n".join(others) + "\n")
    for path in (packages, *packages.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    return binaries


def as_a_user() -> list[str]:
    if os.geteuid():
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("a superuser can write anywhere, and there is no setpriv to prevent it")
    return ["setpriv", "--bounding-set", "-dac_override"]


def test_the_wheel_holds_what_the_packages_read(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    data = "mars_runtime/_data/"
    places = {"mars_runtime/": "", "app/": "", "checkpoints/": data, "app.py": data}
    for kind in ("built", "web", "recordings", "results", "review"):
        places[f"assets/{kind}/"] = data
    expected = {
        prefix + name
        for name in tracked()
        for place, prefix in places.items()
        if name.startswith(place) and not re.search(r"/log[^/]*\.jsonl$|\.gitignore$", name)
    }
    assert expected - names == set()
    assert {name for name in names - expected if ".dist-info/" not in name} == set()
    assert wheel.stat().st_size < MAX_WHEEL


def test_the_page_is_served_from_a_read_only_folder(installed: Path, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    command = [*as_a_user(), str(installed / "mars"), "page", "--port", str(port)]
    command += ["--checkpoint", "mars-tiny"]
    variables = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    variables |= {"MARS_CACHE": str(tmp_path / "cache"), "MARS_OFFLINE": "1"}
    variables["TMPDIR"] = str(tmp_path)
    with (
        log.open("wb") as out,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client,
        subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=out, stderr=out) as process,
    ):
        try:
            wait_until_it_serves(client, process, log)
            assert "gradio_config" in client.get("/").text
            body = {"model": "mars-tiny", "messages": [{"role": "user", "content": PROMPT}]}
            answer = client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            assert "Answer:" in answer.json()["choices"][0]["message"]["content"]
        finally:
            process.kill()
    assert "Traceback" not in log.read_text()
    assert str(ROOT) not in log.read_text()
    weights = (tmp_path / "cache" / "weights").rglob("*.safetensors")
    assert {path.name for path in weights} == {"model.safetensors"}


PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
GROUPS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def declared(*extras: str) -> set[str]:
    listed = [*PROJECT["dependencies"], *(group for extra in extras for group in GROUPS[extra])]
    return {item for item in listed if not item.startswith("mars-live[")}


def required(name: str) -> set[str]:
    lines = (ROOT / name).read_text("utf-8").splitlines()
    return {line for line in lines if line and not line.startswith(("#", "-r"))}


def test_requirements_are_what_the_project_declares() -> None:
    assert required("requirements.txt") == declared("app", "serve", "lab")
    for extra, name in (("ray", "serve"), ("compiler", "compiler")):
        assert required(f"requirements-{name}.txt") == declared(extra) - declared()


def test_a_missing_module_is_found_in_the_extra_that_installs_it() -> None:
    names = {extra: {Requirement(group).name for group in GROUPS[extra]} for extra in EXTRAS}
    for extra, modules in EXTRAS.items():
        assert names[extra] - {"mars-live"} == {name.replace("_", "-") for name in modules}
