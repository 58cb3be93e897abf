"""Imports go one way, read without running anything."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUNTIME = ROOT / "mars_runtime"


def ranks(*levels: str) -> dict[str, int]:
    return {part: rank for rank, parts in enumerate(levels) for part in parts.split()}


RANKS = ranks(
    "errors files system chat_template decoders.methods settings acceptance",
    "runs text tasks",
    "cache",
    "model",
    "decoders",
    "engine",
    "display serving review lab.tables lab.commands lab.training lab.evaluation lab.benchmark"
    " lab.verification",
    "commands cli api __main__",
)
"""A module may import modules of its own rank and below."""
APP_RANKS = ranks(
    "gradio_compat settings",
    "engines",
    "ui",
    "serving live tradeoff throughput review",
    *("api", "handlers", "page", "server deploy"),
)
"""A part of the page imports only parts of a lower rank, so tabs do not import each other."""
TORCHLESS = [
    *("files", "runs", "display", "errors", "decoders.methods", "acceptance", "settings", "text"),
    "tasks",
]
GRADIO_FILES = [
    *("api/endpoints", "engines/zerogpu", "gradio_compat", "live/tab", "page", "server"),
    *("throughput/tab", "tradeoff/grid_tab"),
    *("ui/fields", "ui/stream", "ui/theme", "ui/views", "ui/wiring"),
]


def _modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


@cache
def _imports(path: Path) -> set[str]:
    """Absolute names that a file imports anywhere, function bodies included."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*start, *filter(None, [node.module])])
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return names


def _roots(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in _imports(path)}


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _part(name: str, folder: str = "mars_runtime") -> str | None:
    """``mars_runtime.model.load`` -> ``model``, ``mars_runtime.lab.tables`` -> ``lab.tables`` (also
    ``decoders.methods``); None outside the folder and for the folder itself."""
    package, *parts = name.split(".")
    if package != folder or not parts:
        return None
    two = ".".join(parts[:2])
    return two if parts[0] == "lab" or two == "decoders.methods" else parts[0]


def parts_of(path: Path, folder: str, order: dict[str, int]) -> tuple[str | None, dict[str, str]]:
    module = _part(_name(path), folder)
    parts = {name: part for name in _imports(path) if (part := _part(name, folder))}
    unranked = {*filter(None, [module]), *parts.values()} - order.keys()
    assert not unranked, f"give {sorted(unranked)} a rank above"
    return module, parts


def test_the_runtime_imports_only_downwards() -> None:
    wrong = []
    for path in _modules(RUNTIME):
        module, parts = parts_of(path, "mars_runtime", RANKS)
        most = RANKS[module] if module else RANKS["api"]  # the first file offers the API, on demand
        wrong += [f"{_name(path)}: {name}" for name, part in parts.items() if RANKS[part] > most]
    assert not wrong, f"these must not import what stands above them: {wrong}"


def test_the_page_imports_only_downwards() -> None:
    wrong = []
    for path in _modules(ROOT / "app"):
        module, parts = parts_of(path, "app", APP_RANKS)
        most = APP_RANKS[module] if module else 99
        wrong += [
            f"{_name(path)}: {name}"
            for name, part in parts.items()
            if part != module and APP_RANKS[part] >= most
        ]
    assert not wrong, f"these may only import parts of a lower rank: {wrong}"


def test_the_runtime_knows_neither_page_nor_app() -> None:
    wrong = []
    for path in _modules(RUNTIME):
        module, banned = _part(_name(path)), {"gradio", "app", "tests"}
        if module in TORCHLESS:
            banned |= {"torch", "transformers", "safetensors"}
        if module in ("model", "decoders", "engine", "acceptance", "cache"):
            banned |= {"transformers"}
        wrong += [f"{_name(path)}: {root}" for root in _roots(path) & banned]
    assert not wrong, f"these must not import that: {wrong}"


def test_nothing_that_a_server_runs_imports_the_lab() -> None:
    """A command's module, found by its name, may."""
    paths = [ROOT / "app.py", *_modules(ROOT / "app")]
    paths += [path for path in _modules(RUNTIME) if not path.is_relative_to(RUNTIME / "lab")]
    lab = "mars_runtime.lab."
    wrong = [(_name(p), name) for p in paths for name in _imports(p) if f"{name}.".startswith(lab)]
    assert not wrong, f"these must not import the lab: {wrong}"


def test_gradio_is_used_in_few_files_and_by_its_public_names() -> None:
    """Its modules, and the queue of a page, are its own; ``gradio_compat`` uses them."""
    wrong = []
    for path in _modules(ROOT / "app"):
        place = path.relative_to(ROOT / "app").with_suffix("").as_posix()
        banned = {"torch"} if place == "throughput/run" else set()
        banned |= set() if place in GRADIO_FILES else {"gradio"}
        wrong += [f"{place}: {root}" for root in _roots(path) & banned]
        if place == "gradio_compat":
            continue
        wrong += [f"{place}: {name}" for name in _imports(path) if name.startswith("gradio.")]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in ("_queue", "mcp_server_obj"):
                wrong.append(f"{place}:{node.lineno}: {ast.unparse(node)}")
    assert not wrong, f"these must not import or use that: {wrong}"


@pytest.mark.parametrize("folder", ["app", "mars_runtime"])
def test_no_modules_import_each_other_in_a_circle(folder: str) -> None:
    """Imports inside functions and under TYPE_CHECKING count; so do packages on the way, except the
    importer's own: a package may offer what its modules make of each other."""
    paths = _modules(ROOT / folder)
    modules = {_name(path) for path in paths}
    left: dict[str, set[str]] = {}
    for path in paths:
        module = _name(path)
        named = [module, *_imports(path)]
        prefixes = {".".join(name.split(".")[:n]) for name in named for n in range(1, 7)}
        left[module] = {
            name for name in prefixes & modules if not f"{module}.".startswith(f"{name}.")
        }
    while free := {name for name, needs in left.items() if not needs & left.keys()}:
        left = {name: needs for name, needs in left.items() if name not in free}
    assert not left, f"among these there is a circle: {', '.join(sorted(left))}"
