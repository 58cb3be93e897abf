"""Script of the child process that decodes with another engine, greedily.

Usage: ``PYTHON engine_child.py ENGINE MODEL NUM_TOKENS``, where ENGINE is a key of ``ENGINES`` and
PYTHON has the engine's package. The script reads requests from standard input and writes answers to
standard output, as lines of JSON with token ids. The first line of output reports the ``versions``
of the packages. If the engine fails, the last line reports the ``error``. Times include prefill but
not the loading of the model. The script imports nothing from this repository, because PYTHON need
not have its packages.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

Answer = dict[str, Any]
"""The answer to a request.

``tokens``: token ids up to EOS or ``max_new_tokens``. ``moments``: the time at which each token
arrived, in seconds since the start of the request. ``seconds``: total time.
"""


class LlamaCpp:
    """Decodes with llama.cpp, through the low-level interface of llama-cpp-python."""

    def __init__(self, path: str, num_tokens: int) -> None:
        """Load a GGUF file. Raises ValueError if this fails.

        num_tokens: maximum number of tokens of a prompt and its answer together.
        """
        import llama_cpp

        self._lib: Any = llama_cpp
        silent = llama_cpp.llama_log_callback(lambda level, text, user: None)
        llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
        self._silent = silent  # llama.cpp stores only the address, so Python must not free it
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(
            path.encode(), llama_cpp.llama_model_default_params()
        )
        if not self._model:
            raise ValueError("llama.cpp cannot read this file")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = num_tokens
        params.n_batch = num_tokens
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise ValueError("llama.cpp cannot allocate its KV cache")
        self._memory = llama_cpp.llama_get_memory(self._context)
        vocabulary = llama_cpp.llama_model_get_vocab(self._model)
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(vocabulary)
        system = llama_cpp.llama_print_system_info().decode().strip()
        self.versions = {"llama_cpp_python": llama_cpp.__version__, "llama.cpp": system}

    def answer(self, request: dict[str, Any]) -> Answer:
        """Decode a request. Raises ValueError."""
        threads = request["threads"]
        self._lib.llama_set_n_threads(self._context, threads, threads)
        self._lib.llama_memory_clear(self._memory, True)
        fed = [request["prompt"]]

        def next_token() -> int:
            token = self._next(fed.pop())
            fed.append([token])
            return token

        return _one_by_one(request, time.perf_counter(), next_token)

    def _next(self, fed: list[int]) -> int:
        """Run a forward pass on the token ids ``fed`` and return the most probable next token."""
        ids = (self._lib.llama_token * len(fed))(*fed)
        batch = self._lib.llama_batch_get_one(ids, len(fed))
        if self._lib.llama_decode(self._context, batch) != 0:
            raise ValueError("llama_decode of llama.cpp failed")
        logits = self._lib.llama_get_logits_ith(self._context, -1)
        return int(np.ctypeslib.as_array(logits, shape=(self._vocab_size,)).argmax())


class OpenVino:
    """Decodes a GGUF file with OpenVINO GenAI, with one pipeline per number of threads.

    The pipelines compute in fp32. On processors with AMX the default is bf16, which is slower for
    single tokens and changes the text. The attention backend is SDPA, which caches no prefixes.
    """

    def __init__(self, path: str, num_tokens: int) -> None:
        import openvino
        import openvino_genai

        class Moments(openvino_genai.StreamerBase):  # type: ignore[misc]  # has no types
            """Records when each token arrived."""

            def __init__(self) -> None:
                super().__init__()
                self.moments: list[float] = []

            def write(self, tokens: int | list[int]) -> Any:
                num_tokens = len(tokens) if isinstance(tokens, list) else 1
                self.moments += [time.perf_counter()] * num_tokens
                return openvino_genai.StreamingStatus.RUNNING

            def end(self) -> None:
                """Do nothing; the pipeline requires this method."""

        @lru_cache
        def pipeline(threads: int) -> Any:
            return openvino_genai.LLMPipeline(
                path,
                "CPU",
                ATTENTION_BACKEND="SDPA",
                INFERENCE_PRECISION_HINT="f32",
                INFERENCE_NUM_THREADS=threads,
            )

        self._tensor = openvino.Tensor
        self._config = openvino_genai.GenerationConfig
        self._streamer = Moments
        self._pipeline = pipeline
        self.versions = {"openvino_genai": openvino_genai.__version__}

    def answer(self, request: dict[str, Any]) -> Answer:
        """Decode a request. Raises RuntimeError."""
        pipeline = self._pipeline(request["threads"])
        config = self._config(
            max_new_tokens=request["max_new_tokens"],
            do_sample=False,
            stop_token_ids=set(request["eos_ids"]),
        )
        streamer = self._streamer()
        start = time.perf_counter()
        prompt = self._tensor(np.array([request["prompt"]], dtype=np.int64))
        (tokens,) = pipeline.generate(prompt, config, streamer).tokens
        seconds = time.perf_counter() - start
        moments = [moment - start for moment in streamer.moments]
        return {"tokens": tokens, "moments": moments, "seconds": seconds}


class OnnxRuntime:
    """Decodes with onnxruntime-genai, with one model per number of threads.

    Its model builder first converts a folder in transformers' layout. It quantises matrices to 4
    bits and the output head to 8 bits, in groups of 32 with an offset, as in a Q4_1 file.
    """

    def __init__(self, path: str, num_tokens: int) -> None:
        """Convert the weights in folder ``path``. Raises ValueError if the model builder fails."""
        import onnxruntime_genai

        built = Path(path) / "onnx"
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", path]
        command += ["-o", str(built), "-c", path, "-p", "int4", "-e", "cpu"]
        command += ["--extra_options", "algo_config=rtn_last", "is_symmetric=false"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ValueError(f"its model builder failed: {last}")

        @lru_cache
        def model(threads: int) -> Any:
            config = onnxruntime_genai.Config(str(built))
            session = {"session_options": {"intra_op_num_threads": threads}}
            config.overlay(json.dumps({"model": {"decoder": session}}))
            return onnxruntime_genai.Model(config)

        self._lib: Any = onnxruntime_genai
        self._model = model
        self.versions = {"onnxruntime_genai": onnxruntime_genai.__version__}

    def answer(self, request: dict[str, Any]) -> Answer:
        """Decode a request. Raises RuntimeError."""
        params = self._lib.GeneratorParams(self._model(request["threads"]))
        max_length = len(request["prompt"]) + request["max_new_tokens"]
        params.set_search_options(do_sample=False, max_length=max_length)
        start = time.perf_counter()
        generator = self._lib.Generator(self._model(request["threads"]), params)
        generator.append_tokens(request["prompt"])

        def next_token() -> int:
            generator.generate_next_token()
            return int(generator.get_next_tokens()[0])

        return _one_by_one(request, start, next_token)


def _one_by_one(request: dict[str, Any], start: float, next_token: Callable[[], int]) -> Answer:
    """Call ``next_token`` until EOS or the limit of the request, and return the timed answer.

    start: ``time.perf_counter`` at the start of the request.
    """
    tokens: list[int] = []
    moments: list[float] = []
    while len(tokens) < request["max_new_tokens"]:
        tokens.append(next_token())
        moments.append(time.perf_counter() - start)
        if tokens[-1] in request["eos_ids"]:
            break
    return {"tokens": tokens, "moments": moments, "seconds": time.perf_counter() - start}


ENGINES: dict[str, Callable[[str, int], Any]] = {
    "llama_cpp": LlamaCpp,
    "openvino": OpenVino,
    "onnxruntime": OnnxRuntime,
}


def main() -> None:
    """Answer requests until standard input ends."""
    # Standard output carries the answers. Redirect everything that libraries print to stderr.
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(**line: Any) -> None:
        print(json.dumps(line), file=lines, flush=True)

    name, path, num_tokens = sys.argv[1:4]
    try:
        engine = ENGINES[name](path, int(num_tokens))
        send(versions=engine.versions)
        for request in sys.stdin:
            send(**engine.answer(json.loads(request)))
    except (RuntimeError, ValueError) as error:
        send(error=" ".join(str(error).split()))


if __name__ == "__main__":
    main()
