"""Compares the answers of two source trees to forty fixed requests of every method.

    python tools/fixed_requests.py --out before.json        # in the one tree
    python tools/fixed_requests.py --against before.json    # in the other: 1 if any differs

Each request has a seed and settings and is decoded as by ``python -m mars_runtime generate
--json``. Its trace is compared without times, the date and versions. Fields that the other tree
does not have, such as a new setting with its default, are ignored, and former names of settings are
read as current ones. Numbers depend on the machine, so run both on the same one.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from mars_runtime.__main__ import main as mars
from mars_runtime.settings import with_current_names

SUM = "Tom has 7 apples and buys 5 more. How many apples does Tom have?"
CODE = "Write a Python function add(a, b) that returns the sum of a and b."
SKY = "Why is the sky blue?"
REWRITE = "Rewrite in the past tense: I walk to the market, I buy bread and I walk home again."
DRAWN = ("--temperature", "0.8", "--top-p", "0.9")
LOSSLESS = ("--lossless", "--tau", "0")
DIFFUSION = ("--method", "block_diffusion")
PLAIN = (
    *("--no-lossless", "--no-lookup", "--mask-layout", "last"),
    *("--tau", "0.95", "--block-size", "4"),
)
"""Options of every request; its own follow."""
# Checkpoint, prompt, then options. No unverified auto: what it chooses depends on time.
REQUESTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    *[("mars-tiny", prompt, ("--method", "ar")) for prompt in (SUM, CODE)],
    *[
        ("mars-tiny", SUM, ("--tau", tau, "--block-size", b))
        for tau in ("0.5", "0.95") for b in ("2", "8")
    ],
    *[
        ("mars-tiny", CODE, ("--metric", metric, "--tau", "0.6"))
        for metric in ("margin", "entropy")
    ],
    *[("mars-tiny", SUM, (*LOSSLESS, "--mask-layout", layout)) for layout in ("last", "every")],
    *[("mars-tiny", CODE, ("--lossless", "--lookup", "--mask-layout", "every", "--tau", "0.2"))],
    *[("mars-tiny", SUM, (*DRAWN, "--seed", seed)) for seed in ("1", "2")],
    *[("mars-tiny", CODE, ("--lossless", *DRAWN, "--seed", seed)) for seed in ("3", "4")],
    *[
        ("mars-tiny", SUM, ("--tau-policy", policy, "--tau", "0.3"))
        for policy in ("entropy", "agreement")
    ],
    ("mars-tiny", CODE, ("--tau-policy", "agreement", "--agreement-target", "0.7", "--tau", "0.1")),
    *[("mars-tiny", SUM, ("--method", "jacobi", "--block-size", b)) for b in ("3", "8")],
    *[
        ("mars-tiny", CODE, ("--method", "speculative", "--masked", masked))
        for masked in ("both", "none", "draft", "target")
    ],
    ("mars-tiny", SUM, ("--method", "speculative", "--lookup", *DRAWN, "--seed", "5")),
    ("mars-tiny", CODE, ("--max-new-tokens", "7")),
    ("mars-tiny", SUM, ("--method", "jacobi", *DRAWN, "--seed", "7")),
    *[("ar-tiny", SUM, ("--method", "ar", *more)) for more in ((), DRAWN)],
    *[("block-diffusion-tiny", SUM, (*DIFFUSION, "--tau", tau)) for tau in ("0.5", "0.9")],
    ("block-diffusion-tiny", CODE, (*DIFFUSION, "--block-size", "4")),
    *[("mars-smollm2", SKY, ("--method", "ar", *more)) for more in ((), DRAWN)],
    ("mars-smollm2", SKY, ("--tau", "0.7", "--block-size", "4")),
    ("mars-smollm2", SKY, (*LOSSLESS, "--mask-layout", "every")),
    ("mars-smollm2", REWRITE, (*LOSSLESS, "--mask-layout", "every", "--lookup")),
    ("mars-smollm2", REWRITE, ("--tau", "0.9", "--tau-policy", "entropy")),
    ("mars-smollm2", REWRITE, ("--lossless", *DRAWN, "--seed", "6")),
    ("mars-smollm2", SKY, ("--method", "jacobi", "--block-size", "4")),
)  # fmt: skip
UNLIKE = {"date", "seconds", "versions", "rho", "forward_seconds", "threads", "hardware", "cost"}


def answer(checkpoint: str, prompt: str, options: tuple[str, ...]) -> list[Any]:
    """Return the trace of a request as lines, without the fields that vary between runs."""
    said = io.StringIO()
    arguments = ["generate", "--checkpoint", checkpoint, "--prompt", prompt, "--json"]
    limit = () if "--max-new-tokens" in options else ("--max-new-tokens", "64")
    with contextlib.redirect_stdout(said):
        mars([*arguments, *limit, *PLAIN, *options])
    return [_kept(json.loads(line)) for line in said.getvalue().splitlines()]


def _kept(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: _kept(item) for name, item in value.items() if name not in UNLIKE}
        named = {name: with_current_names(kept[name]) for name in ("settings",) if name in kept}
        return {**kept, **named}
    return [_kept(item) for item in value] if isinstance(value, list) else value


def _as_before(before: Any, now: Any) -> Any:
    """Return ``now`` without the fields that ``before`` does not have."""
    if isinstance(before, dict) and isinstance(now, dict):
        return {
            name: _as_before(before.get(name), item) for name, item in now.items() if name in before
        }
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return [_as_before(*pair) for pair in zip(before, now, strict=True)]
    return now


def main() -> int:
    """Write the answers, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--against", type=Path)
    args = parser.parse_args()
    answers = []
    for number, request in enumerate(REQUESTS, 1):
        answers.append(answer(*request))
        print(f"{number} of {len(REQUESTS)}", file=sys.stderr)
    if args.out:
        args.out.write_text(json.dumps(answers), encoding="utf-8")
    if not args.against:
        return 0
    before = _kept(json.loads(args.against.read_text(encoding="utf-8")))
    pairs = zip(before, answers, strict=True)
    changed = [n for n, (old, new) in enumerate(pairs) if old != _as_before(old, new)]
    for number in changed:
        print("differs:", *REQUESTS[number])
    print(f"{len(REQUESTS) - len(changed)} of {len(REQUESTS)} are identical")
    return 1 if changed else 0


if __name__ == "__main__":
    raise SystemExit(main())
