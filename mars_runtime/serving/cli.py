"""``python -m mars_runtime serve``: one checkpoint behind an OpenAI-compatible endpoint.

The server answers while the model is loading, with an error.
"""

from __future__ import annotations

import argparse
import sys
import threading

from mars_runtime.serving.server import (
    AddressInUseError,
    PlanError,
    ServePlan,
    Server,
    allowed_origins,
    api_key,
    bound,
    bring,
    num_proxies,
    url_of,
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("serve", help="serve an OpenAI-compatible endpoint")
    add = parser.add_argument
    add(
        "--checkpoint",
        default="mars-smollm2",
        help="name or folder of the checkpoint (%(default)s)",
    )
    add("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    add("--port", type=int, default=8000, help="port (%(default)s); 0 picks a free one")
    add("--device", default="auto", help="auto, cpu or cuda (%(default)s)")
    add("--dtype", default="auto", help="auto, fp32, bf16 or int8 (%(default)s)")
    add("--max-runs", type=int, default=8, help="requests decoded at the same time (%(default)s)")
    add("--max-waiting", type=int, default=32, help="requests in the queue at most (%(default)s)")
    busy = "while requests wait, lower their tau down to LOW, or B in lossless mode (off)"
    add("--busy-tau", type=float, metavar="LOW", help=busy)
    add("--ray", action="store_true", help="serve replicas with Ray Serve, with the options below")
    add("--threads", type=int, default=1, help="compute threads of a replica (%(default)s)")
    add("--min-replicas", type=int, default=1, help="minimum number of replicas (%(default)s)")
    add("--max-replicas", type=int, default=2, help="maximum number of replicas (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT and return the exit code: 2 for an invalid option."""
    try:
        plan, proxies = ServePlan.of(args), num_proxies()
        origins, key = allowed_origins(), api_key()
    except PlanError as error:
        print(error, file=sys.stderr)
        return 2
    if args.ray:
        from mars_runtime.serving.replicas import serve

        return serve(plan, args.host, args.port)
    from mars_runtime.serving.app import make_app
    from mars_runtime.serving.limits import Proxies
    from mars_runtime.serving.metrics import Metrics
    from mars_runtime.serving.models import SingleModel

    try:
        listener = bound(args.host, args.port)
    except AddressInUseError as error:
        print(error, file=sys.stderr)
        return 2
    host, port = listener.getsockname()[:2]
    metrics = Metrics()
    models = SingleModel(plan.checkpoint, lambda: bring(plan, metrics))
    app = make_app(models, key=key, expose=metrics.expose, origins=origins)
    server = Server(Proxies(app, proxies), args.host, models.close, is_proxied=proxies > 0)

    def report() -> None:
        if trouble := models.wait():
            print(trouble, file=sys.stderr)
            server.leave()
        else:
            print(f"Serving {plan.checkpoint} at {url_of(host, port)}/v1", flush=True)

    threading.Thread(target=report, daemon=True).start()
    server.run(sockets=[listener])
    return 1 if models.failure else 0
