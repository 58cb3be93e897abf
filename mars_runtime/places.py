"""Where the data of the project lies: at the root of a checkout, or in the installed package.

A wheel has ``app.py`` and the folders ``assets`` and ``checkpoints`` in ``mars_runtime/_data``
(pyproject.toml).
"""

from __future__ import annotations

from pathlib import Path

SOURCE = Path(__file__).parents[1]
"""The folder from which ``mars_runtime`` and ``app`` are imported; in a checkout its root."""
_INSTALLED = Path(__file__).parent / "_data"
DATA = _INSTALLED if _INSTALLED.is_dir() else SOURCE
ASSETS = DATA / "assets"
CHECKPOINTS = DATA / "checkpoints"
PAGE = DATA / "app.py"
"""The script that starts the page."""
