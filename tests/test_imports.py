"""Imports go one way, read without running anything."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUNTIME = ROOT / "mars_runtime"

# A module may import modules of its own rank and below.
RANKS = {
    "errors": 0,
    "files": 0,
    "system": 0,
    "runs": 1,
    "display": 6,
    "commands": 7,
    "chat_template": 0,
    "decoders.methods": 0,
    "settings": 0,
    "text": 1,
    "tasks": 1,
    "acceptance": 0,
    "cache": 2,
    "model": 3,
    "decoders": 4,
    "engine": 5,
    "serving": 6,
    "review": 6,
    "lab.tables": 6,
    "lab.commands": 6,
    "lab.training": 6,
    "lab.evaluation": 6,
    "lab.benchmark": 6,
    "lab.verification": 6,
    "cli": 7,
    "api": 7,
    "__main__": 7,
}
APP_RANKS = {
    "gradio_compat": 0,
    "settings": 0,
    "engines": 1,
    "ui": 2,
    "serving": 3,
    "live": 3,
    "tradeoff": 3,
    "throughput": 3,
    "review": 3,
    "api": 4,
    "handlers": 5,
    "page": 6,
    "server": 7,
    "deploy": 7,
}
"""A part of the page imports only parts of a lower rank, so tabs do not import each other."""
TORCHLESS = (
    "files",
    "runs",
    "display",
    "errors",
    "decoders.methods",
    "acceptance",
    "settings",
    "text",
    "tasks",
)
GRADIO_FILES = {
    "app/api/endpoints.py",
    "app/engines/zerogpu.py",
    "app/gradio_compat.py",
    "app/live/tab.py",
    "app/page.py",
    "app/server.py",
    "app/throughput/tab.py",
    "app/tradeoff/grid_tab.py",
    "app/ui/fields.py",
    "app/ui/stream.py",
    "app/ui/theme.py",
    "app/ui/views.py",
    "app/ui/wiring.py",
}


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
    """The first parts of those names: ``torch``, ``app``."""
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


def test_the_runtime_imports_only_downwards() -> None:
    wrong = []
    for path in _modules(RUNTIME):
        module = _part(_name(path))
        parts = {name: part for name in _imports(path) if (part := _part(name))}
        unranked = {*filter(None, [module]), *parts.values()} - RANKS.keys()
        assert not unranked, f"give {sorted(unranked)} a rank above"
        most = RANKS[module] if module else RANKS["api"]  # the first file offers the API, on demand
        wrong += [f"{_name(path)}: {name}" for name, part in parts.items() if RANKS[part] > most]
    assert not wrong, f"these must not import what stands above them: {wrong}"


def test_the_page_imports_only_downwards() -> None:
    """So no two of its packages import each other."""
    wrong = []
    for path in _modules(ROOT / "app"):
        module = _part(_name(path), "app")
        parts = {name: part for name in _imports(path) if (part := _part(name, "app"))}
        unranked = {*filter(None, [module]), *parts.values()} - APP_RANKS.keys()
        assert not unranked, f"give {sorted(unranked)} a rank above"
        if module:
            others = {name: part for name, part in parts.items() if part != module}
            wrong += [
                f"{_name(path)}: {name}"
                for name, part in others.items()
                if APP_RANKS[part] >= APP_RANKS[module]
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
    """Page, endpoint and everything that they import; a command's module, found by its
    name, may.
    """
    paths = [ROOT / "app.py", *_modules(ROOT / "app")]
    paths += [path for path in _modules(RUNTIME) if not path.is_relative_to(RUNTIME / "lab")]
    wrong = [
        f"{_name(path)}: {name}"
        for path in paths
        for name in _imports(path)
        if f"{name}.".startswith("mars_runtime.lab.")
    ]
    assert not wrong, f"these must not import the lab: {wrong}"


def test_only_these_files_know_gradio() -> None:
    wrong = []
    for path in _modules(ROOT / "app"):
        place, banned = path.relative_to(ROOT).as_posix(), set()
        if place not in GRADIO_FILES:
            banned |= {"gradio"}
        if place == "app/throughput/run.py":
            banned |= {"torch"}
        wrong += [f"{place}: {root}" for root in _roots(path) & banned]
    assert not wrong, f"these must not import that: {wrong}"


def test_gradio_is_used_by_its_public_names_outside_gradio_compat() -> None:
    """``import gradio`` only: its modules, and the queue of a page, are its own."""
    wrong = []
    for path in _modules(ROOT / "app"):
        if path == ROOT / "app" / "gradio_compat.py":
            continue
        wrong += [f"{_name(path)}: {name}" for name in _imports(path) if name.startswith("gradio.")]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in ("_queue", "mcp_server_obj"):
                wrong.append(f"{_name(path)}:{node.lineno}: {ast.unparse(node)}")
    assert not wrong, f"these depend on Gradio's internals: {wrong}"


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


def test_every_class_has_a_name_of_its_own() -> None:
    """Product code defines each class name once, so that a name means one thing."""
    places: dict[str, list[str]] = {}
    for folder in ("app", "mars_runtime", "tools", "integrations"):
        for path in _modules(ROOT / folder):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    place = f"{path.relative_to(ROOT).as_posix()}:{node.lineno}"
                    places.setdefault(node.name, []).append(place)
    repeated = {name: lines for name, lines in places.items() if len(lines) > 1}
    assert not repeated, f"rename all but one of each: {repeated}"
