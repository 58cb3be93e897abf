"""Tells lm-eval of the model ``mars``, without importing it yet."""

from __future__ import annotations

import lm_eval.models  # noqa: F401  # its own models first: it adds them to an empty list only
from lm_eval.api.registry import model_registry

NAME = "mars"
if NAME not in model_registry:
    model_registry.register(NAME, target="mars_runtime.lab.harness.model:MarsLM")
