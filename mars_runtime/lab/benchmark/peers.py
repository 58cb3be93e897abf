"""The peers of a benchmark: methods of this runtime, and other engines in child processes."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from mars_runtime.lab.benchmark.forward import now
from mars_runtime.lab.benchmark.paired import Ask, Chunk, TimedAnswer
from mars_runtime.lab.evaluation.measure import Decode
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import Checkpoint
from mars_runtime.runs.events import Step
from mars_runtime.settings import (
    AR_LOOKUP,
    FIXED_BLOCK_SIZE,
    PAGE,
    RECOMMENDED,
    DecodeSettings,
    describe,
)

AR = "AR"
SCRIPT = Path(__file__).with_name("peer_process.py")


def methods(max_new_tokens: int) -> dict[str, DecodeSettings]:
    chosen = (
        DecodeSettings("ar", 1.0, 1),
        PAGE,
        RECOMMENDED,
        AR_LOOKUP,
        DecodeSettings(tau=0.95, block_size=FIXED_BLOCK_SIZE),
    )
    limited = [replace(settings, max_new_tokens=max_new_tokens) for settings in chosen]
    return {describe(settings): settings for settings in limited}


def runtime_ask(decode: Decode, settings: DecodeSettings, device: torch.device) -> Ask:
    """Return a function that times an answer until its last event and the end of the GPU's work."""

    def ask(prompt: Sequence[int]) -> TimedAnswer:
        tokens: list[int] = []
        chunks = []
        with torch.inference_mode():
            start = now(device)
            for event in decode([prompt], settings):
                if isinstance(event, Step):
                    accepted = [token for row in event.rows for token in row.accepted]
                    tokens += accepted
                    chunks.append(Chunk(time.perf_counter() - start, len(accepted)))
            seconds = now(device) - start
        return TimedAnswer(tuple(tokens), tuple(chunks), seconds)

    return ask


@dataclass(frozen=True, slots=True)
class OtherEngine:
    """needs_gguf: whether it only reads GGUF files, and only runs on the CPU."""

    name: str
    key: str
    package: str
    needs_gguf: bool = True

    @property
    def option(self) -> str:
        return f"--{self.key.replace('_', '-')}"


ENGINES = (
    OtherEngine("transformers generate", "transformers", "transformers", needs_gguf=False),
    OtherEngine("llama.cpp", "llama_cpp", "llama-cpp-python"),
    OtherEngine("OpenVINO GenAI", "openvino", "openvino-genai"),
    OtherEngine("onnxruntime-genai", "onnxruntime", "onnxruntime-genai"),
)


class ChildPeer:
    """num_tokens: maximum of a prompt and its answer. Raises CheckpointError."""

    def __init__(
        self,
        engine: OtherEngine,
        interpreter: str,
        checkpoint: Checkpoint,
        max_new_tokens: int,
        num_tokens: int,
    ) -> None:
        model, device = checkpoint.model, checkpoint.model.device
        is_readable = checkpoint.path.suffix == ".gguf" and device.type == "cpu"
        if engine.needs_gguf and not is_readable:
            raise CheckpointError(
                f"{engine.name} is only measured with GGUF files on the CPU. "
                f"Remove {engine.option}."
            )
        # transformers cannot compute with quantised weights; it dequantises them.
        dtype = model.dtype if model.dtype.is_floating_point else torch.float32
        options = {
            "engine": engine.key,
            "model": str(checkpoint.path),
            "num_tokens": num_tokens,
            "dtype": str(dtype).removeprefix("torch."),
            "device": str(device),
        }
        eos_ids = sorted(checkpoint.tokenizer.eos_ids)
        self._request = {"max_new_tokens": max_new_tokens, "eos_ids": eos_ids}
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        command = [interpreter, str(SCRIPT), json.dumps(options)]
        advice = (
            f"Pass {engine.option} the Python of an environment where `pip install "
            f"{engine.package}` succeeded."
        )
        try:
            self._child = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=quiet, text=True, encoding="utf-8"
            )
        except OSError as error:
            raise CheckpointError(f"{interpreter} cannot be run. {advice}") from error
        try:
            self.versions: dict[str, str] = self._read("versions")["versions"]
        except RuntimeError as error:
            self.close()
            fault = f"{interpreter} cannot decode {checkpoint.name} ({error})"
            raise CheckpointError(f"{fault}. {advice}") from error

    def ask(self, prompt: Sequence[int]) -> TimedAnswer:
        """Answer on as many threads as torch uses here. Raises RuntimeError if the child failed."""
        request = {"prompt": list(prompt), "threads": torch.get_num_threads(), **self._request}
        assert self._child.stdin is not None, "the child was started with a pipe"
        with suppress(OSError):  # a child that has ended cannot answer either
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
        answer = self._read("tokens")
        chunks = tuple(Chunk(moment, 1) for moment in answer["moments"])
        return TimedAnswer(tuple(answer["tokens"]), chunks, answer["seconds"])

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()

    def _read(self, key: str) -> dict[str, Any]:
        assert self._child.stdout is not None, "the child was started with a pipe"
        line = self._child.stdout.readline()
        parsed: dict[str, Any] = json.loads(line) if line else {}
        if key not in parsed:
            raise RuntimeError(parsed.get("error", "it has ended"))
        return parsed
