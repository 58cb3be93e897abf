"""The Python API: the examples of its document, and what may be installed."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_documented_examples_run() -> None:
    text = (ROOT / "docs" / "python.md").read_text("utf-8").replace("```", "")
    example = doctest.DocTestParser().get_doctest(text, {}, "python.md", None, 0)
    flags = doctest.IGNORE_EXCEPTION_DETAIL
    assert not doctest.DocTestRunner(optionflags=flags).run(example).failed


def test_the_import_loads_no_torch() -> None:
    code = "import sys, mars_runtime; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
