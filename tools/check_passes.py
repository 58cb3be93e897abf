"""Compares what the page says about a race with fresh prompts and wall-clock time.

``python tools/check_passes.py --out FILE`` races MARS with masks only against plain AR, with the
page's initial settings, on prompts of five kinds and on "Why is the sky blue?". Then each of the
two runs twice with the device to itself, in turns, and is timed. Appends a line to FILE for each
prompt and skips those that are already there, so that it can run in parts (``--seconds``). The
page's own scripts judge the traces. Needs a quiet machine. Prints a table, and for how many prompts
the page's sentence holds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from app.ui.controls import DEFAULTS, settings_for  # noqa: E402
from mars_runtime.engine import Engine, Request  # noqa: E402
from mars_runtime.engine.header import make_header  # noqa: E402
from mars_runtime.events import Prefill  # noqa: E402
from mars_runtime.folds import num_tokens  # noqa: E402
from mars_runtime.model.load import Checkpoint, load_checkpoint  # noqa: E402
from mars_runtime.settings import DecodeSettings  # noqa: E402
from mars_runtime.tasks.requests import KINDS, request_tasks  # noqa: E402
from mars_runtime.trace import TraceWriter  # noqa: E402

SKY = "Why is the sky blue?"
SEED, MANY, FRESH = 25, 60, 4
"""The last FRESH of MANY drawn prompts of a kind, which are not among the page's examples."""
LEAST, MEDIAN = 1.2, 1.4
JUDGE = """
import { readFileSync } from "node:fs";
import { folds } from "ROOT/assets/web/core/folds.js";
import { laneSpeedup, speedupSentence } from "ROOT/assets/web/core/speedup.js";
import { Lane } from "ROOT/assets/web/core/trace.js";
const told = JSON.parse(readFileSync(0, "utf8"));
const of = (name) => Lane.of(told[name], { lane: name, title: name });
const [mars, ar] = [of("mars"), of("ar")];
const found = laneSpeedup(mars, ar);
const headline = ar.steps.length / mars.steps.length;
const counts = { headline, tokens: folds.tokens(ar), reason: mars.end.reason };
const sentence = speedupSentence(found);
console.log(JSON.stringify({ ...found, ...counts, limit: String(found.limit), sentence }));
""".replace("ROOT", str(ROOT))


def prompts() -> list[tuple[str, str]]:
    """Return the kind and text of each prompt."""
    fresh = [
        (kind, task.prompt) for kind in KINDS for task in request_tasks(kind, SEED, MANY)[-FRESH:]
    ]
    return [*fresh, ("sky", SKY)]


def race(engine: Engine, checkpoint: Checkpoint, prompt: str) -> dict[str, Any]:
    """Return what the page would say about a race, and the ratio of the measured times."""
    ids = checkpoint.tokenizer.encode_prompt(prompt)
    by = replace(DEFAULTS, lookup=False)
    ways = {name: settings_for(name, by) for name in ("mars", "ar")}
    requests = {name: Request(ids, settings) for name, settings in ways.items()}
    runs = dict(zip(requests, engine.race(list(requests.values())), strict=True))
    traces = {}
    for name, run in runs.items():
        run.wait()
        header = make_header(checkpoint, prompt, requests[name], costs=engine.costs(), name=name)
        writer = TraceWriter(header, checkpoint.tokenizer.token_bytes)
        events = run.events_since(0)
        traces[name] = [writer.header_line(), *map(writer.line, events)]
    printed = subprocess.run(
        ["node", "--input-type=module", "-e", JUDGE],
        input=json.dumps(traces),
        capture_output=True,
        text=True,
        check=True,
    )
    watched = [(name, stopwatch(engine, ids, ways[name])) for name in ("mars", "ar", "ar", "mars")]
    needed = {name: sum(seconds for which, seconds in watched if which == name) for name in ways}
    return {**json.loads(printed.stdout), "stopwatch": needed["ar"] / needed["mars"]}


def stopwatch(engine: Engine, ids: list[int], settings: DecodeSettings) -> float:
    """Return the seconds per token of a run with the device to itself, from the end of prefill
    on.
    """
    run = engine.submit(Request(ids, settings), is_alone=True)
    events = []
    began = ended = 0.0
    for event in run:
        ended = time.perf_counter()
        began = ended if isinstance(event, Prefill) else began
        events.append(event)
    return (ended - began) / num_tokens(events)


def holds(race_result: dict[str, Any]) -> bool:
    """Whether the page's sentence on seconds covers the measured ratio. True if the run is too
    short for a sentence.
    """
    if race_result["kind"] in ("none", "short"):
        return True
    high = min(race_result["high"], float(race_result["limit"].replace("Infinity", "inf")) * 1.1)
    return bool(min(race_result["low"], high) <= race_result["stopwatch"] <= race_result["high"])


def report(rows: list[dict[str, Any]]) -> None:
    """Print the table and the three counts."""
    for row in rows:
        print(
            f"{row['of']:<10}{row['headline']:6.2f} in passes  stopwatch {row['stopwatch']:5.2f}"
            f"  {'holds' if holds(row) else 'FAILS'}  {row['sentence']}  [{row['tokens']} tokens,"
            f" {row['reason']}] {row['prompt'][:50]!r}"
        )
    headlines = [row["headline"] for row in rows]
    above = sum(headline > LEAST for headline in headlines)
    print(
        f"{above} of {len(rows)} above {LEAST} in passes; median {statistics.median(headlines):.2f}"
    )
    print(f"(asked: all but two, and {MEDIAN}); {sum(map(holds, rows))} sentences on seconds hold")
    watched = [row["stopwatch"] for row in rows]
    print(f"by the stopwatch {min(watched):.2f} times as fast at least", end="")
    print(f", {statistics.median(watched):.2f} in the median")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", default="mars-smollm2")
    parser.add_argument("--out", type=Path, required=True, help="file of the results")
    parser.add_argument(
        "--seconds", type=float, default=110.0, help="time after which no further prompt is started"
    )
    args = parser.parse_args()
    known = args.out.read_text().splitlines() if args.out.exists() else []
    rows = [json.loads(line) for line in known]
    until = time.monotonic() + args.seconds
    left = [prompt for prompt in prompts() if prompt[1] not in {row["prompt"] for row in rows}]
    if left:
        checkpoint = load_checkpoint(args.checkpoint)
        with Engine(checkpoint) as engine, args.out.open("a") as out:
            stopwatch(engine, checkpoint.tokenizer.encode_prompt(SKY), DecodeSettings("ar"))
            for kind, prompt in left:
                if time.monotonic() > until:
                    break
                rows.append({"of": kind, "prompt": prompt, **race(engine, checkpoint, prompt)})
                out.write(json.dumps(rows[-1]) + "\n")
                out.flush()
    report(rows)


if __name__ == "__main__":
    main()
