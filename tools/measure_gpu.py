"""Time models with random weights in the shapes of Qwen2.5, on the GPU if there is one:
``python tools/measure_gpu.py qwen2.5-7b --rows 8 --out FILE``. The number of accepted tokens is
drawn from a histogram."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from mars_runtime.decoders.cursor import decode  # noqa: E402
from mars_runtime.files.outputs import check_file, path_of, write_text  # noqa: E402
from mars_runtime.lab.benchmark.forward import WIDTHS, forward_times, now, rho_curve  # noqa: E402
from mars_runtime.model.config import ModelConfig, expected_names, expected_shape  # noqa: E402
from mars_runtime.model.forward import Branches, CausalModel, SamplingMetadata  # noqa: E402
from mars_runtime.model.transformer import Transformer  # noqa: E402
from mars_runtime.runs.events import Proposal, Step  # noqa: E402
from mars_runtime.settings import DecodeSettings, describe  # noqa: E402
from mars_runtime.system.provenance import provenance  # noqa: E402

# The fields of config.json that determine the arithmetic, from the published Instruct checkpoints.
_QWEN = {"model_type": "qwen2", "max_position_embeddings": 32768, "rms_norm_eps": 1e-6}
_QWEN |= {"rope_theta": 1000000.0, "hidden_act": "silu", "use_sliding_window": False}
_SMALL = {"vocab_size": 151936, "num_key_value_heads": 2, "tie_word_embeddings": True}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-0.5b": _QWEN | _SMALL | {"hidden_size": 896, "intermediate_size": 4864,
        "num_hidden_layers": 24, "num_attention_heads": 14},
    "qwen2.5-7b": _QWEN | {"hidden_size": 3584, "intermediate_size": 18944, "vocab_size": 152064,
        "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
        "tie_word_embeddings": False},
    "tiny": _QWEN | _SMALL | {"hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4},
}  # fmt: skip
SHARES = (0.55, 0.23, 0.10, 0.12)
"""Shares of forward passes that accept 1, 2, 3 and 4 tokens: the paper's at tau = 0.95."""
CONTEXT, NUM_ROUNDS = 128, 5

VOCABULARY = SimpleNamespace(
    size=151666, mask_id=151665, eos_ids=frozenset(), forbidden_ids=frozenset({151665})
)
"""Special ids as decoders need them. Without EOS, every row runs to its limit."""


def random_weights(config: ModelConfig, device: Any, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Return random weights by name, with the initial spread of transformers for Qwen2."""
    generator = torch.Generator(device).manual_seed(0)
    weights = {}
    for name in sorted(expected_names(config)):
        weight = torch.ones(expected_shape(name, config), device=device, dtype=dtype)
        weights[name] = weight if "norm" in name else weight.normal_(0, 0.02, generator=generator)
    return weights


class ForcedModel(CausalModel):
    """Confirms every draft and accepts proposals as ``SHARES`` says. The number depends only on row
    and position, so all methods draw the same. Only one group of masks is supported."""

    def __init__(self, model: CausalModel) -> None:
        self._model, self.config, self.device = model, model.config, model.device

    def new_cache(self, rows: int, capacity: int) -> Any:
        return self._model.new_cache(rows, capacity)

    def logits(self, hidden: Any, head: torch.Tensor | slice) -> torch.Tensor:
        return self._model.logits(hidden, head)

    def hidden(self, tokens: torch.Tensor, cache: Any, branches: Branches | None = None) -> Any:
        assert branches is None, "only one group of masks is supported"
        self._fed, self._cursors = tokens.tolist(), list(cache.cursors[: len(tokens)])
        return self._model.hidden(tokens, cache)

    def predict(
        self, hidden: Any, head: torch.Tensor | slice, sampling: SamplingMetadata
    ) -> list[list[Proposal]]:
        predictions = self._model.predict(hidden, head, sampling)
        rows = []
        for row, (fed, proposals) in enumerate(zip(self._fed, predictions, strict=True)):
            slots = range(len(fed))[head] if isinstance(head, slice) else head[row].tolist()
            last = (fed.index(mask) if (mask := VOCABULARY.mask_id) in fed else len(fed)) - 1
            seed = f"{row} {self._cursors[row] + last}"
            count = random.Random(seed).choices(range(1, len(SHARES) + 1), SHARES)[0]
            row_proposals = []
            for slot, old in zip(slots, proposals, strict=True):
                token = fed[slot + 1] if slot < last else old.token
                sure = 1.0 if slot < last + count else -1.0
                row_proposals.append(old._replace(token=token, confidence=sure))
            rows.append(row_proposals)
        return rows


def measure_shape(name: str, num_rows: int, num_tokens: int) -> dict[str, Any]:
    """All methods decode the same random prompts in alternating order. Rates are tokens per second
    of all rows after their first tokens, as medians over rounds."""
    import transformers

    is_cuda = torch.cuda.is_available()
    device = torch.device("cuda" if is_cuda else "cpu")
    dtype = torch.bfloat16 if is_cuda else torch.float32
    config = ModelConfig.from_dict(SHAPES[name])
    weights = random_weights(config, device, dtype)
    model = Transformer(config, weights, device=device, dtype=dtype)
    del weights
    curve = rho_curve(num_rows, forward_times(model, num_rows, WIDTHS, CONTEXT, NUM_ROUNDS))
    draw = random.Random(0)
    prompts = [[draw.randrange(150000) for _ in range(CONTEXT)] for _ in range(num_rows)]
    with device:
        kind: Any = transformers.AutoModelForCausalLM
        theirs = kind.from_config(transformers.Qwen2Config(**SHAPES[name]), dtype=dtype).eval()
    ids = torch.tensor(prompts, device=device)

    def generate() -> list[tuple[float, int]]:
        times: list[tuple[float, int]] = []
        streamer = SimpleNamespace(
            put=lambda value: times.append((now(device), value.numel())), end=lambda: None
        )
        options = {"max_new_tokens": num_tokens, "do_sample": False, "pad_token_id": 0}
        more = {"attention_mask": torch.ones_like(ids), "eos_token_id": None}
        theirs.generate(ids, streamer=streamer, **options, **more)
        return times[1:]  # the first call passes the prompt

    def run(settings: DecodeSettings) -> list[tuple[float, int]]:
        events = decode(ForcedModel(model), VOCABULARY, prompts, lambda: settings)
        steps = (event.rows for event in events if isinstance(event, Step))
        return [(now(device), sum(len(row.accepted) for row in rows)) for rows in steps]

    methods = [DecodeSettings("ar", 1.0, 1)]
    methods += [DecodeSettings(tau=0.95, block_size=size) for size in (4, 8, 16)]
    methods += [DecodeSettings(tau=0.0, block_size=4, lossless=True)]
    limited = [replace(settings, max_new_tokens=num_tokens) for settings in methods]
    peers: dict[str, Any] = {describe(settings): partial(run, settings) for settings in limited}
    peers["transformers generate"] = generate
    rates: dict[str, list[float]] = {peer: [] for peer in peers}
    passes = {}
    with torch.inference_mode():
        for number in range(NUM_ROUNDS + 1):  # the first round is for warm-up
            for peer in list(peers) if number % 2 else reversed(peers):
                times = peers[peer]()
                seconds = times[-1][0] - times[0][0]
                rates[peer].append(sum(count for _, count in times[1:]) / seconds)
                passes[peer] = len(times)
    medians = {peer: statistics.median(own[1:]) for peer, own in rates.items()}
    return {
        **{"kind": "gpu shape", "version": 1, **provenance()},
        "note": f"random weights, timing only, accepted tokens drawn from {SHARES}",
        **{"shape": name, "dtype": str(dtype), "num_rows": num_rows},
        "rho": [asdict(point) for point in curve],
        "tokens_per_second": medians,
        "num_passes": passes,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Time random weights in a published shape.")
    add = parser.add_argument
    add("shape", choices=SHAPES)
    add("--rows", type=int, default=1, help="prompts at once (%(default)s)")
    add("--max-new-tokens", type=int, default=64, help="tokens of an answer (%(default)s)")
    add("--out", type=path_of, required=True, help="file to write, JSON")
    args = parser.parse_args(arguments)
    check_file(args.out)
    result = measure_shape(args.shape, args.rows, args.max_new_tokens)
    write_text(args.out, json.dumps(result, ensure_ascii=False, indent=1))
    for name, rate in result["tokens_per_second"].items():
        print(f"{name}: {rate:.0f} tokens/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
