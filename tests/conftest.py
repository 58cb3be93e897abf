"""Fixtures for the whole suite. One thread: small models are quickest so, and tests share cores."""

from __future__ import annotations

import gc
import os
import re
import ssl
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import close_shared
from filelock import FileLock
from hypothesis import settings

import app  # noqa: F401  # before gradio, which else spends seconds on stubs

if TYPE_CHECKING:
    from mars_runtime.model.load import Checkpoint

gc.disable()  # until all is imported
os.environ["OMP_NUM_THREADS"] = "1"  # of processes that tests start

# Examples of properties without a number of their own; hypothesis itself makes a hundred.
settings.register_profile("shared machine", deadline=None, max_examples=25)
settings.register_profile("thorough", deadline=None)
settings.load_profile("shared machine")


# A port for each process: its pages have one origin, whose scripts stay compiled in the browser.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
os.environ["GRADIO_SERVER_PORT"] = str(7900 + 100 * WORKER)


TESTS = Path(__file__).parent
UNIT_FOLDERS = {"decoders", "evaluation", "review", "tasks"}
# Files below tests/ and in UNIT_FOLDERS that run models for many seconds, or start processes.
NOT_UNIT = re.compile(
    r"test_(laws?|law_\w+|laws_\w+|install|measure_gpu|notebook|portable|surfaces|cli_\w+|documents"
    r"|chat_templates|prefix_reuse|families|sandbox|adaptive|speculative|cursor)\.py"
)


@cache
def runs_transformers(path: Path) -> bool:
    """Whether a file runs its models, which take three seconds to import, or may train for it."""
    return "transformers" in path.read_text("utf-8")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need no browser, no server and little time.

    Those that run transformers come first, because two processes run them all.
    """
    items.sort(key=lambda item: not runs_transformers(item.path))
    for item in items:
        folder = item.path.parent
        is_near = folder == TESTS or folder.name in UNIT_FOLDERS
        is_late = {"slow", "gpu", "timed"} & {mark.name for mark in item.iter_markers()}
        if is_near and not is_late and not NOT_UNIT.fullmatch(item.path.name):
            item.add_marker(pytest.mark.unit)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return half as many again as there are cores, because tests also wait; for a single file, and
    for tests that need a quiet machine, 0: they run in this process."""
    files = {argument.partition("::")[0] for argument in config.args}
    is_single = len(files) == 1 and files.pop().endswith(".py")
    if is_single or config.option.markexpr in ("slow", "gpu", "timed"):
        return 0
    return min(3 * (os.cpu_count() or 1) // 2, 16)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file goes to one process, those that run transformers to two: the laws and the others."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduler(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            path = config.rootpath / file
            if not runs_transformers(path):
                return file
            return "laws" if path.parent == TESTS else "transformers"

    return Scheduler(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """What was imported stays: each full collection of garbage would walk through all of it."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """One thread, regardless of the test before: more threads spin next to the other processes."""
    import torch

    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.hookimpl(trylast=True)  # after the fixtures of the last test with a page
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    if nextitem is None or TESTS / "app" not in nextitem.path.parents:
        close_shared()


def no_folder() -> Path:
    """Stand in for the folder of stored costs, so that no test depends on an earlier one."""
    raise OSError("no costs are stored during tests")


@pytest.fixture(scope="session", autouse=True)
def _quick() -> Iterator[None]:
    """Measure costs once, not for seconds at each load; make examples once, not for each page; read
    the certificates once, not for each client."""
    from mars_runtime import tasks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "examples", cache(tasks.examples))
        patch.setattr("ssl.create_default_context", cache(ssl.create_default_context))
        patch.setattr("mars_runtime.engine.backend.WARM_UP_TOKENS", 3)
        patch.setattr("mars_runtime.engine.costs.MANY", (1, 2, 16))
        patch.setattr("mars_runtime.engine.costs.FEW", (1, 2))
        patch.setattr("mars_runtime.engine.costs.BATCH", (1, 2))
        patch.setattr("mars_runtime.engine.costs.MASKED", (1,))
        patch.setattr("mars_runtime.engine.costs.BUDGET_SECONDS", 0.0)
        patch.setattr("mars_runtime.engine.costs.ROUNDS", range(1, 2))
        patch.setattr("mars_runtime.engine.costs.cache_folder", no_folder)
        yield


def _made_once(
    name: str, tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], Path]
) -> Path:
    """A folder that the first process of a run makes that needs it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            make(tmp_path_factory.mktemp("making")).rename(folder)
    return folder


@pytest.fixture(scope="session")
def random_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder with random weights; do not write into it."""
    from helpers import write_checkpoint

    return _made_once("random", tmp_path_factory, write_checkpoint)


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    """The GGUF file of mars-smollm2; tests that ask for it are skipped where it is absent."""
    from mars_runtime.model.source import resolve

    source = resolve("mars-smollm2")
    if source.missing:
        pytest.skip("mars-smollm2 is not here: run python -m mars_runtime fetch mars-smollm2")
    return source.path


@pytest.fixture(scope="session")
def foreseeing_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder with a model that predicts some tokens; do not write into it."""
    from helpers import train_foreseeing

    return _made_once("foreseeing", tmp_path_factory, train_foreseeing)


@pytest.fixture(scope="module", params=["plain", "bucketed"])
def each_forward(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a module with forwards as a CPU does them, and as a GPU does: padded up to buckets and
    recorded on fixed memory. A replay runs the recorded function again."""
    from helpers import ScriptedModel, run_again

    from mars_runtime.model.transformer import Transformer

    with pytest.MonkeyPatch.context() as patch:
        if request.param == "bucketed":
            for kind in (Transformer, ScriptedModel):
                patch.setattr(kind, "record", staticmethod(run_again))
        yield request.param


@pytest.fixture(
    scope="module", params=[pytest.param("random", marks=pytest.mark.slow), "foreseeing"]
)
def small(request: pytest.FixtureRequest) -> Checkpoint:
    """Either of the two, loaded; what is held on scripted models always is held on random weights
    as a slow test."""
    from law_checkpoints import load

    return load(str(request.getfixturevalue(f"{request.param}_folder")))


@pytest.fixture(scope="module")
def foreseeing(foreseeing_folder: Path) -> Checkpoint:
    from law_checkpoints import load

    return load(str(foreseeing_folder))
