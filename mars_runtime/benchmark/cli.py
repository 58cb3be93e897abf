"""``python -m mars_runtime benchmark``: tokens a second of this runtime beside transformers.

One run on one machine: the same weights, dtype and prompts for every peer, pairs in alternating
order, medians of paired log-ratios with bootstrap intervals, natural text beside the families.
Every peer is measured on each of ``--threads`` and compared at its own best.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import track

from mars_runtime.benchmark import report
from mars_runtime.benchmark.paired import Peer, Sample, play
from mars_runtime.evaluation.prompts import PromptError, all_families, load_prompts
from mars_runtime.evaluation.provenance import provenance
from mars_runtime.machine import num_cores
from mars_runtime.settings import DecodeSettings, SettingsError

if TYPE_CHECKING:
    from mars_runtime.model.load import Checkpoint

HUGGING_FACE, AR = "transformers", "AR"
NUM_WARM_UP = 2
BUSY_SHARE = 0.3
"""A load above this share of the cores makes timings hard to believe."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``benchmark`` command."""
    parser = subparsers.add_parser("benchmark", help="tokens a second beside transformers")
    parser.add_argument("--checkpoint", default="mars-tiny")
    parser.add_argument("--families", nargs="+", default=None, help="default: all of them")
    parser.add_argument("--prompts", type=int, default=8, help="held-out prompts a family")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tau", type=float, default=0.95)
    parser.add_argument("--block-size", type=int, default=4)
    parser.add_argument("--lossless-tau", type=float, default=0.0)
    parser.add_argument("--lossless-block-size", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--seed", type=int, default=0, help="which prompts are drawn")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark.json"))
    parser.add_argument("--markdown", action="store_true", help="print tables for a model card")


def run(args: argparse.Namespace) -> int:
    """Measure, print, write ``--out``. Returns the exit code."""
    from mars_runtime.acceptance import DecodeError
    from mars_runtime.model.config import CheckpointError

    console = Console()
    try:
        return _run(args, console)
    except (SettingsError, PromptError, CheckpointError, DecodeError) as error:
        console.print(str(error), style="red", markup=False)
        return 2


def _run(args: argparse.Namespace, console: Console) -> int:
    ways = runtime_ways(args)
    prompt_sets = load_prompts(args.families or all_families(), args.seed, args.prompts)
    if args.rounds < 1 or min(args.threads) < 1:
        raise PromptError("Rounds and threads must be at least 1.")
    load = os.getloadavg()[0]
    checkpoint = _load(args)
    peers = make_peers(checkpoint, ways, args)
    prompts = [
        (prompts.family, checkpoint.tokenizer.encode_prompt(task.prompt))
        for prompts in prompt_sets
        for task in prompts.tasks
    ]
    samples = measure(peers, prompts, args.rounds, console)
    comparisons = compare_all(list(ways))
    found = {
        "kind": "benchmark",
        "version": 1,
        **provenance(),
        "load_before": load,
        "is_busy": load > BUSY_SHARE * num_cores(),
        "dtype": str(checkpoint.model.dtype).removeprefix("torch."),
        "device": str(checkpoint.model.device),
        "asked": {key: value for key, value in vars(args).items() if _is_told(key, value)},
        **report.to_json(samples, comparisons),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, ensure_ascii=False, indent=1))
    show(found, samples, comparisons, console, is_markdown=args.markdown)
    console.print(f"Written to {args.out}", markup=False)
    return 0


def runtime_ways(args: argparse.Namespace) -> dict[str, DecodeSettings]:
    """This runtime's peers by name. Raises SettingsError."""
    limit = args.max_new_tokens
    mars = DecodeSettings(tau=args.tau, block_size=args.block_size, max_new_tokens=limit)
    lossless = DecodeSettings(
        tau=args.lossless_tau,
        block_size=args.lossless_block_size,
        lossless=True,
        max_new_tokens=limit,
    )
    return {
        AR: DecodeSettings(method="ar", tau=1.0, block_size=1, max_new_tokens=limit),
        f"MARS τ={mars.tau:g} B={mars.block_size}": mars,
        f"lossless τ={lossless.tau:g} B={lossless.block_size}": lossless,
    }


def compare_all(ways: Sequence[str]) -> list[tuple[str, str]]:
    """AR against transformers, everything else against AR."""
    return [(AR, HUGGING_FACE), *((way, AR) for way in ways if way != AR)]


def make_peers(
    checkpoint: Checkpoint, ways: dict[str, DecodeSettings], args: argparse.Namespace
) -> list[Peer]:
    """Every peer on every thread count, those of one thread count side by side."""
    from mars_runtime.benchmark.peers import runtime_answer, transformers_answer
    from mars_runtime.evaluation.subject import subject_of

    decode = subject_of(checkpoint).decode
    answers = {HUGGING_FACE: transformers_answer(checkpoint, args.max_new_tokens)} | {
        name: runtime_answer(decode, settings, checkpoint.model.device)
        for name, settings in ways.items()
    }
    threads = [1] if checkpoint.model.device.type == "cuda" else dict.fromkeys(args.threads)
    return [Peer(name, count, answer) for count in threads for name, answer in answers.items()]


def measure(
    peers: Sequence[Peer],
    prompts: Sequence[tuple[str, Sequence[int]]],
    num_rounds: int,
    console: Console,
) -> list[Sample]:
    """Warm every peer up, then play all rounds under a progress bar."""
    for peer in peers:
        use_threads(peer)
        for _, ids in prompts[:NUM_WARM_UP]:
            peer.answer(ids)
    total = num_rounds * len(prompts) * len(peers)
    rounds = play(peers, prompts, num_rounds, use_threads)
    # Redrawing while an answer is timed would take from its time.
    return list(track(rounds, "benchmark", total, console=console, auto_refresh=False))


def use_threads(peer: Peer) -> None:
    """Switch to the peer's thread count and let the pool settle before the clock starts."""
    import torch

    if torch.get_num_threads() != peer.threads:
        torch.set_num_threads(peer.threads)
        torch.ones(256, 256) @ torch.ones(256, 256)


def show(
    found: dict[str, Any],
    samples: Sequence[Sample],
    comparisons: Sequence[tuple[str, str]],
    console: Console,
    *,
    is_markdown: bool,
) -> None:
    """Print where and with what it ran, then the tables."""
    hardware, versions = found["hardware"], found["versions"]
    machine = ", ".join([hardware["processor"], f"{hardware['cores']} cores", *hardware["gpus"]])
    console.print(f"{machine}; {found['device']}, {found['dtype']}", markup=False)
    console.print(", ".join(f"{name} {version}" for name, version in versions.items()))
    if found["is_busy"]:
        console.print(
            f"The machine was busy before the start (load {found['load_before']:.1f} on "
            f"{hardware['cores']} cores): take these figures for a hint only.",
            style="yellow",
        )
    tables = report.peers_tables(samples)
    tables += [report.ratios_table(samples, comparisons, span) for span in report.SPANS]
    for table in tables:
        if is_markdown:
            print(table.to_markdown(), end="\n\n")
        else:
            console.print(table.to_rich(), crop=False)


def _load(args: argparse.Namespace) -> Checkpoint:
    from mars_runtime.model.load import load_checkpoint

    return load_checkpoint(args.checkpoint, device=args.device, dtype=args.dtype)


def _is_told(key: str, value: object) -> bool:
    """Arguments worth keeping with the figures: those that are plain values."""
    return key not in {"out", "markdown", "command"} and not callable(value)
