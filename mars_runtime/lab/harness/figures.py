"""Tokens per forward of benchmark answers, by task, with 95 % intervals. Pure folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mars_runtime import statistics
from mars_runtime.lab.harness.answers import Record


def figures_of(records: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """For each task: answers; tokens and forwards of all of them; tokens per forward averaged over
    answers, repetition loops cut (``tpf``) and as written (``tpf_whole``); the shares that ended
    before the limit and that went into a loop; each answer's counts."""
    tasks = dict.fromkeys(one.task for one in records)
    return {task: _figures([one for one in records if one.task == task]) for task in tasks}


def _figures(records: Sequence[Record]) -> dict[str, Any]:
    kept = [one.kept_tokens / one.kept_forwards for one in records]
    whole = [one.num_tokens / one.num_forwards for one in records]
    return {
        "answers": len(records),
        "tokens": sum(one.num_tokens for one in records),
        "forwards": sum(one.num_forwards for one in records),
        "tpf": asdict(statistics.mean(kept)),
        "tpf_whole": asdict(statistics.mean(whole)),
        "ended": sum(one.is_ended for one in records) / len(records),
        "looped": sum(one.is_looped for one in records) / len(records),
        "by_answer": [
            [one.document, one.kept_tokens, one.kept_forwards, one.num_tokens, one.num_forwards]
            for one in records
        ],
    }
