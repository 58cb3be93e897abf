"""``python -m mars_runtime serve --ray``: replicas of the endpoint on a cluster of Ray's.

On a cluster that is there already (RAY_ADDRESS) it deploys and leaves, and run again it updates.
"""

from __future__ import annotations

import signal
import sys
import threading

from mars_runtime.serving.plan import Plan, bring
from mars_runtime.serving.replicas.deploy import NO_RAY, DeployError, begin, deploy, end, is_there
from mars_runtime.serving.server import PlaceTakenError, bound


def serve(plan: Plan, host: str, port: int) -> int:
    """Deploy, and serve until SIGTERM or SIGINT where the cluster is our own; the exit code."""
    from mars_runtime.model.config import CheckpointError
    from mars_runtime.model.registry import find

    if not is_there():
        print(NO_RAY, file=sys.stderr)
        return 2
    try:
        find(plan.checkpoint)
        with bound(host, port) as listener:  # whether it is free: Ray would wait for it
            port = listener.getsockname()[1]
    except (CheckpointError, PlaceTakenError) as error:
        print(error, file=sys.stderr)
        return 2
    is_own = begin(host, port)
    try:
        deploy(plan, bring)
    except DeployError as error:
        print(error, file=sys.stderr)
        return 1
    leaving = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leaving.set())
    print(f"Serving {plan.checkpoint} at http://{host}:{port}/v1", flush=True)
    if is_own:
        leaving.wait()
        end()
    return 0
