"""Gathers evidence on a loaded checkpoint: decodes, compares, and says what was found.

Knows checkpoints, tokenizers and decoders; the comparisons themselves are ``lossless.py`` and
``agreement.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from mars_runtime.decoders.base import forbidden_ids
from mars_runtime.lab.benchmark.elsewhere import loader
from mars_runtime.lab.evaluation.measure import RowOutput, decode_in_batches
from mars_runtime.lab.evaluation.subject import subject_of
from mars_runtime.lab.evaluation.tables import Table
from mars_runtime.lab.verification import agreement as logits_of
from mars_runtime.lab.verification import lossless as law
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.settings import DecodeSettings, describe

Begin = Callable[[str, int], Callable[[int], None]]
"""Begins a progress bar of so many prompts; returns what tells it of finished ones."""

FP32 = "fp32"
ANSWER_BATCH = 16


@dataclass(frozen=True, slots=True)
class Case:
    """Which checkpoint is asked, how it is loaded, and how long its answers may be."""

    checkpoint: str
    device: str
    dtype: str
    max_new_tokens: int

    @classmethod
    def of(cls, args: argparse.Namespace) -> Case:
        return cls(args.checkpoint, args.device, args.dtype, args.max_new_tokens)

    def load(self, dtype: str | None = None) -> Checkpoint:
        """Raises CheckpointError."""
        return load_checkpoint(self.checkpoint, device=self.device, dtype=dtype or self.dtype)

    @property
    def ar(self) -> DecodeSettings:
        return DecodeSettings("ar", 1.0, 1, max_new_tokens=self.max_new_tokens)


@dataclass(frozen=True, slots=True)
class Found:
    """What came out: for a file, for a terminal, in a sentence, and whether the promise is kept."""

    document: dict[str, Any]
    table: Table
    sentence: str
    is_kept: bool


def use_threads(count: int) -> None:
    """How many CPU threads the models get."""
    torch.set_num_threads(count)


def lossless(case: Case, prompts: Sequence[str], begin: Begin) -> Found:
    """AR alone, then AR in batches and every lossless way alone and in batches."""
    checkpoint = case.load()
    subject = subject_of(checkpoint)
    ids = [subject.encode_prompt(prompt) for prompt in prompts]
    decode = subject.decode
    expected = decode_in_batches(decode, ids, case.ar, 1, begin("AR alone", len(ids)))
    held = []
    for settings in [case.ar, *law.ways(case.max_new_tokens)]:
        for batch_size in law.BATCH_SIZES:
            if settings.method == "ar" and batch_size == 1:
                continue
            bar = begin(f"{describe(settings)}, batches of {batch_size}", len(ids))
            held.append(law.hold(decode, ids, settings, batch_size, expected, bar))
    wrong = sum(len(one.mismatches) for one in held)
    answers = sum(one.num_prompts for one in held)
    tokens = sum(one.num_tokens for one in held)
    return Found(
        document={
            "checkpoint": checkpoint.name,
            "fingerprint": subject.fingerprint,
            "arithmetic": subject.dtype,
            "threads": torch.get_num_threads(),
            "num_prompts": len(ids),
            "max_new_tokens": case.max_new_tokens,
            "num_answers": answers,
            "num_tokens": tokens,
            "num_mismatches": wrong,
            "ways": [asdict(one) for one in held],
        },
        table=_law_table(held),
        sentence=f"{wrong} of {answers} answers ({tokens} tokens) to {len(ids)} prompts differ "
        f"from AR's, in {subject.dtype}.",
        is_kept=wrong == 0,
    )


def logits(case: Case, prompts: Sequence[str], begin: Begin) -> Found:
    """Answers of the fp32 mode, held against transformers' choices; then the logits of the asked
    mode at the same places."""
    exact = case.load(FP32)
    subject = subject_of(exact)
    ids = [subject.encode_prompt(prompt) for prompt in prompts]
    bar = begin("answers in fp32", len(ids))
    answers = decode_in_batches(subject.decode, ids, case.ar, ANSWER_BATCH, bar)
    forbidden = forbidden_ids(exact.tokenizer, exact.model).tolist()
    theirs, ours = loader(exact)(), case.load().model
    bar = begin("logits", len(ids))
    apart, parted = [], []
    for number, (prompt, answer) in enumerate(zip(ids, answers, strict=True)):
        tokens, first = [*prompt, *answer.tokens[:-1]], len(prompt) - 1
        reference = logits_of.transformers_logits(theirs, tokens, first)
        apart.append(logits_of.agreement(logits_of.runtime_logits(ours, tokens, first), reference))
        parted.append(logits_of.greedy_difference(number, reference, answer.tokens, forbidden))
        bar(1)
    mismatches = [one for one in parted if one is not None]
    found = logits_of.pooled(apart)
    return Found(
        document={
            "checkpoint": exact.name,
            "fingerprint": subject.fingerprint,
            "arithmetic": ours.arithmetic,
            "num_prompts": len(ids),
            "max_new_tokens": case.max_new_tokens,
            "logits": asdict(found),
            "greedy_fp32": {
                "num_tokens": sum(len(one.tokens) for one in answers),
                "mismatches": [asdict(one) for one in mismatches],
            },
        },
        table=_agreement_table(found),
        sentence=_greedy_sentence(answers, len(mismatches)),
        is_kept=not mismatches,
    )


def _law_table(held: Sequence[law.Held]) -> Table:
    lines = tuple(
        (
            describe(one.settings),
            str(one.batch_size),
            str(one.num_prompts),
            str(one.num_tokens),
            f"{one.num_tokens / one.num_forwards:.2f}",
            str(len(one.mismatches)),
        )
        for one in held
    )
    columns = ("way", "batch", "prompts", "tokens", "tokens per forward", "mismatches")
    return Table("Held against AR alone, token for token", columns, lines)


def _agreement_table(found: logits_of.Agreement) -> Table:
    line = (
        str(found.num_positions),
        f"{found.max_difference:.4f}",
        f"{found.mean_difference:.4f}",
        f"{found.top_agreement * 100:.2f} %",
        f"{found.mean_divergence:.2e}",
        f"{found.max_divergence:.2e}",
    )
    columns = ("positions", "max |Δ|", "mean |Δ|", "same top token", "mean KL", "max KL")
    return Table("Logits of this runtime beside transformers'", columns, (line,))


def _greedy_sentence(answers: Sequence[RowOutput], num_wrong: int) -> str:
    tokens = sum(len(one.tokens) for one in answers)
    return (
        f"{num_wrong} of {len(answers)} greedy answers in fp32 ({tokens} tokens) differ from "
        "transformers'."
    )
