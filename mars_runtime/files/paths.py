"""Paths of the project's data files, in a checkout or in the installed package.

An installed package has ``app.py``, ``assets`` and ``checkpoints`` in ``mars_runtime/_data``.
"""

from __future__ import annotations

from pathlib import Path

SOURCE = Path(__file__).parents[2]
"""The folder that contains the packages ``mars_runtime`` and ``app``; the root of a checkout."""
_INSTALLED = Path(__file__).parents[1] / "_data"
DATA = _INSTALLED if _INSTALLED.is_dir() else SOURCE
ASSETS = DATA / "assets"
CHECKPOINTS = DATA / "checkpoints"
PAGE = DATA / "app.py"
"""The script that starts the page."""
