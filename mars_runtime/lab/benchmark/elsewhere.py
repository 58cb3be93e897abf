"""Peers from elsewhere on the same weights: transformers and llama.cpp.

transformers: ``generate`` with its dynamic cache, with a static cache (compiled by transformers on
CUDA), with prompt lookup, and the continuous batching behind ``generate_batch``, kept warm between
questions. Greedy, same dtype and device, no penalties; remote code is never run.

llama.cpp: a child process on the same GGUF file, asked over a pipe. It lives in an environment of
its own, because its Python package compiles for many minutes and is needed by nobody else. The
child takes the times, so the pipe is in no figure.
"""

from __future__ import annotations

import io
import json
import logging
import subprocess
from collections.abc import Callable, Container, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import torch

from mars_runtime.lab.benchmark.paired import (
    Ask,
    Question,
    TimedAnswer,
    TimedRow,
    one_row,
)
from mars_runtime.lab.benchmark.forward import now
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import Checkpoint

PAGE = 256
LOOKUP_TOKENS = 10
"""What transformers' documentation proposes for ``prompt_lookup_num_tokens``."""
CHILD = Path(__file__).with_name("llama_child.py")


@dataclass(frozen=True, slots=True)
class Decoding:
    """What ``generate`` is told: where an answer ends. No EOS: every row runs to its limit."""

    eos_ids: tuple[int, ...]
    max_new_tokens: int

    def config(self, **more: Any) -> Any:
        """A GenerationConfig: greedy, without the penalties that a card's defaults may hold."""
        import transformers  # which takes a second

        return transformers.GenerationConfig(
            do_sample=False,
            max_new_tokens=self.max_new_tokens,
            eos_token_id=list(self.eos_ids) or None,
            pad_token_id=self.eos_ids[0] if self.eos_ids else 0,
            **more,
        )


class _Moments:
    """A streamer for ``generate`` that notes when tokens were there, and how many of each row."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.moments: list[float] = []
        self.counts: list[int] = []
        self._has_prompt = False

    def put(self, value: torch.Tensor) -> None:
        """The first call brings the prompts, each later one the tokens of a forward: [rows], or
        [1, n] where several were drafted."""
        if self._has_prompt:
            self.moments.append(now(torch.device("cpu")) - self.start)
            self.counts.append(value.shape[-1] if value.dim() == 2 else 1)
        self._has_prompt = True

    def end(self) -> None:
        """Nothing is left to do."""


def generate_ask(model: Any, decoding: Decoding, **more: Any) -> Ask:
    """``model.generate`` on left-padded prompts; ``more`` goes into its GenerationConfig."""
    config = decoding.config(**more)

    def ask(question: Question) -> TimedAnswer:
        ids, mask = _padded(question.prompts, config.pad_token_id, model.device)
        streamer = _Moments(now(model.device))
        with torch.inference_mode():
            found = model.generate(
                ids, attention_mask=mask, generation_config=config, streamer=streamer
            )
        seconds = now(model.device) - streamer.start
        outputs = found[:, ids.shape[1] :].tolist()
        rows = tuple(_row(output, decoding.eos_ids, streamer) for output in outputs)
        return TimedAnswer(rows, seconds, len(streamer.moments))

    return ask


class ContinuousBatching:
    """transformers' continuous batching with its worker kept between questions.

    Pages of the cache are reserved for ``num_rows`` prompts of ``max_prompt`` tokens; prefixes are
    not shared, so that a prompt seen in an earlier round is read again. ``close`` ends the worker.
    """

    def __init__(self, model: Any, decoding: Decoding, num_rows: int, max_prompt: int) -> None:
        import transformers

        logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
        pages = -(-(max_prompt + decoding.max_new_tokens) // PAGE) + 1
        config = transformers.ContinuousBatchingConfig(
            page_size=PAGE,
            num_blocks=num_rows * pages,
            max_batch_tokens=max(PAGE, num_rows * max_prompt),
            max_requests_per_batch=num_rows,
            allow_block_sharing=False,
            use_cuda_graph=True if model.device.type == "cuda" else None,
        )
        self._model = model
        self._manager = model.init_continuous_batching(
            generation_config=decoding.config(), continuous_batching_config=config
        )
        self._manager.warmup()
        self._manager.start()

    def ask(self, question: Question) -> TimedAnswer:
        """All prompts at once. Raises RuntimeError when the worker has failed."""
        start = now(self._model.device)
        prompts = [list(prompt) for prompt in question.prompts]
        waiting = self._manager.add_requests(prompts, record_timestamps=True)
        done: dict[str, Any] = {}
        while len(done) < len(waiting):
            found = self._manager.get_result(timeout=1)
            if found is None and not self._manager.is_running():
                raise RuntimeError("transformers' continuous batching has stopped.")
            if found is not None and found.is_finished():
                if found.error:
                    raise RuntimeError(f"transformers' continuous batching failed: {found.error}")
                done[found.request_id] = found
        seconds = now(self._model.device) - start
        rows = [
            one_row(one.generated_tokens, [moment - start for moment in one.timestamps])
            for one in (done[name] for name in waiting)
        ]
        return TimedAnswer(tuple(rows), seconds, max(len(row.chunks) for row in rows))

    def close(self) -> None:
        """End the worker thread, which would keep the process alive."""
        self._manager.destroy()


def has_continuous_batching() -> bool:
    """Whether this transformers has it with what is asked of it here."""
    import transformers

    config = getattr(transformers, "ContinuousBatchingConfig", None)
    wanted = {"page_size", "num_blocks", "max_batch_tokens", "max_requests_per_batch"}
    known = set(getattr(config, "__dataclass_fields__", ()))
    return wanted <= known and hasattr(transformers.GenerationMixin, "init_continuous_batching")


def loader(checkpoint: Checkpoint) -> Callable[[], Any]:
    """Loads the same weights in transformers' own class, anew at each call; those of a GGUF file
    as transformers itself makes them, in fp32 where ours are whole numbers."""

    def load() -> Any:
        import transformers

        transformers.utils.logging.disable_progress_bar()  # it would write into tables
        is_llama = checkpoint.model.config.model_type == "llama"
        kind: Any = transformers.LlamaForCausalLM if is_llama else transformers.Qwen2ForCausalLM
        gguf = gguf_of(checkpoint)
        if gguf is None:
            model = kind.from_pretrained(checkpoint.path, dtype=checkpoint.model.dtype)
        else:
            with redirect_stderr(io.StringIO()):  # it draws a bar of its own
                model = kind.from_pretrained(
                    gguf.parent, gguf_file=gguf.name, dtype=checkpoint.model.dtype
                )
        # The card's defaults (sampling, penalties) would change greedy output.
        model.generation_config = transformers.GenerationConfig()
        return model.to(checkpoint.model.device).eval()

    return load


def gguf_of(checkpoint: Checkpoint) -> Path | None:
    """The GGUF file that a checkpoint was loaded from, None for a folder."""
    return checkpoint.path if checkpoint.path.suffix == ".gguf" else None


def _padded(
    prompts: Sequence[Sequence[int]], pad: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask [R, longest], padded on the left; made before the clock starts."""
    longest = max(map(len, prompts))
    ids = [[pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _row(output: list[int], eos_ids: Sequence[int], streamer: _Moments) -> TimedRow:
    """The row up to its first EOS; what follows is padding while other rows go on."""
    counts = [count for count in _shares(streamer.counts, _length(output, eos_ids)) if count]
    return one_row(output, streamer.moments[: len(counts)], counts)


def _length(tokens: Sequence[int], eos_ids: Container[int]) -> int:
    """How many there are up to the first EOS."""
    return next((i + 1 for i, token in enumerate(tokens) if token in eos_ids), len(tokens))


def _shares(counts: Sequence[int], total: int) -> list[int]:
    """What each of ``counts`` has of ``total``, in turn."""
    ends = [0, *(min(end, total) for end in accumulate(counts))]
    return [end - start for start, end in pairwise(ends)]


class LlamaCpp:
    """A running child on ``gguf`` with room for ``num_tokens`` of prompt and answer; close it.

    interpreter: a Python that has llama-cpp-python. Raises CheckpointError.
    """

    def __init__(self, interpreter: str, gguf: Path, num_tokens: int, child: Path = CHILD) -> None:
        command = [interpreter, str(child), str(gguf), str(num_tokens)]
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        try:
            self._child = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=quiet, text=True, encoding="utf-8"
            )
        except OSError as error:
            raise CheckpointError(
                f"{interpreter} can't be run: give --llama-cpp the Python of an environment with "
                "llama-cpp-python."
            ) from error
        about = self._read()
        if "version" not in about:
            self.close()
            why = about.get("error", "it has no llama-cpp-python")
            raise CheckpointError(
                f"{interpreter} can't serve {gguf.name} ({why}): give --llama-cpp the Python of an "
                "environment where `pip install llama-cpp-python` has worked."
            )
        self.version: str = about["version"]
        self.system: str = about["system"]

    def ask(self, question: Question, decoding: Decoding) -> TimedAnswer:
        """One prompt, on as many threads as torch has. Raises RuntimeError when the child has
        ended."""
        (prompt,) = question.prompts
        request = {
            "prompt": list(prompt),
            "max_new_tokens": decoding.max_new_tokens,
            "eos_ids": list(decoding.eos_ids),
            "threads": torch.get_num_threads(),
        }
        assert self._child.stdin is not None, "the child was started with a pipe"
        try:
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
        except OSError as error:
            raise RuntimeError("llama.cpp has stopped.") from error
        found = self._read()
        if not found:
            raise RuntimeError("llama.cpp has stopped.")
        row = one_row(found["tokens"], found["moments"])
        return TimedAnswer((row,), found["seconds"], len(found["moments"]))

    def close(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.communicate()

    def _read(self) -> dict[str, Any]:
        """The next line of the child, empty when it has ended."""
        assert self._child.stdout is not None, "the child was started with a pipe"
        line = self._child.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {}
        return found
