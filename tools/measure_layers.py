"""``python tools/measure_layers.py``: what the panel "Layers" costs another visitor's run.

Runs plain AR with the device to itself, in turns without other requests and while another visitor
requests the layers of one forward after the other. Prints the median time between two forwards in
each case, and the number of these requests. Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from mars_runtime.engine import Engine, Request
from mars_runtime.engine.run import Run
from mars_runtime.events import Event, RowStep, Step
from mars_runtime.layers import Fed
from mars_runtime.model.load import load_checkpoint
from mars_runtime.settings import DecodeSettings

PROMPT = "Why is the sky blue?"


def gaps_of(engine: Engine, request: Request) -> list[float]:
    """Return the seconds from the end of each forward to the end of the next."""
    times: list[float] = []

    def seen(run: Run, event: Event) -> None:
        if run.asked is request and isinstance(event, Step):
            times.append(time.perf_counter())

    engine.observe(seen)
    engine.submit(request, is_alone=True).wait()
    return [after - before for before, after in pairwise(times)]


def look_on(
    engine: Engine, feds: list[Fed], is_over: threading.Event, durations: list[float]
) -> None:
    """Request the layers of one forward after the other; append the seconds of each to
    ``found``.
    """
    while not is_over.is_set():
        began = time.perf_counter()
        engine.look(feds[len(durations) % len(feds)]).result()
        durations.append(time.perf_counter() - began)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", default="mars-smollm2")
    parser.add_argument("--tokens", type=int, default=250)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    checkpoint = load_checkpoint(args.checkpoint)
    ids = checkpoint.tokenizer.encode_prompt(PROMPT)
    with Engine(checkpoint) as engine:
        drafted = DecodeSettings(tau=0.0, block_size=4, lossless=True, max_new_tokens=64)
        steps = [e for e in engine.submit(Request(ids, drafted)) if isinstance(e, Step)]
        rows: list[RowStep] = [step.rows[0] for step in steps]
        feds = [Fed.by(ids, rows, index) for index in range(len(rows))]
        alone: list[float] = []
        beside: list[float] = []
        looks: list[float] = []
        for _ in range(args.rounds):
            plain = DecodeSettings("ar", 1.0, 1, max_new_tokens=args.tokens)
            alone += gaps_of(engine, Request(ids, plain))
            is_over = threading.Event()
            arguments = (engine, feds, is_over, looks)
            looking = threading.Thread(target=look_on, args=arguments)
            looking.start()
            beside += gaps_of(engine, Request(ids, plain))
            is_over.set()
            looking.join()
    for name, gaps in (("nobody looks", alone), ("somebody looks", beside)):
        mean = 1000 * sum(gaps) / len(gaps)
        print(f"{name}: median gap {1000 * median(gaps):.3f} ms, mean {mean:.3f} ms")
    print(f"median: {100 * (median(beside) / median(alone) - 1):+.1f} %")
    print(f"looked {len(looks)} times, median {median(looks):.2f} s each")


if __name__ == "__main__":
    main()
