"""``python -m mars_runtime serve --ray``: replicas of the endpoint behind Ray's proxies.

If RAY_ADDRESS is set, the command deploys to that cluster, or updates the deployment, and exits.
Otherwise it starts a cluster on this machine, which ends with this process.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from starlette.types import ASGIApp

from mars_runtime.files.paths import SOURCE
from mars_runtime.serving.app import make_app
from mars_runtime.serving.errors import BUSY_SECONDS
from mars_runtime.serving.models import EngineModel, SingleModel
from mars_runtime.serving.requests import DEFAULT_CAPS
from mars_runtime.serving.server import (
    KEY,
    LOOPBACK,
    AddressInUseError,
    ServePlan,
    allowed_origins,
    api_key,
    bound,
    bring,
    url_of,
)

APP = "mars"
NUM_CHECKS = 4  # requests that a replica accepts in addition to runs
GRACE_SECONDS, HEALTH_SECONDS = 15.0, 2.0
START_SECONDS = 60.0  # time for a proxy to start; Ray's default, 5, is too short on a busy machine
NO_RAY = "Ray is not installed here. Run pip install -r requirements-serve.txt."
NOT_STARTED = "The replicas did not start. See the logs of Ray."
NO_KEY = (
    f"{KEY} is not set on this machine, but it is set where the server was deployed. Set it and "
    "start Ray again."
)
LOGGING = {"log_level": "WARNING", "enable_access_log": False}
Bring = Callable[[ServePlan], EngineModel]


def serve(plan: ServePlan, host: str, port: int) -> int:
    """Deploy the endpoint and, if the cluster is of this process, serve until a signal."""
    from mars_runtime.model.config import CheckpointError
    from mars_runtime.model.fetch import download
    from mars_runtime.model.source import resolve

    if not has_ray():
        print(NO_RAY, file=sys.stderr)
        return 2
    try:
        download(resolve(plan.checkpoint))
        # The port is checked here, because Ray would wait until it is free.
        with bound(host, port) as listener:
            port = listener.getsockname()[1]
    except (CheckpointError, AddressInUseError) as error:
        print(error, file=sys.stderr)
        return 2
    is_own = begin(host.strip("[]"), port)
    try:
        deploy(plan, bring)
    except RuntimeError:
        print(NOT_STARTED, file=sys.stderr)
        return 1
    leaving = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leaving.set())
    print(f"Serving {plan.checkpoint} at {url_of(host, port)}/v1", flush=True)
    if is_own:
        leaving.wait()
        end()
    return 0


def has_ray() -> bool:
    return importlib.util.find_spec("ray") is not None


def begin(host: str, port: int) -> bool:
    address = os.environ.get("RAY_ADDRESS", "")
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SOURCE), before]))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", str(START_SECONDS))
    if not address and host in LOOPBACK:
        # Ray, when it is imported, so binds its ports to 127.0.0.1, on Linux too.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    import ray
    from ray import serve

    options: dict[str, Any] = {} if address else {"include_dashboard": False}
    ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **options)
    serve.start(http_options={"host": host, "port": port}, logging_config=LOGGING)
    return not address


def deploy(plan: ServePlan, bring: Bring) -> None:
    """Deploy replicas and wait until they are ready. Replicas of an earlier deployment finish their
    requests and are replaced one by one. Raises RuntimeError.
    """
    from ray import serve

    busy = plan.max_runs + plan.max_waiting
    deployment = serve.deployment(
        serve.ingress()(Replica),
        autoscaling_config={
            "min_replicas": plan.min_replicas,
            "max_replicas": max(plan.min_replicas, plan.max_replicas),
            "target_ongoing_requests": plan.max_runs,
        },
        ray_actor_options={"num_cpus": plan.threads},
        max_ongoing_requests=busy + NUM_CHECKS,
        max_queued_requests=busy,
        backpressure_config={"status_code": 429, "retry_after_s": BUSY_SECONDS},
        graceful_shutdown_timeout_s=DEFAULT_CAPS.max_seconds + GRACE_SECONDS,
        health_check_period_s=HEALTH_SECONDS,
        max_constructor_retry_count=2,
        logging_config=LOGGING,
    )
    serve.run(deployment.bind(plan, bring, allowed_origins(), bool(api_key())), name=APP)


def end() -> None:
    import ray
    from ray import serve

    serve.shutdown()
    ray.shutdown()


class ReplicaError(RuntimeError):
    """The message is one sentence."""


class Replica:
    """A Ray actor that serves the endpoint. Ray replaces it if its engine dies."""

    def __init__(
        self, plan: ServePlan, bring: Bring, origins: Sequence[str], has_key: bool
    ) -> None:
        """Load the model. Raises ReplicaError.

        has_key: whether the deploying process has a key; then this machine must have one too.
        """
        import torch

        self._key, self._origins = api_key(), origins
        if has_key and not self._key:
            raise ReplicaError(NO_KEY)
        torch.set_num_threads(plan.threads)
        self._models = SingleModel(plan.checkpoint, lambda: bring(plan))
        if trouble := self._models.wait():
            raise ReplicaError(trouble)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return make_app(self._models, key=self._key, origins=self._origins)

    def check_health(self) -> None:
        """Raise ReplicaError if the model cannot answer. Ray calls this method."""
        if trouble := self._models.trouble:
            raise ReplicaError(trouble)

    def __del__(self) -> None:
        if hasattr(self, "_models"):
            self._models.close()
