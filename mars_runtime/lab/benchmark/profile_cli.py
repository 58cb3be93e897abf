"""``python -m mars_runtime profile``: where the time of a step goes, next to the machine's limits.

Decodes held-out prompts by AR, MARS and lossless MARS, the last also with groups and prompt lookup.
For each it writes a trace that opens in Perfetto (ui.perfetto.dev) and prints how a step is split
into matrix products, attention, head, acceptance and overhead. On CUDA the file also has the time
that kernels take in a step (``device_seconds``): the rest of the step is the host's.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from mars_runtime.lab.commands import run_or_say
from mars_runtime.lab.evaluation.prompts import PromptError, load_prompts
from mars_runtime.outputs import check_folder, path_of, write_text
from mars_runtime.settings import DecodeSettings
from mars_runtime.tasks import all_families


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``profile`` command."""
    parser = subparsers.add_parser("profile", help="where the time of a step goes")
    add = parser.add_argument
    add("--checkpoint", default="mars-tiny", help="a name or a folder (%(default)s)")
    add("--tau", type=float, default=0.95)
    add("--block-size", type=int, default=4)
    add("--lossless-tau", type=float, default=0.0)
    add("--lossless-block-size", type=int, default=8)
    add("--batch", type=int, default=1, help="prompts at a time (%(default)s)")
    add("--steps", type=int, default=100, help="steps of each way (%(default)s)")
    add("--threads", type=int, default=None, help="CPU threads (as many as decoding takes)")
    add("--seed", type=int, default=0, help="which prompts are drawn")
    add("--device", default="auto")
    add("--dtype", default="auto")
    add("--out", type=path_of, default=Path("runs/profile"), help="a folder (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Profile, print, write into ``--out``. Returns the exit code."""
    console = Console()
    return run_or_say(lambda: _run(args, console))


def _run(args: argparse.Namespace, console: Console) -> int:
    for value, what in ((args.batch, "prompts"), (args.steps, "steps"), (args.threads, "threads")):
        if value is not None and value < 1:
            raise PromptError(f"Ask for at least 1 of {what}.")
    ways = ways_of(args)
    batches = prompts_of(args)
    check_folder(args.out)
    import torch

    from mars_runtime.engine.backend import num_threads
    from mars_runtime.lab.benchmark.forward import measure_limits, work_of
    from mars_runtime.lab.benchmark.profile import lines_of, record, split_table
    from mars_runtime.model.load import load_checkpoint
    from mars_runtime.provenance import fingerprint, provenance

    checkpoint = load_checkpoint(args.checkpoint, device=args.device, dtype=args.dtype)
    threads = args.threads or num_threads(checkpoint)
    torch.set_num_threads(threads)
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    encoded = [[tokenizer.encode_prompt(text) for text in batch] for batch in batches]
    work = work_of(model)
    limits = measure_limits(model.device, model.product_dtype, work.weight_bytes)
    found = {
        "kind": "profile",
        "version": 1,
        **provenance(),
        "subject": {
            "name": checkpoint.name,
            "fingerprint": fingerprint(checkpoint.weight_files),
            "device": str(model.device),
        },
        "batch": args.batch,
        "threads": threads,
        "limits": asdict(limits),
        "load": asdict(work),
        "ways": {},
    }
    for name, settings in ways.items():
        trace = args.out / f"{_file_name(name)}.trace.json.gz"
        recording = record(model, tokenizer, encoded, settings, args.steps, trace)
        lines = lines_of(recording, work, limits)
        found["ways"][name] = {
            "trace": trace.name,
            "parts": [asdict(one) for one in lines],
            "device_seconds": recording.device_seconds,
        }
        console.print(split_table(name, recording, lines).to_rich(), crop=False)
    out = args.out / "profile.json"
    write_text(out, json.dumps(found, ensure_ascii=False, indent=1))
    speed = limits.operations_per_second
    console.print(
        f"Limits, measured: {limits.bytes_per_second / 1e9:.1f} GB/s"
        + (f", {speed / 1e9:.1f} GFLOP/s" if speed else "")
        + f". Traces for ui.perfetto.dev and the figures are in {args.out}",
        markup=False,
    )
    return 0


def ways_of(args: argparse.Namespace) -> dict[str, DecodeSettings]:
    """AR, MARS, lossless MARS, and the last with groups and prompt lookup, by name. Raises
    SettingsError."""
    from mars_runtime.settings import describe

    lossless = DecodeSettings("mars", args.lossless_tau, args.lossless_block_size, lossless=True)
    ways = [
        DecodeSettings("ar", 1.0, 1),
        DecodeSettings("mars", args.tau, args.block_size),
        lossless,
        replace(lossless, groups="every", lookup=True),
    ]
    return {describe(one): one for one in ways}


def prompts_of(args: argparse.Namespace) -> list[list[str]]:
    """Batches of prompts of all families in turn, natural text among them. Raises PromptError."""
    sets = load_prompts(all_families(), args.seed, max(1, args.batch))
    texts = [
        task.prompt
        for index in range(args.batch)
        for one in sets
        for task in one.tasks[index : index + 1]
    ]
    return [texts[at : at + args.batch] for at in range(0, len(texts), args.batch)]


def _file_name(way: str) -> str:
    """``lossless-tau-0-B-8``."""
    return way.replace("τ", "tau").replace("=", "-").replace(" ", "-")
