"""Statistics of speculative decoding for one answer, in vLLM's format
(``--per-request-spec-decode-metrics detailed``), which benchmarks such as aiperf read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from mars_runtime.runs import folds
from mars_runtime.runs.events import Event


def speculative_decoding(events: Sequence[Event]) -> dict[str, Any] | None:
    """Count over the forward passes that verified drafts; None if no method drafts.

    ``mean_acceptance_length`` counts one more token. ``num_spec_tokens`` is of the longest draft.
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
