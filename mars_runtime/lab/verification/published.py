"""A checkpoint that its authors published, looked at by whoever has it: one page of Markdown.

Its files and their sums, its mask token and template, what AR answers to fixed questions, how far
int8 lies from bf16, tokens per forward and the lossless law on many prompts, and speed, beside
llama.cpp where that is named. What stands on the page was read or measured for it; code that came
with the files is never run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from mars_runtime.decoders.base import forbidden_ids
from mars_runtime.lab.benchmark import plan
from mars_runtime.lab.benchmark.elsewhere import Decoding, LlamaCpp, gguf_of
from mars_runtime.lab.benchmark.paired import Ask, Peer, Question, Sample, play, ratio
from mars_runtime.lab.benchmark.peers import runtime_ask
from mars_runtime.lab.benchmark.run import use_threads
from mars_runtime.lab.benchmark.targets import write_gguf
from mars_runtime.lab.evaluation.measure import Decode, RowOutput, decode_in_batches
from mars_runtime.lab.evaluation.run import eval_model_of
from mars_runtime.lab.tables import NONE, Table, number, share
from mars_runtime.lab.verification import laws
from mars_runtime.lab.verification.evidence import Begin, Case
from mars_runtime.machine import device_name, versions
from mars_runtime.model.fetch import sha256_of
from mars_runtime.model.load import Checkpoint, dense_files
from mars_runtime.settings import DecodeSettings, describe
from mars_runtime.speedup import NOTES, judged
from mars_runtime.statistics import Estimate
from mars_runtime.text import Tokenizer

QUESTIONS = (
    "Why is the sky blue?",
    "What is the capital of France?",
    "A farmer has 12 sheep and buys 5 more. How many sheep does he have now?",
)
ANSWER_TOKENS = 96
NUM_COMPARED = 8
"""Prompts whose logits are compared: bf16 has no fast kernels on most processors."""
NUM_TIMED, NUM_ROUNDS, WARM_UP = 6, 3, 1
EXACT = "bf16"
BUSY = "busy"
"""In the place of a speedup that the passes saved do not allow."""
_ODD = re.compile(r"[^\w.+/-]")


@dataclass(frozen=True, slots=True)
class Report:
    """text: the page. is_kept: whether nothing that was promised is broken."""

    text: str
    is_kept: bool


def report(
    case: Case,
    prompts: Sequence[str],
    begin: Begin,
    origin: Mapping[str, Any],
    llama_cpp: str | None = None,
) -> Report:
    """Load, look, measure, write. origin: as of ``provenance``; llama_cpp: a Python that has
    llama-cpp-python. Raises CheckpointError."""
    checkpoint = case.load()
    decode, tokenizer = eval_model_of(checkpoint).decode, checkpoint.tokenizer
    ids = [tokenizer.encode_prompt(prompt) for prompt in prompts]
    outputs, is_lossless, lossless = _law(case, checkpoint, decode, ids, begin)
    parts = [
        f"# {checkpoint.name}, as it was found",
        _origin(checkpoint, origin),
        "## Files\n\n" + _files(checkpoint.path),
        "## Tokens and template\n\n" + _tokens(checkpoint),
        "## What AR answers\n\n" + _answers(decode, tokenizer, begin),
        "## Logits\n\n" + _logits(case, checkpoint, ids, outputs, begin),
        "## Tokens per forward, and the lossless law\n\n" + lossless,
        "## Speed\n\n" + _speed(case, checkpoint, decode, ids, llama_cpp, begin),
    ]
    return Report("\n\n".join(parts) + "\n", is_lossless)


def ways(block_size: int, max_new_tokens: int) -> dict[str, DecodeSettings]:
    """MARS as in the paper, and lossless with one group of masks and with one behind every draft,
    by name."""
    mars = DecodeSettings(tau=0.95, block_size=block_size, max_new_tokens=max_new_tokens)
    lossless = replace(mars, tau=0.0, lossless=True)
    found = [mars, lossless, replace(lossless, groups="every")]
    return {describe(one): one for one in found}


def _origin(checkpoint: Checkpoint, origin: Mapping[str, Any]) -> str:
    path = checkpoint.path
    is_snapshot = path.parent.name == "snapshots"
    lines = [
        f"revision {path.name}" if is_snapshot else "a folder without a revision",
        f"computed as {checkpoint.model.arithmetic} on {device_name(checkpoint.model.device)}",
        f"{origin['date']}, commit {origin['commit']}",
        ", ".join(f"{name} {version}" for name, version in versions().items()),
    ]
    return "\n".join(f"- {line}" for line in lines)


def _files(path: Path) -> str:
    """Every file by size and SHA-256."""
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    lines = tuple(
        (
            _ODD.sub("?", one.relative_to(path).as_posix() if path.is_dir() else one.name),
            f"{one.stat().st_size:,}",
            sha256_of(one),
        )
        for one in files
    )
    table = Table("", ("file", "bytes", "SHA-256"), lines).rows_to_markdown()
    if any(one.suffix == ".py" for one in files):
        table += "\n\nNone of the code was run."
    return table


def _tokens(checkpoint: Checkpoint) -> str:
    tokenizer, config = checkpoint.tokenizer, checkpoint.model.config
    never = len(forbidden_ids(tokenizer, checkpoint.model))
    rendered = tokenizer.encode_prompt(QUESTIONS[0])
    lines = [
        f"- {config.model_type}: {config.num_layers} layers, width {config.hidden_size}, "
        f"{config.vocab_size:,} rows, {'tied' if config.tie_word_embeddings else 'untied'} head, "
        f"B = {checkpoint.block_size}",
        f"- mask: {_names(tokenizer, [tokenizer.mask_id])}",
        f"- an answer ends with: {_names(tokenizer, sorted(tokenizer.eos_ids))}",
        f"- tokens: {tokenizer.size:,}; {never:,} rows can never come out",
        f"- a first question becomes {len(rendered)} tokens:",
    ]
    return "\n".join(lines) + "\n\n" + quoted(_shown(tokenizer, rendered))


def _names(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return ", ".join(f"`{_shown(tokenizer, [one])}` ({one})" for one in ids)


def _shown(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text with its control tokens by name."""
    return b"".join(map(tokenizer.token_bytes, ids)).decode("utf-8", "replace")


def quoted(text: str) -> str:
    """As a block of Markdown in which nothing has a meaning."""
    return "\n".join(f"    {line}" for line in text.splitlines() or [""])


def _answers(decode: Decode, tokenizer: Tokenizer, begin: Begin) -> str:
    bar = begin("answers", len(QUESTIONS))
    ids = [tokenizer.encode_prompt(question) for question in QUESTIONS]
    settings = DecodeSettings("ar", 1.0, 1, max_new_tokens=ANSWER_TOKENS)
    outputs = decode_in_batches(decode, ids, settings, 1, bar)
    told = []
    for question, output in zip(QUESTIONS, outputs, strict=True):
        said = tokenizer.decode([one for one in output.tokens if one not in tokenizer.eos_ids])
        end = "" if output.is_ended else f" (cut off after {len(output.tokens)} tokens)"
        told.append(f"{question}{end}\n\n{quoted(said)}")
    return "\n\n".join(told)


def _logits(
    case: Case,
    checkpoint: Checkpoint,
    prompts: Sequence[Sequence[int]],
    outputs: Sequence[RowOutput],
    begin: Begin,
) -> str:
    """Those of the arithmetic in use beside bf16's, where AR chose its answers."""
    exact = case.load(EXACT).model
    pairs = list(zip(prompts, outputs, strict=True))[:NUM_COMPARED]
    bar = begin(f"logits in {EXACT}", len(pairs))
    apart = []
    for prompt, output in pairs:
        tokens, first = [*prompt, *output.tokens[:-1]], len(prompt) - 1
        theirs = laws.runtime_logits(exact, tokens, first)
        apart.append(laws.agreement(laws.runtime_logits(checkpoint.model, tokens, first), theirs))
        bar(1)
    found = laws.pooled(apart)
    return (
        f"{checkpoint.model.arithmetic} beside {exact.arithmetic}, at {found.num_positions} "
        f"positions of AR's answers: the same likeliest token at {share(found.top_agreement)} of "
        f"them; logits {found.mean_difference:.3f} apart on average and {found.max_difference:.2f} "
        f"at most; Kullback-Leibler {found.mean_divergence:.1e} nats on average, "
        f"{found.max_divergence:.1e} at most."
    )


def _law(
    case: Case,
    checkpoint: Checkpoint,
    decode: Decode,
    prompts: Sequence[Sequence[int]],
    begin: Begin,
) -> tuple[list[RowOutput], bool, str]:
    """AR's outputs; whether every lossless way wrote them too; and that in words."""
    bar = begin("AR", len(prompts))
    expected = decode_in_batches(decode, prompts, case.ar, 1, bar)
    held = []
    for name, settings in ways(checkpoint.block_size, case.max_new_tokens).items():
        bar = begin(name, len(prompts))
        held.append(laws.hold(decode, prompts, settings, 1, expected, bar))
    columns: dict[str, Callable[[laws.HeldWay], str]] = {
        "way": lambda one: describe(one.settings),
        "tokens": lambda one: f"{one.num_tokens:,}",
        "tokens per forward": lambda one: f"{one.num_tokens / one.num_forwards:.2f}",
        "answers unlike AR's": lambda one: str(len(one.mismatches)),
    }
    wrong = sum(len(one.mismatches) for one in held if one.settings.lossless)
    table = Table.of("", held, columns).rows_to_markdown()
    said = (
        f"{len(prompts)} open requests, {case.max_new_tokens} tokens at most. Lossless answers "
        f"that are not AR's: {wrong or 'none'}."
    )
    return expected, not wrong, f"{table}\n\n{said}"


def _speed(
    case: Case,
    checkpoint: Checkpoint,
    decode: Decode,
    prompts: Sequence[Sequence[int]],
    llama_cpp: str | None,
    begin: Begin,
) -> str:
    """Every way on the same prompts by turns, prefill apart; llama.cpp on a file of the same
    weights in 8 bits, or on the one they come from."""
    device, eos_ids = checkpoint.model.device, tuple(sorted(checkpoint.tokenizer.eos_ids))
    settings = {plan.AR: case.ar, **ways(checkpoint.block_size, case.max_new_tokens)}
    asks: dict[str, Ask] = {
        name: runtime_ask(decode, way, device) for name, way in settings.items()
    }
    questions = [Question("requests", (tuple(one),)) for one in prompts[:NUM_TIMED]]
    with TemporaryDirectory() as made:
        child = None
        if llama_cpp is not None:
            room = max(len(one.prompts[0]) for one in questions) + case.max_new_tokens
            child = LlamaCpp(llama_cpp, _gguf(checkpoint, Path(made)), room)
            asks[plan.LLAMA_CPP] = partial(
                child.ask, decoding=Decoding(eos_ids, case.max_new_tokens)
            )
        try:
            return _timed(asks, questions, begin)
        finally:
            if child is not None:
                child.close()


def _gguf(checkpoint: Checkpoint, folder: Path) -> Path:
    found = gguf_of(checkpoint)
    if found is not None:
        return found
    weights = dense_files(checkpoint.path)
    return write_gguf(folder / "weights.gguf", checkpoint.model.config, weights, 8)


def _timed(asks: Mapping[str, Ask], questions: Sequence[Question], begin: Begin) -> str:
    peers = [Peer(name, torch.get_num_threads(), ask) for name, ask in asks.items()]
    for peer in peers:
        for question in questions[:WARM_UP]:
            peer.answer(question)
    bar = begin("speed", len(peers) * len(questions) * NUM_ROUNDS)
    samples = []
    for sample in play(peers, questions, NUM_ROUNDS, use_threads):
        samples.append(sample)
        bar(1)
    lines = []
    for name in asks:
        answers = [one.answer for one in samples if one.peer == name]
        figures = [
            _median([answer.effective_tpf("decode") for answer in answers], 2),
            _median([answer.rate("decode") for answer in answers], 1),
        ]
        over_llama_cpp = number(ratio(samples, name, plan.LLAMA_CPP, ["requests"], "decode"))
        lines.append((name, *figures, over_ar(samples, name), over_llama_cpp))
    columns = ("way", "tokens per forward", "tokens/s", "times AR", "times llama.cpp")
    where = (
        f"{len(questions)} requests, {NUM_ROUNDS} rounds, {peers[0].threads} threads; medians over "
        "answers, from their second forward on: prefill, and what came with it, is left out."
    )
    if any(cell == BUSY for *_, cell, _ in lines):
        where += f" {BUSY}: faster than the passes saved allow, so {NOTES['busy']}."
    return Table("", columns, tuple(lines)).rows_to_markdown() + f"\n\n{where}"


def over_ar(samples: Sequence[Sample], name: str) -> str:
    """The speedup over AR with its interval, or BUSY where it exceeds the passes saved."""
    found = ratio(samples, name, plan.AR, ["requests"], "decode")
    per_pass = ratio(samples, name, plan.AR, ["requests"], "decode", "eta")
    if found is None or per_pass is None or name == plan.LLAMA_CPP:  # whose passes cost otherwise
        return number(found)
    speedup = judged(found.value, found.low, found.high, found.value / per_pass.value)
    if speedup.reported is None:
        return BUSY
    return number(Estimate(speedup.ratio, speedup.low, speedup.high))


def _median(figures: Sequence[float | None], digits: int) -> str:
    told = [one for one in figures if one is not None]
    return f"{median(told):.{digits}f}" if told else NONE
