"""What is asked of the system this runs on."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from mars_runtime.model.threads import limit_threads
from mars_runtime.system import machine
from mars_runtime.system.machine import cache_folder
from mars_runtime.system.network import prepare_network
from mars_runtime.system.provenance import Quiet, core_seconds


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of temporary files of a user who is not in passwd and has no variable set."""

    def getpwuid(number: int) -> object:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("HOME", "XDG_CACHE_HOME", "MARS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", getpwuid)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_user_without_a_home_has_a_private_cache(homeless: Path) -> None:
    folder = cache_folder()
    assert folder.parent == homeless
    assert folder.stat().st_mode & 0o777 == 0o700
    assert cache_folder() == folder


@pytest.mark.parametrize("trap", ["open to all", "a link", "a file"])
def test_what_another_user_prepared_there_is_refused(homeless: Path, trap: str) -> None:
    folder = cache_folder()
    folder.rmdir()
    if trap == "a file":
        folder.touch()
    elif trap == "a link":
        (homeless / "elsewhere").mkdir()
        folder.symlink_to(homeless / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.raises(OSError, match=str(folder)):
        cache_folder()


def test_the_time_of_other_processes_is_that_of_the_requested_cores() -> None:
    """man 5 proc: user nice system idle iowait irq softirq steal guest guest_nice."""
    lines = ["cpu  300 0 100 600 0 0 0 0 0 0", "cpu0 100 0 50 250 50 0 0 50 9 9", "intr 12345"]
    assert core_seconds(lines, {"cpu0"}, 100) == pytest.approx((2.0, 5.0))
    assert core_seconds(lines, {"cpu7"}, 100) is None


def test_each_sign_of_a_busy_machine_is_a_doubt() -> None:
    assert Quiet(2, 0.5, 0.02, 0.05).doubts == Quiet(2, 0.5, None, None).doubts == []
    assert len(Quiet(2, 1.4, 0.25, 0.4).doubts) == 3


UNLIMITED = "8 cores (affinity)"


def v1(group: str, quota: int) -> dict[str, str]:
    return {f"{group}/cpu.cfs_quota_us": f"{quota}", f"{group}/cpu.cfs_period_us": "100000"}


@pytest.mark.parametrize(
    ("line", "files", "expected"),
    [
        ("0::/a/b", {}, UNLIMITED),
        ("0::/a/b", {"a/b/cpu.max": "max 1", "a/cpu.max": "50000 100000"}, "1 core (CPU quota)"),
        ("0::/not/seen/inside", {"cpu.max": "250000 100000"}, "2 cores (CPU quota)"),
        ("4:cpu,cpuacct:/docker/a", v1("cpu,cpuacct/docker/a", -1), UNLIMITED),
        ("4:cpu,cpuacct:/docker/a", v1("cpu,cpuacct/docker/a", 400000), "4 cores (CPU quota)"),
    ],
)
def test_threads_respect_the_quota_and_the_affinity(
    line: str, files: Any, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A machine of 64 cores, 8 of which the process may use."""
    (tmp_path / "group").write_text(f"9:memory:/x\n{line}\n")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(machine, "CGROUP", tmp_path / "group")
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    name = machine.device_name.__wrapped__(torch.device("cpu"))
    count, _, rest = expected.partition(" ")
    assert name.endswith(f", {count} of 64 {rest}")
    assert machine.num_cores() == int(count)
    torch.set_num_threads(9)  # conftest.py sets it again
    limit_threads()
    assert torch.get_num_threads() == int(count)


# Proxy and certificate variables that are set when the program starts.

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
PROXY = "http://127.0.0.1:9"


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without any of the variables; what a test sets is undone."""
    for name in (*PROXIES, *map(str.upper, PROXIES), "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize("exempt", ["", "intranet.example"])
def test_loopback_goes_through_no_proxy(variables: pytest.MonkeyPatch, exempt: str) -> None:
    variables.setenv("http_proxy", PROXY)
    variables.setenv("no_proxy", exempt)
    assert prepare_network() == ""
    with httpx.Client() as client:
        for host in ("127.0.0.1", "localhost", "[::1]", *filter(None, [exempt])):
            assert client._transport_for_url(httpx.URL(f"http://{host}:8")) is client._transport
        through = client._transport_for_url(httpx.URL("http://hub.example"))
        assert through is not client._transport


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SSL_CERT_FILE", "/nonexistent/ca.pem", "No such file or directory"),
        ("HTTPS_PROXY", "ftp://127.0.0.1:9", "Unknown scheme"),
        ("http_proxy", "http://127.0.0.1:port", "Invalid port"),
    ],
)
def test_what_httpx_cannot_use_is_reported_in_its_words(
    variables: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    variables.setenv(name, value)
    assert said in prepare_network()
