"""Decode with transformers, on the same weights as this runtime.

Four methods are available: ``generate`` with a dynamic cache, with a static cache (which
transformers compiles on CUDA) and with prompt lookup, and continuous batching. All are greedy and
without penalties, with the dtype and device of this runtime. No remote code is run.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Container, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import torch

from mars_runtime.lab.benchmark.forward import now
from mars_runtime.lab.benchmark.paired import Ask, PromptGroup, TimedAnswer, TimedRow, one_row
from mars_runtime.model.load import Checkpoint

PAGE = 256
LOOKUP_TOKENS = 10
"""The example value of ``prompt_lookup_num_tokens`` in the documentation of transformers."""


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """Conditions that end an answer. Without EOS ids, each row gets ``max_new_tokens`` tokens."""

    eos_ids: tuple[int, ...]
    max_new_tokens: int

    def config(self, **more: Any) -> Any:
        """Return a greedy GenerationConfig that ignores the defaults of the checkpoint.

        more: additional fields of the config.
        """
        import transformers

        return transformers.GenerationConfig(
            do_sample=False,
            max_new_tokens=self.max_new_tokens,
            eos_token_id=list(self.eos_ids) or None,
            pad_token_id=self.eos_ids[0] if self.eos_ids else 0,
            **more,
        )


class _Moments:
    """A streamer for ``generate`` that records the time of each pass and its tokens per row."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.moments: list[float] = []
        self.counts: list[int] = []
        self._has_prompt = False

    def put(self, value: torch.Tensor) -> None:
        """Record the tokens of one forward pass: [rows], or [1, n] for n tokens of a single row.

        ``generate`` passes the prompts in its first call, which is not recorded.
        """
        if self._has_prompt:
            self.moments.append(now(torch.device("cpu")) - self.start)
            self.counts.append(value.shape[-1] if value.dim() == 2 else 1)
        self._has_prompt = True

    def end(self) -> None:
        """Do nothing; ``generate`` requires this method."""


def generate_ask(model: Any, decoding: AnswerEnd, **more: Any) -> Ask:
    """Return a function that answers prompts with ``model.generate`` and measures the time.

    more: additional fields of the GenerationConfig.
    """
    config = decoding.config(**more)

    def ask(question: PromptGroup) -> TimedAnswer:
        ids, mask = _padded(question.prompts, config.pad_token_id, model.device)
        streamer = _Moments(now(model.device))
        with torch.inference_mode():
            texts = model.generate(
                ids, attention_mask=mask, generation_config=config, streamer=streamer
            )
        seconds = now(model.device) - streamer.start
        outputs = texts[:, ids.shape[1] :].tolist()
        rows = tuple(_row(output, decoding.eos_ids, streamer) for output in outputs)
        return TimedAnswer(rows, seconds, len(streamer.moments))

    return ask


class ContinuousBatching:
    """Answers questions by continuous batching of transformers, in a worker thread.

    The KV cache has space for ``num_rows`` prompts of ``max_prompt`` tokens and their answers.
    Prefix sharing is off, so that repeated prompts are prefilled again in every round.
    """

    def __init__(self, model: Any, decoding: AnswerEnd, num_rows: int, max_prompt: int) -> None:
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

    def ask(self, question: PromptGroup) -> TimedAnswer:
        """Answer all prompts at once. Raises RuntimeError if the worker thread fails."""
        start = now(self._model.device)
        prompts = [list(prompt) for prompt in question.prompts]
        waiting = self._manager.add_requests(prompts, record_timestamps=True)
        done: dict[str, Any] = {}
        while len(done) < len(waiting):
            result = self._manager.get_result(timeout=1)
            if result is None and not self._manager.is_running():
                raise RuntimeError("The worker thread of continuous batching has ended.")
            if result is not None and result.is_finished():
                if result.error:
                    raise RuntimeError(f"Continuous batching failed: {result.error}")
                done[result.request_id] = result
        seconds = now(self._model.device) - start
        rows = [
            one_row(result.generated_tokens, [moment - start for moment in result.timestamps])
            for result in (done[name] for name in waiting)
        ]
        return TimedAnswer(tuple(rows), seconds, max(len(row.chunks) for row in rows))

    def close(self) -> None:
        """End the worker thread. Without this call the process would not exit."""
        self._manager.destroy()


def has_continuous_batching() -> bool:
    """Return whether the installed transformers supports continuous batching as used here."""
    import transformers

    config = getattr(transformers, "ContinuousBatchingConfig", None)
    wanted = {"page_size", "num_blocks", "max_batch_tokens", "max_requests_per_batch"}
    known = set(getattr(config, "__dataclass_fields__", ()))
    return wanted <= known and hasattr(transformers.GenerationMixin, "init_continuous_batching")


def loader(checkpoint: Checkpoint) -> Callable[[], Any]:
    """Return a function that loads the weights of a checkpoint as a transformers model.

    transformers converts the quantised weights of a GGUF file to fp32.
    """

    def load() -> Any:
        import transformers

        transformers.utils.logging.disable_progress_bar()
        kind: Any = {
            "llama": transformers.LlamaForCausalLM,
            "qwen3": transformers.Qwen3ForCausalLM,
        }.get(checkpoint.model.config.model_type, transformers.Qwen2ForCausalLM)
        gguf = gguf_of(checkpoint)
        if gguf is None:
            model = kind.from_pretrained(checkpoint.path, dtype=checkpoint.model.dtype)
        else:
            with redirect_stderr(io.StringIO()):  # hides a progress bar
                model = kind.from_pretrained(
                    gguf.parent, gguf_file=gguf.name, dtype=checkpoint.model.dtype
                )
        # Replace the generation defaults of the checkpoint, such as sampling and penalties.
        model.generation_config = transformers.GenerationConfig()
        return model.to(checkpoint.model.device).eval()

    return load


def folder_writer(checkpoint: Checkpoint, gguf: Path) -> Callable[[Path], Path]:
    """Return a function that writes the weights of a GGUF file to a folder.

    The function returns the path of the folder, which has fp32 weights in the layout of
    transformers.
    """

    def write(folder: Path) -> Path:
        import transformers

        model = loader(checkpoint)()
        # The loaded weights are dense, but transformers cannot save a model marked as quantised.
        model.hf_quantizer = None
        del model.config.quantization_config
        model.save_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        tokenizer.save_pretrained(folder)
        return folder

    return write


def gguf_of(checkpoint: Checkpoint) -> Path | None:
    """Return the GGUF file that a checkpoint was loaded from, or None if it is a folder."""
    return checkpoint.path if checkpoint.path.suffix == ".gguf" else None


def _padded(
    prompts: Sequence[Sequence[int]], pad: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad prompts on the left; return token ids and attention mask, both [R, longest]."""
    longest = max(map(len, prompts))
    ids = [[pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _row(output: list[int], eos_ids: Container[int], streamer: _Moments) -> TimedRow:
    """Return a row of the output of ``generate``, up to the first EOS.

    After EOS, a row has padding if other rows were unfinished.
    """
    length = next((i + 1 for i, token in enumerate(output) if token in eos_ids), len(output))
    ends = [0, *(min(end, length) for end in accumulate(streamer.counts))]
    counts = [count for start, end in pairwise(ends) if (count := end - start)]
    return one_row(output, streamer.moments[: len(counts)], counts)
