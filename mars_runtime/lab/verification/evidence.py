"""Collect the evidence for each promise, by decoding with a checkpoint and comparing results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mars_runtime.decoders import CursorBatch
from mars_runtime.decoders.base import forbidden_ids
from mars_runtime.engine.memory import CPU_BYTES, new_prefix_cache
from mars_runtime.lab.benchmark.elsewhere import loader
from mars_runtime.lab.evaluation.measure import decode_in_batches
from mars_runtime.lab.evaluation.run import eval_model_of
from mars_runtime.lab.tables import Table
from mars_runtime.lab.verification import laws
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.provenance import fingerprint
from mars_runtime.settings import DecodeSettings, describe

Begin = Callable[[str, int], Callable[[int], None]]
"""A function (label, total) that starts a progress bar and returns a function to advance it."""

FP32 = "fp32"
ANSWER_BATCH = 16
NUM_DRAWS = 128
DRAW_BATCH = 16
WARMTHS = ((1.0, 1.0), (0.7, 0.9))
"""Pairs of temperature and top-p with which the promise ``sampling`` is checked."""


@dataclass(frozen=True, slots=True)
class Case:
    """The checkpoint to check, how to load it, and the maximum length of answers."""

    checkpoint: str
    device: str
    dtype: str
    max_new_tokens: int

    def load(self, dtype: str | None = None) -> Checkpoint:
        """Load the checkpoint in ``dtype``, by default ``self.dtype``. Raises CheckpointError."""
        return load_checkpoint(self.checkpoint, device=self.device, dtype=dtype or self.dtype)

    @property
    def ar(self) -> DecodeSettings:
        return DecodeSettings("ar", 1.0, 1, max_new_tokens=self.max_new_tokens)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The result of checking a promise.

    document: content of the result file. sentence: the result in one sentence. is_kept: whether the
    promise holds.
    """

    document: dict[str, Any]
    table: Table
    sentence: str
    is_kept: bool


def _facts(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "checkpoint": checkpoint.name,
        "fingerprint": fingerprint(checkpoint.weight_files),
        "arithmetic": checkpoint.model.arithmetic,
    }


def lossless(case: Case, prompts: Sequence[str], begin: Begin) -> Evidence:
    """Check that AR in batches and all lossless methods emit the tokens of AR on single prompts."""
    checkpoint = case.load()
    model = eval_model_of(checkpoint)
    ids = [model.encode_prompt(prompt) for prompt in prompts]
    decode = model.decode
    expected = decode_in_batches(decode, ids, case.ar, 1, begin("AR", len(ids)))
    comparisons = []
    for settings in [case.ar, *laws.ways(case.max_new_tokens)]:
        for batch_size in laws.BATCH_SIZES:
            if settings.method == "ar" and batch_size == 1:
                continue
            bar = begin(f"{describe(settings)}, batches of {batch_size}", len(ids))
            comparison = laws.compare_with_ar(decode, ids, settings, batch_size, expected, bar)
            comparisons.append(comparison)
    wrong = sum(len(comparison.mismatches) for comparison in comparisons)
    answers = sum(comparison.num_prompts for comparison in comparisons)
    tokens = sum(comparison.num_tokens for comparison in comparisons)
    return Evidence(
        document={
            **_facts(checkpoint),
            "threads": torch.get_num_threads(),
            "num_prompts": len(ids),
            "max_new_tokens": case.max_new_tokens,
            "num_answers": answers,
            "num_tokens": tokens,
            "num_mismatches": wrong,
            "ways": [asdict(comparison) for comparison in comparisons],
        },
        table=_comparison_table(comparisons),
        sentence=f"{wrong} of {answers} answers ({tokens} tokens) to {len(ids)} prompts differ "
        f"from AR's, in {model.dtype}.",
        is_kept=wrong == 0,
    )


def _comparison_table(comparisons: Sequence[laws.MethodComparison]) -> Table:
    columns: dict[str, Callable[[laws.MethodComparison], str]] = {
        "method": lambda row: describe(row.settings),
        "batch": lambda row: str(row.batch_size),
        "prompts": lambda row: str(row.num_prompts),
        "tokens": lambda row: str(row.num_tokens),
        "tokens per pass": lambda row: f"{row.num_tokens / row.num_forwards:.2f}",
        "mismatches": lambda row: str(len(row.mismatches)),
    }
    return Table.of("Comparison with AR, token by token", comparisons, columns)


def logits(case: Case, prompts: Sequence[str], begin: Begin) -> Evidence:
    """Check that greedy answers in fp32 have the same tokens as those of transformers.

    The logits in the requested dtype are also compared with those of transformers, at the same
    positions.
    """
    exact = case.load(FP32)
    model = eval_model_of(exact)
    ids = [model.encode_prompt(prompt) for prompt in prompts]
    bar = begin("answers in fp32", len(ids))
    answers = decode_in_batches(model.decode, ids, case.ar, ANSWER_BATCH, bar)
    num_tokens = sum(len(answer.tokens) for answer in answers)
    forbidden = forbidden_ids(exact.tokenizer, exact.model).tolist()
    reference_model, requested = loader(exact)(), case.load()
    bar = begin("logits", len(ids))
    agreements, differences = [], []
    for number, (prompt, answer) in enumerate(zip(ids, answers, strict=True)):
        tokens, first = [*prompt, *answer.tokens[:-1]], len(prompt) - 1
        reference = laws.transformers_logits(reference_model, tokens, first)
        logits = laws.runtime_logits(requested.model, tokens, first)
        agreements.append(laws.agreement(logits, reference))
        differences.append(laws.greedy_difference(number, reference, answer.tokens, forbidden))
        bar(1)
    mismatches = [difference for difference in differences if difference is not None]
    agreement = laws.pooled(agreements)
    return Evidence(
        document={
            **_facts(requested),
            "num_prompts": len(ids),
            "max_new_tokens": case.max_new_tokens,
            "logits": asdict(agreement),
            "greedy_fp32": {
                "num_tokens": num_tokens,
                "mismatches": [asdict(mismatch) for mismatch in mismatches],
            },
        },
        table=_agreement_table(agreement),
        sentence=f"{len(mismatches)} of {len(answers)} greedy answers in fp32 "
        f"({num_tokens} tokens) differ from those of transformers.",
        is_kept=not mismatches,
    )


def _agreement_table(agreement: laws.LogitAgreement) -> Table:
    columns = {
        "positions": str(agreement.num_positions),
        "max |Δ|": f"{agreement.max_difference:.4f}",
        "mean |Δ|": f"{agreement.mean_difference:.4f}",
        "same top token": f"{agreement.top_agreement * 100:.2f} %",
        "mean KL": f"{agreement.mean_divergence:.2e}",
        "max KL": f"{agreement.max_divergence:.2e}",
    }
    title = "Logits of this runtime compared with those of transformers"
    return Table(title, tuple(columns), (tuple(columns.values()),))


def sampling(case: Case, prompts: Sequence[str], begin: Begin) -> Evidence:
    """Check that lossless decoding with masks and prompt lookup draws the same tokens as AR.

    Draws with the same seed must be equal, and all draws must follow AR's probabilities.
    """
    checkpoint = case.load()
    ids = [checkpoint.tokenizer.encode_prompt(prompt) for prompt in prompts]
    results = {
        warmth: _compare_draws(checkpoint, ids, _lossless_settings(case, *warmth), begin)
        for warmth in WARMTHS
    }
    wrong = sum(num_wrong for _, num_wrong in results.values())
    unlikely = sum(
        not distance.is_chance for distances, _ in results.values() for distance in distances
    )
    draws = len(ids) * NUM_DRAWS * len(WARMTHS)
    return Evidence(
        document={
            **_facts(checkpoint),
            "way": describe(_lossless_settings(case, *WARMTHS[0])),
            "num_prompts": len(ids),
            "num_draws": NUM_DRAWS,
            "num_mismatches": wrong,
            "warmths": [
                {
                    "temperature": heat,
                    "top_p": top_p,
                    "places": [asdict(distance) for distance in distances],
                }
                for (heat, top_p), (distances, _) in results.items()
            ],
        },
        table=_draws_table({warmth: distances for warmth, (distances, _) in results.items()}),
        sentence=f"{wrong} of {draws} lossless draws differ from AR's with the same seed; "
        f"{unlikely} positions differ more from AR's probabilities than 99.9 % of random draws.",
        is_kept=not wrong and not unlikely,
    )


def _lossless_settings(case: Case, temperature: float, top_p: float) -> DecodeSettings:
    return DecodeSettings(
        tau=0.0,
        lossless=True,
        mask_layout="every",
        lookup=True,
        max_new_tokens=case.max_new_tokens,
        temperature=temperature,
        top_p=top_p,
    )


def _compare_draws(
    checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], settings: DecodeSettings, begin: Begin
) -> tuple[list[laws.Distance], int]:
    """Return the distance at each position, and the number of draws that differ from AR's.

    A draw differs if AR with the same seed draws other tokens.
    """
    bar = begin(f"temperature {settings.temperature:g}, top-p {settings.top_p:g}", len(prompts))
    ar = replace(settings, method="ar", lossless=False, mask_layout="last", lookup=False)
    by_position: dict[int, list[laws.PromptDistance]] = {}
    num_wrong = 0
    for number, prompt in enumerate(prompts):
        drawn = draw(checkpoint, prompt, settings)
        ar_drawn = draw(checkpoint, prompt, ar)
        num_wrong += sum(tokens != other for tokens, other in zip(drawn, ar_drawn, strict=True))
        for position, pair in enumerate(_chances(checkpoint, prompt, drawn, settings)):
            by_position.setdefault(position, []).append(laws.prompt_distance(*pair, seed=number))
        bar(1)
    return [laws.distance(*item) for item in by_position.items()], num_wrong


def draw(checkpoint: Checkpoint, prompt: Sequence[int], way: DecodeSettings) -> list[list[int]]:
    """Decode NUM_DRAWS answers to a prompt, each with a different seed."""
    drawn: list[list[int]] = [[] for _ in range(NUM_DRAWS)]
    capacity = len(prompt) + way.max_new_tokens
    prefix_cache = new_prefix_cache(checkpoint.model, CPU_BYTES)  # shared by all draws
    model, vocabulary = checkpoint.model, checkpoint.tokenizer
    batch = CursorBatch(model, vocabulary, DRAW_BATCH, capacity, prefix_cache=prefix_cache)
    for first in range(0, NUM_DRAWS, DRAW_BATCH):
        for seed in range(first, min(first + DRAW_BATCH, NUM_DRAWS)):
            own = replace(way, seed=seed)
            batch.add(seed, prompt, lambda own=own: own)  # type: ignore[misc]
        while batch.rows:
            for row in batch.step().rows:
                drawn[row.row] += row.accepted
        batch.release_ended()
    return drawn


def _chances(
    checkpoint: Checkpoint,
    prompt: Sequence[int],
    drawn: Sequence[Sequence[int]],
    way: DecodeSettings,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield, for each position of the answers, the drawn tokens and AR's probabilities.

    Tokens are [N] and probabilities [N, V], for the N answers that reach the position.
    """
    forbidden = forbidden_ids(checkpoint.tokenizer, checkpoint.model).cpu()
    chances = []
    for logits in laws.answer_logits(checkpoint.model, prompt, drawn):
        allowed = logits.cpu().index_fill(-1, forbidden, -torch.inf)
        chances.append(laws.shares(allowed, way.temperature, way.top_p))
    for position in range(max(map(len, drawn))):
        numbers = [number for number, tokens in enumerate(drawn) if len(tokens) > position]
        ids = torch.tensor([drawn[number][position] for number in numbers])
        yield ids, torch.stack([chances[number][position] for number in numbers])


def _draws_table(distances: dict[tuple[float, float], list[laws.Distance]]) -> Table:
    lines = tuple(
        (
            f"temperature {heat:g}, top-p {top_p:g}, token {distance.place + 1}",
            str(distance.num_draws),
            f"{distance.seen:.3f}",
            f"{distance.by_chance:.3f}",
            f"{distance.rare:.3f}",
        )
        for (heat, top_p), by_position in distances.items()
        for distance in by_position
    )
    columns = ("drawn with", "draws", "total variation", "by chance", "once in 1,000")
    title = "Lossless draws compared with AR's probabilities, mean over prompts"
    return Table(title, columns, lines)
