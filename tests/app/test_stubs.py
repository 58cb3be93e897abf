"""Importing the app leaves no stubs of gradio's beside its components."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest


def test_no_stub_is_written_beside_a_component(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "quiet_component.py"
    source.write_text("import gradio\n\n\nclass Quiet(gradio.HTML):\n    pass\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import_module("quiet_component")
    assert not source.with_suffix(".pyi").exists()
