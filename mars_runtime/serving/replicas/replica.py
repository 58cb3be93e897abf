"""One replica: a model of its own behind the endpoint, in a process that Ray starts and watches.

Knows Ray only by the names of the methods that it calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from starlette.types import ASGIApp

from mars_runtime.serving.app import make_app
from mars_runtime.serving.local import EngineModel, SingleModel
from mars_runtime.serving.plan import KEY, Plan

Bring = Callable[[Plan], EngineModel]
NO_KEY = f"This machine has no {KEY} as the one has that deploys: set it and start Ray again."


class ReplicaError(RuntimeError):
    """A replica that cannot answer; the message is one sentence."""


class Replica:
    """Is there once its model is loaded; one whose engine has died is replaced by Ray."""

    def __init__(self, plan: Plan, bring: Bring, has_key: bool) -> None:
        """bring: loads the model, on the machine of the replica. Raises ReplicaError."""
        import torch

        self._key = os.environ.get(KEY, "")
        if has_key and not self._key:
            raise ReplicaError(NO_KEY)
        torch.set_num_threads(plan.threads)
        self._models = SingleModel(plan.checkpoint, lambda: bring(plan))
        if trouble := self._models.wait():
            raise ReplicaError(trouble)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """The endpoint, the same as without Ray."""
        return make_app(self._models, key=self._key)

    def check_health(self) -> None:
        """Raises ReplicaError where no request can be answered any more."""
        if trouble := self._models.trouble:
            raise ReplicaError(trouble)

    def leave(self) -> None:
        """End every run with a sentence."""
        self._models.close()

    def __del__(self) -> None:
        if hasattr(self, "_models"):
            self._models.close()
