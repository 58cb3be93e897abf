"""Statistics of speculative decoding for one answer, in the format of vLLM 0.32.

vLLM returns this format with ``--per-request-spec-decode-metrics detailed``. Benchmarks such as
aiperf read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from mars_runtime.runs import folds
from mars_runtime.runs.events import Event


def metrics(events: Sequence[Event]) -> dict[str, Any]:
    """Return the value of an answer's field ``metrics``."""
    return {"speculative_decoding": speculative_decoding(events)}


def speculative_decoding(events: Sequence[Event]) -> dict[str, Any] | None:
    """Return statistics of the forward passes that verified drafts; None if no method drafts.

    ``mean_acceptance_length`` is the mean number of tokens per such pass: the accepted drafts and
    one more token. ``num_spec_tokens`` is the length of the longest draft in the answer, because
    the length may change from pass to pass. ``per_position_acceptance_rates`` is, for each position
    in a draft, the share of these passes that accepted the token at this position, as in vLLM's
    ``bench serve``.
    """
    methods = [step.settings.facts for step, _ in folds.row_steps(events)]
    if all(method.is_alone or method.is_reference for method in methods):
        return None
    judged = list(folds.drafting(events))
    drafted = [num_drafted for num_drafted, _ in judged]
    accepted = [num_accepted for _, num_accepted in judged]
    histogram = [accepted.count(number) for number in range(max(drafted, default=0) + 1)]
    at_least = list(accumulate(reversed(histogram)))[::-1]
    num_steps = len(judged)
    return {
        "mean_acceptance_length": 1 + sum(accepted) / max(1, num_steps),
        "draft_acceptance_rate": sum(accepted) / max(1, sum(drafted)),
        "acceptance_histogram": histogram,
        "num_spec_steps": num_steps,
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": sum(drafted),
        "num_spec_tokens": len(histogram) - 1,
        "per_position_acceptance_rates": [number / num_steps for number in at_least[1:]],
        "per_step_accepted": accepted,
        "per_step_drafted": drafted,
    }
