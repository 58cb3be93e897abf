"""``python -m mars_runtime serve``: one checkpoint behind an OpenAI-compatible endpoint.

What is to be served, and how, is told by flags; the server is up at once and says that it is
loading until it is loaded. Imports nothing heavy before a model is brought.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import threading
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mars_runtime.serving.metrics import Metrics
    from mars_runtime.serving.models import EngineModel

KEY = "MARS_API_KEY"
"""The environment variable with the key that callers must send; none is asked for without it."""


PROXIES = "MARS_NUM_PROXIES"
"""The environment variable with the number of trusted proxies before the server."""


class PlanError(ValueError):
    """A plan that makes no sense; the message is one sentence."""


def num_proxies() -> int:
    """How many there are (``limits.Proxies``). Raises PlanError."""
    text = os.environ.get(PROXIES, "").strip() or "0"
    if not re.fullmatch(r"[0-9]{1,3}", text):
        raise PlanError(f"{PROXIES} must be a whole number, such as 1.")
    return int(text)


@dataclass(frozen=True, slots=True)
class ServePlan:
    """A checkpoint behind an endpoint. max_runs, max_waiting: served at once and in line, by each
    replica where there are several.

    threads: of the arithmetic of a replica, and the cores that are set aside for it; min_replicas,
    max_replicas: as many as the requests that are going call for. Raises PlanError.
    """

    checkpoint: str
    device: str = "auto"
    dtype: str = "auto"
    max_runs: int = 8
    max_waiting: int = 32
    threads: int = 1
    min_replicas: int = 1
    max_replicas: int = 2

    def __post_init__(self) -> None:
        if self.max_runs < 1 or self.max_waiting < 0:
            raise PlanError("Serve at least 1 request at once, with a line of 0 or more.")
        if self.threads < 1:
            raise PlanError("Give every replica at least 1 thread.")
        if not 1 <= self.min_replicas <= self.max_replicas:
            raise PlanError("Choose at least 1 replica, and no fewer at most than at least.")

    @classmethod
    def of(cls, args: argparse.Namespace) -> ServePlan:
        """What flags of these names ask for. Raises PlanError."""
        return cls(**{field.name: getattr(args, field.name) for field in fields(cls)})


def bring(plan: ServePlan, metrics: Metrics | None = None) -> EngineModel:
    """Load what was asked for, and count what it does where that is asked for. Raises
    CheckpointError."""
    from mars_runtime.engine.engine import Engine
    from mars_runtime.model.load import load_checkpoint
    from mars_runtime.serving.models import EngineModel

    checkpoint = load_checkpoint(plan.checkpoint, device=plan.device, dtype=plan.dtype)
    engine = Engine(checkpoint, max_runs=plan.max_runs, max_waiting=plan.max_waiting)
    if metrics is not None:
        metrics.watch(checkpoint.name, engine)
    return EngineModel.of(checkpoint, engine)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``serve`` command."""
    parser = subparsers.add_parser("serve", help="serve an OpenAI-compatible endpoint")
    add = parser.add_argument
    add("--checkpoint", default="mars-smollm2", help="a name or a folder (%(default)s)")
    add("--host", default="127.0.0.1", help="address to serve at (%(default)s)")
    add("--port", type=int, default=8000, help="port (%(default)s), 0 any")
    add("--device", default="auto", help="auto, cpu or cuda (%(default)s)")
    add("--dtype", default="auto", help="auto, fp32, bf16 or int8 (%(default)s)")
    add("--max-runs", type=int, default=8, help="requests served at once (%(default)s)")
    add("--max-waiting", type=int, default=32, help="requests in line behind (%(default)s)")
    add("--ray", action="store_true", help="replicas of it by Ray Serve, with the options below")
    add("--threads", type=int, default=1, help="of a replica (%(default)s)")
    add("--min-replicas", type=int, default=1, help="at least (%(default)s)")
    add("--max-replicas", type=int, default=2, help="at most, under load (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. A mistake of the user is a sentence and 2."""
    try:
        plan, proxies = ServePlan.of(args), num_proxies()
    except PlanError as error:
        print(error, file=sys.stderr)
        return 2
    if args.ray:
        from mars_runtime.serving.replicas import serve

        return serve(plan, args.host, args.port)
    return serve_here(plan, args.host, args.port, proxies)


def serve_here(plan: ServePlan, at: str, wanted: int, proxies: int) -> int:
    """Serve from this process alone, behind so many proxies; the exit code."""
    from mars_runtime.serving.app import make_app
    from mars_runtime.serving.limits import Proxies
    from mars_runtime.serving.metrics import Metrics
    from mars_runtime.serving.models import SingleModel
    from mars_runtime.serving.server import PlaceTakenError, Server, bound

    try:
        listener = bound(at, wanted)
    except PlaceTakenError as error:
        print(error, file=sys.stderr)
        return 2
    host, port = listener.getsockname()[:2]
    metrics = Metrics()
    models = SingleModel(plan.checkpoint, lambda: bring(plan, metrics))
    app = make_app(models, key=os.environ.get(KEY, ""), expose=metrics.expose)
    server = Server(Proxies(app, proxies), models.close)

    def tell() -> None:
        if trouble := models.wait():
            print(trouble, file=sys.stderr)
            server.leave()
        else:
            print(f"Serving {plan.checkpoint} at http://{host}:{port}/v1", flush=True)

    threading.Thread(target=tell, daemon=True).start()
    server.run(sockets=[listener])
    return 1 if models.failure else 0
