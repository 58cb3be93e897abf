"""Keeps gradio from writing type stubs while it is imported.

It writes one beside the source of every component, this app's own included (which mypy would then
read instead), and compares them again at each start, which slows the import of gradio a good deal.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

WRITER = "gradio.component_meta"


class _WriterFinder(MetaPathFinder):
    """Finds the module that writes stubs as everybody does; once it has run, it writes none."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != WRITER:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            module.__dict__["create_or_modify_pyi"] = lambda *_: None

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def write_none() -> None:
    """From here on, unless gradio is there already."""
    if WRITER not in sys.modules:
        sys.meta_path.insert(0, _WriterFinder())
