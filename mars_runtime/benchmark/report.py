"""From samples to tables and JSON values. Measures nothing."""

from __future__ import annotations

import statistics as plain
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mars_runtime.benchmark.paired import Sample, Span, agreement, best_threads, ratio
from mars_runtime.evaluation.statistics import Estimate
from mars_runtime.evaluation.tables import Table, number, share
from mars_runtime.tasks.natural import NAME as NATURAL

SPANS: tuple[Span, ...] = ("decode", "whole")


def at_best_threads(samples: Sequence[Sample]) -> list[Sample]:
    """Each peer at the thread count where it is fastest over the families (all, if there are none);
    every peer, baselines too, is given the same choice."""
    chosen = best_threads([one for one in samples if one.family != NATURAL] or samples)
    return [one for one in samples if one.threads == chosen[one.peer]]


def peers_tables(samples: Sequence[Sample]) -> list[Table]:
    """A line a peer and thread count: medians over the families' prompts, then natural text."""
    best = best_threads([one for one in samples if one.family != NATURAL] or samples)
    parts = {
        "over the families": [one for one in samples if one.family != NATURAL],
        "on natural text": [one for one in samples if one.family == NATURAL],
    }
    columns = ("peer", "threads", "tokens/s", "with prefill", "TTFT ms", "TPF")
    tables = []
    ways = dict.fromkeys((one.peer, one.threads) for one in samples)
    for where, part in parts.items():
        lines = []
        for peer, threads in ways if part else ():
            own = [one for one in part if (one.peer, one.threads) == (peer, threads)]
            mark = " *" if best[peer] == threads else ""
            lines.append((peer, f"{threads}{mark}", *_figures(own)))
        if lines:
            title = f"Medians of each peer {where} (* its best thread count)"
            tables.append(Table(title, columns, tuple(lines)))
    return tables


def ratios_table(
    samples: Sequence[Sample], comparisons: Sequence[tuple[str, str]], span: Span
) -> Table:
    """A column a comparison (peer, baseline); lines: all families, each family, natural text."""
    chosen = at_best_threads(samples)
    every = list(dict.fromkeys(one.family for one in samples))
    families = [family for family in every if family != NATURAL]
    groups = {"average over families": families} | {family: [family] for family in every}
    lines = [
        (name, *(number(ratio(chosen, *pair, group, span)) for pair in comparisons))
        for name, group in groups.items()
    ]
    lines.append(("same tokens", *(share(agreement(chosen, *pair)) for pair in comparisons)))
    what = "decoding" if span == "decode" else "prefill included"
    return Table(
        f"How many times the tokens/s ({what}), with 95 % intervals",
        ("text", *(f"{peer} / {baseline}" for peer, baseline in comparisons)),
        tuple(lines),
    )


def to_json(samples: Sequence[Sample], comparisons: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Ratios and every sample; token ids are left out, agreement is kept."""
    chosen = at_best_threads(samples)
    every = list(dict.fromkeys(one.family for one in samples))
    families = [family for family in every if family != NATURAL]
    ratios = [
        {
            "peer": peer,
            "baseline": baseline,
            "span": span,
            "families": _plain(ratio(chosen, peer, baseline, families, span)),
            **{
                f"family:{family}": _plain(ratio(chosen, peer, baseline, [family], span))
                for family in every
            },
            "agreement": agreement(chosen, peer, baseline),
        }
        for peer, baseline in comparisons
        for span in SPANS
    ]
    best = {one.peer: one.threads for one in chosen}
    return {"best_threads": best, "ratios": ratios, "samples": [_sample(one) for one in samples]}


def _figures(samples: Sequence[Sample]) -> tuple[str, ...]:
    """Median tokens/s of both spans, median TTFT in ms, mean tokens per forward."""
    timings = [one.timing for one in samples]
    rates = []
    for span in SPANS:
        known = [rate for one in timings if (rate := one.rate(span)) is not None]
        rates.append(f"{plain.median(known):.0f}" if known else "–")
    first = plain.median(one.first_seconds for one in timings) * 1000
    tpf = plain.mean(len(one.tokens) / one.num_forwards for one in timings)
    return (*rates, f"{first:.1f}", f"{tpf:.2f}")


def _plain(found: Estimate | None) -> dict[str, float] | None:
    return asdict(found) if found else None


def _sample(one: Sample) -> dict[str, Any]:
    timing = asdict(one.timing)
    timing["num_tokens"] = len(timing.pop("tokens"))
    return {
        "peer": one.peer,
        "threads": one.threads,
        "family": one.family,
        "prompt": one.prompt,
        "round": one.round,
        **timing,
    }
