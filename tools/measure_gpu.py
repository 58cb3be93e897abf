"""Measure a GPU in one call: ``python tools/measure_gpu.py``.

Each step is a process of its own with a time limit. A step that fails or reaches its limit never
stops the next one. ``--dry-run`` runs every step on the CPU with tiny shapes. Results are
``results/gpu_*.json`` below ``--out``; logs are in ``runs/gpu``.

The steps ``shape_*`` time models with random weights in the shapes of Qwen2.5; the number of
accepted tokens is drawn from a histogram.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from mars_runtime.decoders.cursor import decode  # noqa: E402
from mars_runtime.files.outputs import OutputError, check_folder, path_of, write_text  # noqa: E402
from mars_runtime.lab.benchmark.forward import WIDTHS, forward_times, now, rho_curve  # noqa: E402
from mars_runtime.model.config import ModelConfig, expected_names, expected_shape  # noqa: E402
from mars_runtime.model.fetch import is_intact  # noqa: E402
from mars_runtime.model.forward import Branches, CausalModel, SamplingMetadata  # noqa: E402
from mars_runtime.model.registry import registry  # noqa: E402
from mars_runtime.model.transformer import Transformer  # noqa: E402
from mars_runtime.runs.events import Proposal, Step  # noqa: E402
from mars_runtime.settings import DecodeSettings, describe  # noqa: E402
from mars_runtime.system.provenance import provenance  # noqa: E402

INPUTS = ROOT / "runs" / "gpu"
CHAT, TASKS = "mars-smollm2", "mars-tiny"
TAIL = 20  # lines of output in the record of a step
NO_CHAT = "The chat model is not on this machine: run python -m mars_runtime fetch mars-smollm2."
SMI = "name,driver_version,memory.total,clocks.sm,clocks.max.sm,clocks.mem,power.limit"

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
    _, *streamed = model.weights()
    num_bytes = sum(weight.numel() * weight.element_size() for weight in streamed)
    source = torch.empty(num_bytes // 4, dtype=torch.float32, device=device)
    stamps = [now(device)]
    for _ in range(NUM_ROUNDS):
        source.clone()
        stamps.append(now(device))
    del source
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
        **{"shape": name, "dtype": str(dtype), "num_rows": num_rows, "weight_bytes": num_bytes},
        # a copy reads and writes
        "read_seconds": min(end - start for start, end in pairwise(stamps)) / 2,
        "rho": [asdict(point) for point in curve],
        "tokens_per_second": medians,
        "num_passes": passes,
    }


def nvidia_smi() -> list[str]:
    if not shutil.which("nvidia-smi"):
        return []
    query = ["nvidia-smi", f"--query-gpu={SMI}", "--format=csv"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()


class Measurement(NamedTuple):
    """A process that runs Python in the repository with the arguments ``command``. missing: why it
    cannot run on this machine, or empty."""

    name: str
    seconds: float
    command: Sequence[str]
    missing: str = ""


def plan(out: Path, *, has_chat: bool, is_dry: bool) -> list[Measurement]:
    no_chat = "" if has_chat else NO_CHAT
    small = "--prompts 1 --rounds 1 --max-new-tokens 4 --threads 1"
    benchmark = f"-m mars_runtime benchmark {small if is_dry else '--dtype bf16 --prompts 4'}"
    tasks = f"{benchmark} --transformers --checkpoint {TASKS} --families symbolic natural"
    chat = f"{benchmark} --transformers --checkpoint {CHAT}"

    def step(name: str, seconds: float, words: str, missing: str = "") -> Measurement:
        result = out / "results" / f"gpu_{name}.json"
        return Measurement(name, seconds, [*words.split(), "--out", str(result)], missing)

    def shape(name: str, seconds: float, words: str) -> Measurement:
        words = "tiny 2 4" if is_dry else words
        return step(name, seconds, f"tools/measure_gpu.py --shape {words}")

    files = sorted((ROOT / "tests").rglob("test_*.py"))
    tests = [str(path) for path in files if "pytest.mark.gpu" in path.read_text(encoding="utf-8")]
    steps = [
        Measurement("tests", 180, ["-m", "pytest", "-o", "addopts=", "-m", "gpu", "-x", *tests]),
        shape("shape_05b_1", 80, "qwen2.5-0.5b 1 64"),
        shape("shape_05b_8", 90, "qwen2.5-0.5b 8 64"),
        shape("shape_7b_1", 110, "qwen2.5-7b 1 64"),
        shape("shape_7b_8", 140, "qwen2.5-7b 8 64"),
        step("tasks", 90, tasks),
        step("chat", 150, chat, no_chat),
    ]
    # The limits are those of a GPU; a CPU may be slow, or busy.
    return [step._replace(seconds=300) for step in steps] if is_dry else steps


def run_steps(
    steps: Sequence[Measurement], out: Path, work: Path, environment: Mapping[str, str]
) -> list[dict[str, Any]]:
    document = {"kind": "gpu run", "version": 2, **provenance(), "nvidia_smi": nvidia_smi()}
    record = document["steps"] = []
    for step in steps:
        start, log = time.monotonic(), work / f"{step.name}.log"
        if step.missing:
            result: dict[str, Any] = {"state": "skipped", "reason": step.missing}
        else:
            code = _exit_code(step.command, log, step.seconds, environment)
            state = {0: "done", None: "stopped at its limit"}.get(code, "failed")
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            result = {"state": state, "exit_code": code, "output": lines[-TAIL:]}
        seconds = round(time.monotonic() - start, 1)
        record.append({"name": step.name, "seconds": seconds, **result})
        text = json.dumps(document, ensure_ascii=False, indent=1)
        write_text(out / "results" / "gpu_run.json", f"{text}\n")
        print(f"{step.name}: {result['state']}, {seconds:.0f} s", flush=True)
    return record


def _exit_code(
    command: Sequence[str], log: Path, limit: float, environment: Mapping[str, str]
) -> int | None:
    """Run Python; return the exit code, or None at the time limit. Kill its children."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env=dict(environment), stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure decoding on a GPU.")
    add = parser.add_argument
    add("steps", nargs="*", metavar="STEP", help="steps to run (default: all)")
    add("--out", type=path_of, help="folder of results (assets)")
    add("--dry-run", action="store_true", help="tiny shapes, on the CPU, into runs/gpu/dry-run")
    add("--shape", nargs=3, metavar=("SHAPE", "ROWS", "TOKENS"), help="run one step, --out a file")
    args = parser.parse_args(arguments)
    if args.shape:
        name, rows, tokens = args.shape
        write_text(args.out, json.dumps(measure_shape(name, int(rows), int(tokens)), indent=1))
        return 0
    work = INPUTS / "dry-run" if args.dry_run else INPUTS
    out = (args.out or (work if args.dry_run else ROOT / "assets")).resolve()
    source = registry()[CHAT].gguf
    assert source is not None
    try:
        check_folder(work)
        check_folder(out)
    except OutputError as error:
        print(error, file=sys.stderr)
        return 2
    # 7B failed with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.
    environment = {name: text for name, text in os.environ.items() if "ALLOC_CONF" not in name}
    environment |= {"CUDA_VISIBLE_DEVICES": ""} if args.dry_run else {}
    steps = plan(out, has_chat=is_intact(source), is_dry=args.dry_run)
    if unknown := set(args.steps) - {step.name for step in steps}:
        names = ", ".join(step.name for step in steps)
        parser.error(f"there is no step {min(unknown)!r}: choose among {names}.")
    chosen = [step for step in steps if not args.steps or step.name in args.steps]
    record = run_steps(chosen, out, work, environment)
    return int(any(step_record["state"] == "failed" for step_record in record))


if __name__ == "__main__":
    sys.exit(main())
