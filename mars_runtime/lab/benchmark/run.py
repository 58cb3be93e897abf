"""Run a benchmark: warm up the peers, choose their threads, and let them answer in turns."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing

import torch
from rich.console import Console
from rich.progress import track

from mars_runtime.lab.benchmark.forward import CONTEXT, WIDTHS, forward_times, rho_curve
from mars_runtime.lab.benchmark.paired import Ask, Peer, Question, play, spread
from mars_runtime.lab.benchmark.peers import AR, ENGINES, ChildPeer, methods, runtime_ask
from mars_runtime.lab.benchmark.report import Findings, compare_all
from mars_runtime.lab.commands import arguments_of
from mars_runtime.lab.evaluation.prompts import load_prompts
from mars_runtime.lab.evaluation.run import eval_model_of
from mars_runtime.model.files import fingerprint
from mars_runtime.model.load import load_checkpoint
from mars_runtime.system.machine import num_cores
from mars_runtime.system.provenance import Others, Quiet, provenance

NUM_CURVE_ROUNDS = 30
ROWS = (1, 8)
NUM_WARM_UP = 2
NUM_TRIES = 3
"""Times that each number of threads is tried. The fastest counts: other load only slows down."""
SETTLING_SECONDS = 0.02
"""Pause before each answer, until idle threads of the previous peer have stopped spinning."""


def perform(args: argparse.Namespace, families: Sequence[str], console: Console) -> Findings:
    load_before = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    settings = methods(args.max_new_tokens)
    # Load the prompts first, to report invalid families before the checkpoint is loaded.
    sets = load_prompts(families, args.seed, args.prompts)
    checkpoint = load_checkpoint(args.checkpoint, device=args.device, dtype=args.dtype)
    model, device = checkpoint.model, checkpoint.model.device
    threads = list(dict.fromkeys(args.threads))
    if device.type != "cpu":
        del threads[1:]
    encode = checkpoint.tokenizer.encode_prompt
    questions = [
        Question(prompts.family, tuple(encode(task.prompt)))
        for prompts in sets
        for task in prompts.tasks
    ]
    num_tokens = max(len(question.prompt) for question in questions) + args.max_new_tokens
    decode = eval_model_of(checkpoint).decode
    asks = {name: runtime_ask(decode, own, device) for name, own in settings.items()}
    origin, others = provenance(), Others()
    with ExitStack() as stack:
        for engine in ENGINES:
            if (interpreter := getattr(args, engine.key)) is None:
                continue
            child = ChildPeer(engine, interpreter, checkpoint, args.max_new_tokens, num_tokens)
            asks[engine.name] = stack.enter_context(closing(child)).ask
            origin["versions"] |= child.versions
        peers, left_out = warmed_up(asks, set(settings), questions, threads)
        total = len(peers) * len(questions) * args.rounds
        played = play(peers, questions, args.rounds, lambda peer: set_threads(peer.threads))
        # No automatic refresh: a refresh in the background would slow down a timed answer.
        samples = list(track(played, "answers", total, console=console, auto_refresh=False))
    set_threads(peers[0].threads)
    return Findings(
        origin=origin,
        subject={
            "name": checkpoint.name,
            "fingerprint": fingerprint(checkpoint.weight_files),
            "dtype": model.arithmetic,
            "device": str(device),
        },
        arguments=arguments_of(args),
        quiet=Quiet(num_cores(), load_before, others.share(), spread(samples, AR)),
        threads={peer.name: peer.threads for peer in peers},
        left_out=left_out,
        curves={
            rows: rho_curve(rows, forward_times(model, rows, WIDTHS, CONTEXT, NUM_CURVE_ROUNDS))
            for rows in ROWS
        },
        samples=samples,
        compared=compare_all(samples, settings),
    )


def warmed_up(
    asks: Mapping[str, Ask], ours: set[str], questions: Sequence[Question], threads: Sequence[int]
) -> tuple[list[Peer], list[str]]:
    """Return the peers that ran, and a sentence for each other engine that failed. Errors of this
    runtime are raised."""
    peers, left_out = [], []
    prompts = [question.prompt for question in spread_out(questions, NUM_WARM_UP)]
    for name, ask in asks.items():
        try:
            rates = dict.fromkeys(threads, 0.0)
            for count in [*threads] * NUM_TRIES:
                set_threads(count)
                answers = [ask(prompt) for prompt in prompts]
                num_tokens = sum(len(answer.tokens) for answer in answers)
                rates[count] = max(rates[count], num_tokens / sum(a.seconds for a in answers))
        except RuntimeError as error:
            if name in ours:
                raise
            left_out.append(f"{name} failed in the warm-up ({error})")
        else:
            peers.append(Peer(name, max(rates, key=rates.__getitem__), ask))
    return peers, left_out


def spread_out(questions: Sequence[Question], count: int) -> list[Question]:
    step = max(1, len(questions) // count)
    return list(questions[::step][:count])


def set_threads(count: int) -> None:
    time.sleep(SETTLING_SECONDS)
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)
        torch.ones(256, 256) @ torch.ones(256, 256)
