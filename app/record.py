"""``python -m app.record --out DIR``: records the runs that pages show when nothing can be decoded.

Do it on a quiet machine: what is recorded is shown as measured, for a long time.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from app.replay.recordings import FOLDER
from app.replay.scenarios import SCENARIOS
from mars_runtime.model.config import CheckpointError
from mars_runtime.outputs import OutputError, check_folder, path_of


def main() -> int:
    """Record everything; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m app.record", description=__doc__)
    parser.add_argument("--out", type=path_of, default=FOLDER, help="folder to write (%(default)s)")
    parser.add_argument("--checkpoint", help="name or folder that records all (its scenario's own)")
    args = parser.parse_args()
    try:
        check_folder(args.out)
        record(args.out, args.checkpoint)
    except (CheckpointError, OutputError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def record(folder: Path, only: str | None) -> None:
    """Record every scenario into ``folder``, on its own checkpoint or all on one.

    Raises CheckpointError.
    """
    from app.replay.record import Recorder, write
    from mars_runtime.engine.backend import CheckpointBackend
    from mars_runtime.engine.engine import Engine
    from mars_runtime.lab.benchmark.busy import Others, Quiet
    from mars_runtime.machine import num_cores
    from mars_runtime.model.load import load_checkpoint

    load = os.getloadavg()[0]
    with ExitStack() as engines:

        @cache
        def recorder_of(name: str) -> Recorder:
            checkpoint = load_checkpoint(name)
            # Rounds repeat a prompt: each reads it as the first did.
            engine = engines.enter_context(Engine(CheckpointBackend(checkpoint, keeps=False)))
            engine.costs()  # two that warm up together would measure each other
            return Recorder(checkpoint, engine)

        for scenario in SCENARIOS:
            recorder_of(only or scenario.checkpoint)
        others = Others()
        for done in write(folder, SCENARIOS, lambda name: recorder_of(only or name)):
            print(folder / f"{done}.txt", flush=True)
    for doubt in Quiet(num_cores(), load, others.share(), None).doubts:
        print(f"Record again on a quiet machine: {doubt}.", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
