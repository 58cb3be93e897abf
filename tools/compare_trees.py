"""Compares the decoding speed of several checkouts of this repository on the same prompts.

``python tools/compare_trees.py . OTHER ...`` starts one process per checkout, each with that
checkout's own code and the same checkpoint. They answer one prompt after the other in turns, in
reversed order every second time, until ``--seconds`` are over. Prints, for each checkout after the
first, its speed relative to the first: the geometric mean over prompts of the median over rounds,
with a 95 % interval over resampled prompts. Use a quiet machine; ``--beside`` runs busy processes
meanwhile. With ``--reference`` the committed costs of forward passes take the place of the clock:
the result then depends on what was drafted only, and is the same on every machine.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mars_runtime.lab.benchmark.run import busy_processes  # noqa: E402
from mars_runtime.statistics import mean  # noqa: E402
from mars_runtime.tasks.requests import KINDS, request_tasks  # noqa: E402

SEED, DRAWN, PER_KIND = 25, 60, 4
"""The prompts are the last PER_KIND of DRAWN of each kind, none of which the page shows."""
WORKER = """
import json, sys
from dataclasses import replace
from mars_runtime.decoders import decode
from mars_runtime.decoders.forward_costs import ForwardCosts, reference_curve
from mars_runtime.engine import Engine, Request
from mars_runtime.events import Step
from mars_runtime.folds import num_tokens
from mars_runtime.model.load import load_checkpoint
from mars_runtime.settings import RECOMMENDED

checkpoint = load_checkpoint(sys.argv[1])
settings = replace(RECOMMENDED, **json.loads(sys.argv[2]))
curve = reference_curve()

def by_clock(ids):
    events = list(engine.submit(Request(ids, settings), is_alone=True))
    return num_tokens(events), sum(event.seconds for event in events if isinstance(event, Step))

def by_costs(ids):
    events = list(decode(checkpoint.model, checkpoint.tokenizer, [ids], lambda: settings, costs))
    rows = [event.rows[0] for event in events if isinstance(event, Step)]
    cost = sum(curve.of(row.num_fed, row.num_fed - row.num_pending) for row in rows)
    return num_tokens(events), cost

with Engine(checkpoint) as engine:
    engine.costs()
    costs = ForwardCosts(checkpoint.block_size, {1: tuple(curve.plain)}, masks={1: curve.masks})
    answer = by_costs if sys.argv[3] == "reference" else by_clock
    print("ready", flush=True)
    for line in sys.stdin:
        ids = checkpoint.tokenizer.encode_prompt(json.loads(line))
        print(json.dumps(answer(ids)), flush=True)
"""


class TreeProcess:
    """A process that decodes with the code of one checkout."""

    def __init__(self, tree: Path, checkpoint: str, changes: str, clock: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, checkpoint, changes, clock],
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        if self._output.readline() != "ready\n":
            raise RuntimeError(f"{tree} cannot decode with {checkpoint}: see its error above.")

    def answer(self, prompt: str) -> tuple[int, float]:
        """Return the number of tokens of the answer, and the seconds or the cost of decoding."""
        self._input.write(json.dumps(prompt) + "\n")
        self._input.flush()
        num_tokens, seconds = json.loads(self._output.readline())
        return num_tokens, seconds

    def close(self) -> None:
        """End the process."""
        self._input.close()
        self._process.wait()


def prompts() -> list[str]:
    """Return the prompts, alternating between their kinds."""
    drawn = [request_tasks(kind, SEED, DRAWN)[-PER_KIND:] for kind in KINDS]
    return [task.prompt for tasks in zip(*drawn, strict=True) for task in tasks]


def compare(workers: Sequence[TreeProcess], seconds: float) -> list[list[float]]:
    """Return tokens per second by worker and prompt, over whole rounds of all prompts.

    A round begins only if it would end within ``seconds``; the first always does. One round that
    is not counted warms up.
    """
    asked = prompts()
    speeds: list[list[list[float]]] = [[[] for _ in asked] for _ in workers]
    began = time.monotonic()
    for turn in count():
        for number, prompt in enumerate(asked):
            order = list(enumerate(workers))
            for place, worker in reversed(order) if (turn + number) % 2 else order:
                num_tokens, needed = worker.answer(prompt)
                if turn:
                    speeds[place][number].append(num_tokens / needed)
        if turn and (time.monotonic() - began) * (turn + 2) / (turn + 1) > seconds:
            return [list(map(median, rates)) for rates in speeds]
    raise AssertionError("count() has no end")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs="+", type=Path, help="checkouts, the first is the reference")
    parser.add_argument("--checkpoint", default="mars-smollm2")
    parser.add_argument("--settings", default="{}", help="changes of the defaults, as JSON")
    parser.add_argument("--beside", type=int, default=0, help="number of busy processes")
    parser.add_argument("--reference", action="store_true", help="use the committed costs")
    parser.add_argument("--seconds", type=float, default=400.0, help="for all measurements")
    args = parser.parse_args()
    clock = "reference" if args.reference else "seconds"
    with ExitStack() as stack:
        workers = []
        for tree in args.trees:
            workers.append(TreeProcess(tree, args.checkpoint, args.settings, clock))
            stack.callback(workers[-1].close)
        with busy_processes(args.beside):
            reference, *others = compare(workers, args.seconds)
    speed = math.exp(sum(map(math.log, reference)) / len(reference))
    unit = "AR step" if args.reference else "second"
    print(f"{args.trees[0]}: {speed:.2f} tokens per {unit}")
    for tree, speeds in zip(args.trees[1:], others, strict=True):
        logs = [math.log(one / other) for one, other in zip(speeds, reference, strict=True)]
        found = mean(logs)
        value, low, high = map(math.exp, (found.value, found.low, found.high))
        print(f"{tree}: {value:.3f} [{low:.3f}, {high:.3f}] times the first")


if __name__ == "__main__":
    main()
