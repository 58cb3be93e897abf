"""The series that Prometheus reads: vLLM's names under ``mars:``, one of each per model.

Knows no event.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

LABEL = "model_name"
SHORT = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)
LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 320)
TOKENS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)


class Series:
    """All of them, in one registry. Seconds are of the wall clock."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, about: str) -> Gauge:
            return Gauge(f"mars:{name}", about, [LABEL], registry=registry)

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"mars:{name}", about, [LABEL, *labels], registry=registry)

        def histogram(name: str, about: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"mars:{name}", about, [LABEL], registry=registry, buckets=buckets)

        self.running = gauge("num_requests_running", "Requests that take turns")
        self.waiting = gauge("num_requests_waiting", "Requests in line")
        self.cache = gauge("kv_cache_usage_perc", "Share of the slots for keys and values in use")
        self.prompt_tokens = counter("prompt_tokens", "Tokens of prompts that were read")
        self.generation_tokens = counter("generation_tokens", "Tokens that were written")
        self.success = counter("request_success", "Requests that ended", "finished_reason")
        self.first_token = histogram(
            "time_to_first_token_seconds", "From submission to the first tokens", LONG
        )
        self.between = histogram(
            "inter_token_latency_seconds", "Between two forwards of a request", SHORT
        )
        self.per_token = histogram(
            "request_time_per_output_token_seconds",
            "Per token after the first, of a request",
            SHORT,
        )
        self.whole_time = histogram(
            "e2e_request_latency_seconds", "From submission to the end", LONG
        )
        self.queue_time = histogram(
            "request_queue_time_seconds", "From submission to the first turn", LONG
        )
        self.iteration_tokens = histogram(
            "iteration_tokens_total", "Tokens that one forward wrote, over its requests", TOKENS
        )
        self.drafts = counter("spec_decode_num_drafts", "Forwards that judged drafts")
        self.draft_tokens = counter("spec_decode_num_draft_tokens", "Drafts that were judged")
        self.accepted_tokens = counter(
            "spec_decode_num_accepted_tokens", "Drafts that were accepted"
        )
        self.accepted_at = counter(
            "spec_decode_num_accepted_tokens_per_pos", "Accepted drafts by place", "position"
        )
