"""Gathers evidence on sampling: lossless draws of a loaded checkpoint, held against AR's own
probabilities place by place, and against what AR draws with the same seeds.

Knows checkpoints, tokenizers and decoders; the comparison itself is ``sampling.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

import torch
from torch import Tensor

from mars_runtime.decoders import new_batch
from mars_runtime.decoders.base import forbidden_ids
from mars_runtime.engine.memory import CPU_BYTES, store_for
from mars_runtime.lab.evaluation.subject import subject_of
from mars_runtime.lab.evaluation.tables import Table
from mars_runtime.lab.verification import sampling as law
from mars_runtime.lab.verification.agreement import answer_logits
from mars_runtime.lab.verification.evidence import Begin, Case, Found
from mars_runtime.model.load import Checkpoint
from mars_runtime.settings import DecodeSettings, describe

NUM_DRAWS = 128
BATCH_SIZE = 16
WARMTHS = ((1.0, 1.0), (0.7, 0.9))
"""Temperature and top-p."""

Drawn = list[list[int]]
"""The tokens of each draw, seeds from 0 on."""


def sampling(case: Case, prompts: Sequence[str], begin: Begin) -> Found:
    """Every warmth: lossless draws by masks and lookup together, then AR's with the same seeds."""
    checkpoint = case.load()
    ids = [checkpoint.tokenizer.encode_prompt(prompt) for prompt in prompts]
    held = {warmth: _hold(checkpoint, ids, _way(case, *warmth), begin) for warmth in WARMTHS}
    wrong = sum(num_wrong for _, num_wrong in held.values())
    unlikely = sum(not one.is_chance for places, _ in held.values() for one in places)
    draws = len(ids) * NUM_DRAWS * len(WARMTHS)
    return Found(
        document={
            "checkpoint": checkpoint.name,
            "fingerprint": subject_of(checkpoint).fingerprint,
            "arithmetic": checkpoint.model.arithmetic,
            "way": describe(_way(case, *WARMTHS[0])),
            "num_prompts": len(ids),
            "num_draws": NUM_DRAWS,
            "num_mismatches": wrong,
            "warmths": [
                {"temperature": heat, "top_p": top_p, "places": [asdict(one) for one in places]}
                for (heat, top_p), (places, _) in held.items()
            ],
        },
        table=_table({warmth: places for warmth, (places, _) in held.items()}),
        sentence=f"{wrong} of {draws} lossless draws differ from AR's with the same seed; "
        f"{unlikely} places lie further from AR's than chance puts one in a thousand.",
        is_kept=not wrong and not unlikely,
    )


def _way(case: Case, temperature: float, top_p: float) -> DecodeSettings:
    return DecodeSettings(
        tau=0.0,
        lossless=True,
        groups="every",
        lookup=True,
        max_new_tokens=case.max_new_tokens,
        temperature=temperature,
        top_p=top_p,
    )


def _hold(
    checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], way: DecodeSettings, begin: Begin
) -> tuple[list[law.Distance], int]:
    """Distances by place, and how many draws are not AR's."""
    bar = begin(f"temperature {way.temperature:g}, top-p {way.top_p:g}", len(prompts))
    plain = replace(way, method="ar", lossless=False, groups="one", lookup=False)
    by_place: dict[int, list[law.Part]] = {}
    num_wrong = 0
    for number, prompt in enumerate(prompts):
        drawn = draw(checkpoint, prompt, way)
        beside = draw(checkpoint, prompt, plain)
        num_wrong += sum(one != other for one, other in zip(drawn, beside, strict=True))
        for place, pair in enumerate(_chances(checkpoint, prompt, drawn, way)):
            by_place.setdefault(place, []).append(law.part(*pair, seed=number))
        bar(1)
    return [law.distance(place, parts) for place, parts in by_place.items()], num_wrong


def draw(checkpoint: Checkpoint, prompt: Sequence[int], way: DecodeSettings) -> Drawn:
    """NUM_DRAWS answers, each by its own seed, rows of a batch each."""
    drawn: Drawn = [[] for _ in range(NUM_DRAWS)]
    capacity = len(prompt) + way.max_new_tokens
    prefix_cache = store_for(checkpoint.model, CPU_BYTES)  # all draws begin with the same prompt
    model, vocabulary = checkpoint.model, checkpoint.tokenizer
    batch = new_batch(model, vocabulary, BATCH_SIZE, capacity, prefix_cache=prefix_cache)
    for first in range(0, NUM_DRAWS, BATCH_SIZE):
        for seed in range(first, min(first + BATCH_SIZE, NUM_DRAWS)):
            own = replace(way, seed=seed)
            batch.add(seed, prompt, lambda own=own: own)  # type: ignore[misc]
        while batch.rows:
            for row in batch.step().rows:
                drawn[row.row] += row.accepted
        batch.tidy()
    return drawn


def _chances(
    checkpoint: Checkpoint, prompt: Sequence[int], drawn: Drawn, way: DecodeSettings
) -> Iterator[tuple[Tensor, Tensor]]:
    """Of each place the tokens drawn there and the probabilities that AR draws them with."""
    forbidden = forbidden_ids(checkpoint.tokenizer, checkpoint.model).cpu()
    found = []
    for logits in answer_logits(checkpoint.model, prompt, drawn):
        allowed = logits.cpu().index_fill(-1, forbidden, -torch.inf)
        found.append(law.shares(allowed, way.temperature, way.top_p))
    for place in range(max(map(len, drawn))):
        here = [number for number, tokens in enumerate(drawn) if len(tokens) > place]
        ids = torch.tensor([drawn[number][place] for number in here])
        yield ids, torch.stack([found[number][place] for number in here])


def _table(held: dict[tuple[float, float], list[law.Distance]]) -> Table:
    lines = tuple(
        (
            f"temperature {heat:g}, top-p {top_p:g}, token {one.place + 1}",
            str(one.num_draws),
            f"{one.seen:.3f}",
            f"{one.by_chance:.3f}",
            f"{one.rare:.3f}",
        )
        for (heat, top_p), places in held.items()
        for one in places
    )
    columns = ("drawn with", "draws", "total variation", "by chance", "once in 1,000")
    return Table("Lossless draws against AR's probabilities, mean over prompts", columns, lines)
