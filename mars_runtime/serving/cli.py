"""``python -m mars_runtime serve``: one checkpoint behind an OpenAI-compatible endpoint.

The server is up at once and says that it is loading until it is loaded.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mars_runtime.serving.local import EngineModel
    from mars_runtime.serving.metrics import Metrics

KEY = "MARS_API_KEY"
"""The environment variable with the key that callers must send; none is asked for without it."""


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


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. A mistake of the user is a sentence and 2."""
    if args.max_runs < 1 or args.max_waiting < 0:
        print("Serve at least 1 request at once, with a line of 0 or more.", file=sys.stderr)
        return 2
    from mars_runtime.serving.app import make_app
    from mars_runtime.serving.local import SingleModel
    from mars_runtime.serving.metrics import Metrics
    from mars_runtime.serving.server import PlaceTakenError, Server, bound

    try:
        listener = bound(args.host, args.port)
    except PlaceTakenError as error:
        print(error, file=sys.stderr)
        return 2
    host, port = listener.getsockname()[:2]
    metrics = Metrics()
    models = SingleModel(args.checkpoint, lambda: bring(args, metrics))
    app = make_app(models, key=os.environ.get(KEY, ""), expose=metrics.expose)
    server = Server(app, models.close)

    def tell() -> None:
        if trouble := models.wait():
            print(trouble, file=sys.stderr)
            server.leave()
        else:
            print(f"Serving {args.checkpoint} at http://{host}:{port}/v1", flush=True)

    threading.Thread(target=tell, daemon=True).start()
    server.run(sockets=[listener])
    return 1 if models.failure else 0


def bring(args: argparse.Namespace, metrics: Metrics) -> EngineModel:
    """Load what was asked for, and count what it does. Raises CheckpointError."""
    from mars_runtime.engine.engine import Engine
    from mars_runtime.model.load import load_checkpoint
    from mars_runtime.serving.local import EngineModel

    checkpoint = load_checkpoint(args.checkpoint, device=args.device, dtype=args.dtype)
    engine = Engine(checkpoint, max_runs=args.max_runs, max_waiting=args.max_waiting)
    metrics.watch(checkpoint.name, engine)
    return EngineModel.of(checkpoint, engine)
