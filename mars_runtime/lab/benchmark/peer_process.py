"""Script of the child process that decodes with another engine, greedily.

Usage: ``PYTHON peer_process.py OPTIONS``, where PYTHON has the engine's package and OPTIONS is a
    JSON object with ``engine`` (a key of ``ENGINES``), ``model`` (a GGUF file or a folder in
    transformers' layout), ``num_tokens`` (maximum of a prompt and its answer), ``dtype`` and
    ``device``. Requests on standard input and answers on standard output are lines of JSON with
    token ids; the first line reports the ``versions``, the last one an ``error``. Times include
    prefill but not loading. The script imports nothing from this repository, because PYTHON need
    not have its packages.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

Fields = dict[str, Any]


class TimedTokens:
    """The tokens of an answer, and when each arrived, in seconds since the creation.

    request: ``prompt`` (token ids), ``max_new_tokens``, ``eos_ids`` and ``threads``.
    """

    def __init__(self, request: Fields) -> None:
        self._max, self._eos_ids = request["max_new_tokens"], request["eos_ids"]
        self.tokens: list[int] = []
        self.moments: list[float] = []
        self.start = time.perf_counter()

    def add(self, token: int) -> bool:
        """Record a token. Return whether the answer is complete."""
        self.tokens.append(token)
        self.moments.append(time.perf_counter() - self.start)
        return token in self._eos_ids or len(self.tokens) >= self._max


def dense_model(path: Path, dtype: str) -> Any:
    """Load a model with transformers, without remote code; GGUF weights are dequantised."""
    import torch
    import transformers

    if path.suffix == ".gguf":
        kind: Any = transformers.AutoModelForCausalLM
        place, more = path.parent, {"gguf_file": path.name}
    else:
        kinds = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}
        model_type = json.loads((path / "config.json").read_text(encoding="utf-8"))["model_type"]
        kind = getattr(transformers, kinds.get(model_type, "Qwen2ForCausalLM"))
        place, more = path, {}
    return kind.from_pretrained(place, dtype=getattr(torch, dtype), **more).eval()


class Transformers:
    def __init__(self, options: Fields) -> None:
        import torch
        import transformers

        self._torch, self._lib = torch, transformers
        self._model = dense_model(Path(options["model"]), options["dtype"]).to(options["device"])
        # Replace the generation defaults of the checkpoint, such as sampling and penalties.
        self._model.generation_config = transformers.GenerationConfig()
        self.versions = {"transformers": transformers.__version__, "torch": torch.__version__}

    def answer(self, request: Fields, record: TimedTokens) -> None:
        class GenerateStreamer:
            def __init__(self) -> None:
                self.has_prompt = False

            def put(self, value: Any) -> None:
                if self.has_prompt:
                    record.add(int(value))
                self.has_prompt = True  # generate passes the prompt in its first call

            def end(self) -> None:
                """Do nothing; generate requires this method."""

        self._torch.set_num_threads(request["threads"])
        ids = self._torch.tensor([request["prompt"]], device=self._model.device)
        config = self._lib.GenerationConfig(
            do_sample=False,
            max_new_tokens=request["max_new_tokens"],
            eos_token_id=request["eos_ids"] or None,
            pad_token_id=0,
        )
        mask = self._torch.ones_like(ids)
        with self._torch.inference_mode():
            self._model.generate(
                ids, attention_mask=mask, generation_config=config, streamer=GenerateStreamer()
            )


class LlamaCpp:
    def __init__(self, options: Fields) -> None:
        import llama_cpp
        import numpy as np

        self._lib, self._array = llama_cpp, np.ctypeslib.as_array
        self._silent = llama_cpp.llama_log_callback(lambda level, text, user: None)
        llama_cpp.llama_log_set(self._silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        defaults = llama_cpp.llama_model_default_params()
        self._model = llama_cpp.llama_model_load_from_file(options["model"].encode(), defaults)
        if not self._model:
            raise ValueError("llama.cpp cannot read this file")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = options["num_tokens"]
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        vocabulary = llama_cpp.llama_model_get_vocab(self._model)
        self._shape = (llama_cpp.llama_vocab_n_tokens(vocabulary),)
        system = llama_cpp.llama_print_system_info().decode().strip()
        self.versions = {"llama_cpp_python": llama_cpp.__version__, "llama.cpp": system}

    def answer(self, request: Fields, record: TimedTokens) -> None:
        lib, threads = self._lib, request["threads"]
        lib.llama_set_n_threads(self._context, threads, threads)
        lib.llama_memory_clear(lib.llama_get_memory(self._context), True)
        fed, is_complete = request["prompt"], False
        while not is_complete:
            ids = (lib.llama_token * len(fed))(*fed)
            if lib.llama_decode(self._context, lib.llama_batch_get_one(ids, len(fed))) != 0:
                raise ValueError("llama_decode of llama.cpp failed")
            logits = self._array(lib.llama_get_logits_ith(self._context, -1), self._shape)
            fed = [int(logits.argmax())]
            is_complete = record.add(fed[0])


class OpenVino:
    """OpenVINO GenAI on a GGUF file, with one pipeline per number of threads.

    It computes in fp32: on processors with AMX the default is bf16, which is slower for single
    tokens and changes the text. The attention backend is SDPA, which caches no prefixes.
    """

    def __init__(self, options: Fields) -> None:
        import numpy as np
        import openvino
        import openvino_genai

        class PipelineStreamer(openvino_genai.StreamerBase):  # type: ignore[misc]  # has no types
            def __init__(self, record: TimedTokens) -> None:
                super().__init__()
                self.record = record

            def write(self, tokens: int | list[int]) -> Any:
                for token in tokens if isinstance(tokens, list) else [tokens]:
                    self.record.add(token)
                return openvino_genai.StreamingStatus.RUNNING

            def end(self) -> None:
                """Do nothing; the pipeline requires this method."""

        @lru_cache
        def pipeline(threads: int) -> Any:
            return openvino_genai.LLMPipeline(
                options["model"],
                "CPU",
                ATTENTION_BACKEND="SDPA",
                INFERENCE_PRECISION_HINT="f32",
                INFERENCE_NUM_THREADS=threads,
            )

        self._pipeline, self._streamer = pipeline, PipelineStreamer
        self._tensor, self._array = openvino.Tensor, np.array
        self._config = openvino_genai.GenerationConfig
        self.versions = {"openvino_genai": openvino_genai.__version__}

    def answer(self, request: Fields, record: TimedTokens) -> None:
        pipeline = self._pipeline(request["threads"])
        config = self._config(
            max_new_tokens=request["max_new_tokens"],
            do_sample=False,
            stop_token_ids=set(request["eos_ids"]),
        )
        record.start = time.perf_counter()  # exclude the creation of the pipeline
        prompt = self._tensor(self._array([request["prompt"]]))
        pipeline.generate(prompt, config, self._streamer(record))


class OnnxRuntime:
    """onnxruntime-genai on the dequantised weights of a GGUF file, with a model per thread count.

    Its model builder quantises matrices to 4 bits and the output head to 8 bits, in groups of 32
    with an offset, as in a Q4_1 file.
    """

    def __init__(self, options: Fields) -> None:
        import onnxruntime_genai
        import transformers

        path = Path(options["model"])
        self._folder = tempfile.TemporaryDirectory()
        dense, built = f"{self._folder.name}/dense", f"{self._folder.name}/onnx"
        model = dense_model(path, "float32")
        # The loaded weights are dense, but transformers cannot save a model marked as quantised.
        model.hf_quantizer = None
        del model.config.quantization_config
        model.save_pretrained(dense)
        tokenizer: Any = transformers.AutoTokenizer
        tokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(dense)
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", dense]
        command += ["-o", built, "-c", dense, "-p", "int4", "-e", "cpu"]
        command += ["--extra_options", "algo_config=rtn_last", "is_symmetric=false"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ValueError(f"its model builder failed: {last}")

        @lru_cache
        def model_of(threads: int) -> Any:
            config = onnxruntime_genai.Config(built)
            session = {"session_options": {"intra_op_num_threads": threads}}
            config.overlay(json.dumps({"model": {"decoder": session}}))
            return onnxruntime_genai.Model(config)

        self._lib, self._model_of = onnxruntime_genai, model_of
        self.versions = {"onnxruntime_genai": onnxruntime_genai.__version__}

    def answer(self, request: Fields, record: TimedTokens) -> None:
        model = self._model_of(request["threads"])
        params = self._lib.GeneratorParams(model)
        max_length = len(request["prompt"]) + request["max_new_tokens"]
        params.set_search_options(do_sample=False, max_length=max_length)
        record.start = time.perf_counter()  # exclude the creation of the model
        generator = self._lib.Generator(model, params)
        generator.append_tokens(request["prompt"])
        is_complete = False
        while not is_complete:
            generator.generate_next_token()
            is_complete = record.add(int(generator.get_next_tokens()[0]))


ENGINES: dict[str, Callable[[Fields], Any]] = {
    "transformers": Transformers,
    "llama_cpp": LlamaCpp,
    "openvino": OpenVino,
    "onnxruntime": OnnxRuntime,
}


def main() -> None:
    # Standard output carries the answers. Redirect everything that libraries print to stderr.
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(**line: Any) -> None:
        print(json.dumps(line), file=lines, flush=True)

    options = json.loads(sys.argv[1])
    try:
        engine = ENGINES[options["engine"]](options)
        send(versions=engine.versions)
        for line in sys.stdin:
            request = json.loads(line)
            record = TimedTokens(request)
            engine.answer(request, record)
            seconds = time.perf_counter() - record.start
            send(tokens=record.tokens, moments=record.moments, seconds=seconds)
    except Exception as error:
        send(error=" ".join(str(error).split()) or type(error).__name__)


if __name__ == "__main__":
    main()
