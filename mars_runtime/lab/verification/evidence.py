"""Evidence for each promise: decode with a checkpoint and compare (``laws.py``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mars_runtime.decoders import CursorBatch
from mars_runtime.decoders.base import forbidden_ids
from mars_runtime.engine.memory import CPU_BYTES, store_for
from mars_runtime.lab.benchmark.elsewhere import loader
from mars_runtime.lab.evaluation.measure import decode_in_batches
from mars_runtime.lab.evaluation.run import eval_model_of
from mars_runtime.lab.tables import Table
from mars_runtime.lab.verification import laws
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.provenance import fingerprint
from mars_runtime.settings import DecodeSettings, describe

Begin = Callable[[str, int], Callable[[int], None]]
"""Starts a progress bar with a label and a total; returns a function that advances it."""

FP32 = "fp32"
ANSWER_BATCH = 16
NUM_DRAWS = 128
DRAW_BATCH = 16
WARMTHS = ((1.0, 1.0), (0.7, 0.9))
"""Temperature and top-p."""


@dataclass(frozen=True, slots=True)
class Case:
    """The checkpoint, how it is loaded, and the length of its answers."""

    checkpoint: str
    device: str
    dtype: str
    max_new_tokens: int

    def load(self, dtype: str | None = None) -> Checkpoint:
        """Load the checkpoint. Raises CheckpointError."""
        return load_checkpoint(self.checkpoint, device=self.device, dtype=dtype or self.dtype)

    @property
    def ar(self) -> DecodeSettings:
        return DecodeSettings("ar", 1.0, 1, max_new_tokens=self.max_new_tokens)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A result for a file, a terminal and in a sentence, and whether the promise is kept."""

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
    """Compare AR in batches, and lossless methods single and in batches, with AR."""
    checkpoint = case.load()
    model = eval_model_of(checkpoint)
    ids = [model.encode_prompt(prompt) for prompt in prompts]
    decode = model.decode
    expected = decode_in_batches(decode, ids, case.ar, 1, begin("AR", len(ids)))
    held = []
    for settings in [case.ar, *laws.ways(case.max_new_tokens)]:
        for batch_size in laws.BATCH_SIZES:
            if settings.method == "ar" and batch_size == 1:
                continue
            bar = begin(f"{describe(settings)}, batches of {batch_size}", len(ids))
            held.append(laws.hold(decode, ids, settings, batch_size, expected, bar))
    wrong = sum(len(method.mismatches) for method in held)
    answers = sum(method.num_prompts for method in held)
    tokens = sum(method.num_tokens for method in held)
    return Evidence(
        document={
            **_facts(checkpoint),
            "threads": torch.get_num_threads(),
            "num_prompts": len(ids),
            "max_new_tokens": case.max_new_tokens,
            "num_answers": answers,
            "num_tokens": tokens,
            "num_mismatches": wrong,
            "ways": [asdict(method) for method in held],
        },
        table=_law_table(held),
        sentence=f"{wrong} of {answers} answers ({tokens} tokens) to {len(ids)} prompts differ "
        f"from AR's, in {model.dtype}.",
        is_kept=wrong == 0,
    )


def _law_table(held: Sequence[laws.HeldWay]) -> Table:
    columns: dict[str, Callable[[laws.HeldWay], str]] = {
        "method": lambda method: describe(method.settings),
        "batch": lambda method: str(method.batch_size),
        "prompts": lambda method: str(method.num_prompts),
        "tokens": lambda method: str(method.num_tokens),
        "tokens per forward": lambda method: f"{method.num_tokens / method.num_forwards:.2f}",
        "mismatches": lambda method: str(len(method.mismatches)),
    }
    return Table.of("Comparison with AR, token by token", held, columns)


def logits(case: Case, prompts: Sequence[str], begin: Begin) -> Evidence:
    """Compare greedy answers in fp32 with transformers' choices, then the logits in the requested
    dtype at the same positions."""
    exact = case.load(FP32)
    model = eval_model_of(exact)
    ids = [model.encode_prompt(prompt) for prompt in prompts]
    bar = begin("answers in fp32", len(ids))
    answers = decode_in_batches(model.decode, ids, case.ar, ANSWER_BATCH, bar)
    num_tokens = sum(len(answer.tokens) for answer in answers)
    forbidden = forbidden_ids(exact.tokenizer, exact.model).tolist()
    theirs, asked = loader(exact)(), case.load()
    bar = begin("logits", len(ids))
    apart, parted = [], []
    for number, (prompt, answer) in enumerate(zip(ids, answers, strict=True)):
        tokens, first = [*prompt, *answer.tokens[:-1]], len(prompt) - 1
        reference = laws.transformers_logits(theirs, tokens, first)
        apart.append(laws.agreement(laws.runtime_logits(asked.model, tokens, first), reference))
        parted.append(laws.greedy_difference(number, reference, answer.tokens, forbidden))
        bar(1)
    mismatches = [difference for difference in parted if difference is not None]
    agreement = laws.pooled(apart)
    return Evidence(
        document={
            **_facts(asked),
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
        f"({num_tokens} tokens) differ from transformers'.",
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
    title = "Logits of this runtime compared with transformers'"
    return Table(title, tuple(columns), (tuple(columns.values()),))


def sampling(case: Case, prompts: Sequence[str], begin: Begin) -> Evidence:
    """Compare lossless draws, by masks and prompt lookup, with AR's draws of the same seeds."""
    checkpoint = case.load()
    ids = [checkpoint.tokenizer.encode_prompt(prompt) for prompt in prompts]
    held = {warmth: _hold(checkpoint, ids, _way(case, *warmth), begin) for warmth in WARMTHS}
    wrong = sum(num_wrong for _, num_wrong in held.values())
    unlikely = sum(not position.is_chance for places, _ in held.values() for position in places)
    draws = len(ids) * NUM_DRAWS * len(WARMTHS)
    return Evidence(
        document={
            **_facts(checkpoint),
            "way": describe(_way(case, *WARMTHS[0])),
            "num_prompts": len(ids),
            "num_draws": NUM_DRAWS,
            "num_mismatches": wrong,
            "warmths": [
                {
                    "temperature": heat,
                    "top_p": top_p,
                    "places": [asdict(position) for position in places],
                }
                for (heat, top_p), (places, _) in held.items()
            ],
        },
        table=_draws_table({warmth: places for warmth, (places, _) in held.items()}),
        sentence=f"{wrong} of {draws} lossless draws differ from AR's with the same seed; "
        f"{unlikely} positions differ more from AR's probabilities than 99.9 % of random draws.",
        is_kept=not wrong and not unlikely,
    )


def _way(case: Case, temperature: float, top_p: float) -> DecodeSettings:
    return DecodeSettings(
        tau=0.0,
        lossless=True,
        mask_layout="every",
        lookup=True,
        max_new_tokens=case.max_new_tokens,
        temperature=temperature,
        top_p=top_p,
    )


def _hold(
    checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], way: DecodeSettings, begin: Begin
) -> tuple[list[laws.Distance], int]:
    """Return distances by position, and how many draws differ from AR's."""
    bar = begin(f"temperature {way.temperature:g}, top-p {way.top_p:g}", len(prompts))
    plain = replace(way, method="ar", lossless=False, mask_layout="last", lookup=False)
    by_place: dict[int, list[laws.PromptDistance]] = {}
    num_wrong = 0
    for number, prompt in enumerate(prompts):
        drawn = draw(checkpoint, prompt, way)
        by_ar = draw(checkpoint, prompt, plain)
        num_wrong += sum(one != other for one, other in zip(drawn, by_ar, strict=True))
        for place, pair in enumerate(_chances(checkpoint, prompt, drawn, way)):
            by_place.setdefault(place, []).append(laws.prompt_distance(*pair, seed=number))
        bar(1)
    return [laws.distance(place, by_prompt) for place, by_prompt in by_place.items()], num_wrong


def draw(checkpoint: Checkpoint, prompt: Sequence[int], way: DecodeSettings) -> list[list[int]]:
    """Return NUM_DRAWS answers with a seed each, decoded in batches."""
    drawn: list[list[int]] = [[] for _ in range(NUM_DRAWS)]
    capacity = len(prompt) + way.max_new_tokens
    prefix_cache = store_for(checkpoint.model, CPU_BYTES)  # all draws have the same prompt
    model, vocabulary = checkpoint.model, checkpoint.tokenizer
    batch = CursorBatch(model, vocabulary, DRAW_BATCH, capacity, prefix_cache=prefix_cache)
    for first in range(0, NUM_DRAWS, DRAW_BATCH):
        for seed in range(first, min(first + DRAW_BATCH, NUM_DRAWS)):
            own = replace(way, seed=seed)
            batch.add(seed, prompt, lambda own=own: own)  # type: ignore[misc]
        while batch.rows:
            for row in batch.step().rows:
                drawn[row.row] += row.accepted
        batch.tidy()
    return drawn


def _chances(
    checkpoint: Checkpoint,
    prompt: Sequence[int],
    drawn: Sequence[Sequence[int]],
    way: DecodeSettings,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the tokens drawn at each position, and AR's probabilities there."""
    forbidden = forbidden_ids(checkpoint.tokenizer, checkpoint.model).cpu()
    chances = []
    for logits in laws.answer_logits(checkpoint.model, prompt, drawn):
        allowed = logits.cpu().index_fill(-1, forbidden, -torch.inf)
        chances.append(laws.shares(allowed, way.temperature, way.top_p))
    for place in range(max(map(len, drawn))):
        here = [number for number, tokens in enumerate(drawn) if len(tokens) > place]
        ids = torch.tensor([drawn[number][place] for number in here])
        yield ids, torch.stack([chances[number][place] for number in here])


def _draws_table(held: dict[tuple[float, float], list[laws.Distance]]) -> Table:
    lines = tuple(
        (
            f"temperature {heat:g}, top-p {top_p:g}, token {position.place + 1}",
            str(position.num_draws),
            f"{position.seen:.3f}",
            f"{position.by_chance:.3f}",
            f"{position.rare:.3f}",
        )
        for (heat, top_p), places in held.items()
        for position in places
    )
    columns = ("drawn with", "draws", "total variation", "by chance", "once in 1,000")
    return Table("Lossless draws against AR's probabilities, mean over prompts", columns, lines)
