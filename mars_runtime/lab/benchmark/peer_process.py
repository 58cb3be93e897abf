"""Script of the child process that decodes with another engine, greedily. It imports nothing from
this repository, because its Python need not have the packages. OPTIONS, its argument, is a JSON
object. Requests on standard input and answers on standard output are lines of JSON with token ids;
the first line reports the ``versions``, the last one an ``error``. Times include prefill but not
loading."""

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
from types import SimpleNamespace
from typing import Any

Fields = dict[str, Any]


class TimedTokens:
    """request: ``prompt`` (token ids), ``max_new_tokens``, ``eos_ids`` and ``threads``."""

    def __init__(self, request: Fields) -> None:
        self._max, self._eos_ids = request["max_new_tokens"], request["eos_ids"]
        self.tokens: list[int] = []
        self.moments: list[float] = []
        self.start = time.perf_counter()

    def add(self, token: int) -> bool:
        """Return whether the answer is complete."""
        self.tokens.append(token)
        self.moments.append(time.perf_counter() - self.start)
        return token in self._eos_ids or len(self.tokens) >= self._max


Answer = Callable[[Fields, TimedTokens], None]
Engine = tuple[Answer, dict[str, str]]
"""A function that answers a request, and the versions of its packages."""


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


def transformers(options: Fields) -> Engine:
    import torch
    import transformers as lib

    model = dense_model(Path(options["model"]), options["dtype"]).to(options["device"])
    model.generation_config = lib.GenerationConfig()  # not the checkpoint's sampling and penalties

    def answer(request: Fields, record: TimedTokens) -> None:
        calls: list[Any] = []

        def put(value: Any) -> None:
            if calls:  # generate passes the prompt in its first call
                record.add(int(value))
            calls.append(value)

        torch.set_num_threads(request["threads"])
        ids = torch.tensor([request["prompt"]], device=model.device)
        config = lib.GenerationConfig(
            do_sample=False,
            max_new_tokens=request["max_new_tokens"],
            eos_token_id=request["eos_ids"] or None,
            pad_token_id=0,
        )
        streamer = SimpleNamespace(put=put, end=lambda: None)
        mask = torch.ones_like(ids)
        with torch.inference_mode():
            model.generate(ids, attention_mask=mask, generation_config=config, streamer=streamer)

    return answer, {"transformers": lib.__version__, "torch": torch.__version__}


def llama_cpp(options: Fields) -> Engine:
    import llama_cpp as lib
    import numpy as np

    silent = lib.llama_log_callback(lambda level, text, user: None)
    lib.llama_log_set(silent, ctypes.c_void_p(0))
    lib.llama_backend_init()
    defaults = lib.llama_model_default_params()
    model = lib.llama_model_load_from_file(options["model"].encode(), defaults)
    if not model:
        raise ValueError("llama.cpp cannot read this file")
    params = lib.llama_context_default_params()
    params.n_ctx = params.n_batch = options["num_tokens"]
    context = lib.llama_init_from_model(model, params)
    shape = (lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model)),)

    def answer(request: Fields, record: TimedTokens, _kept: Any = silent) -> None:
        threads = request["threads"]
        lib.llama_set_n_threads(context, threads, threads)
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        fed, is_complete = request["prompt"], False
        while not is_complete:
            ids = (lib.llama_token * len(fed))(*fed)
            if lib.llama_decode(context, lib.llama_batch_get_one(ids, len(fed))) != 0:
                raise ValueError("llama_decode of llama.cpp failed")
            logits = np.ctypeslib.as_array(lib.llama_get_logits_ith(context, -1), shape)
            fed = [int(logits.argmax())]
            is_complete = record.add(fed[0])

    system = lib.llama_print_system_info().decode().strip()
    return answer, {"llama_cpp_python": lib.__version__, "llama.cpp": system}


def openvino(options: Fields) -> Engine:
    """Compute in fp32: on processors with AMX the default is bf16, which is slower for single
    tokens and changes the text. SDPA caches no prefixes."""
    import numpy as np
    import openvino_genai as lib
    from openvino import Tensor

    class PipelineStreamer(lib.StreamerBase):  # type: ignore[misc]  # has no types
        def __init__(self, record: TimedTokens) -> None:
            super().__init__()
            self.record = record

        def write(self, tokens: int | list[int]) -> Any:
            for token in tokens if isinstance(tokens, list) else [tokens]:
                self.record.add(token)
            return lib.StreamingStatus.RUNNING

        def end(self) -> None:
            """Do nothing; the pipeline requires this method."""

    @lru_cache
    def pipeline(threads: int) -> Any:
        properties: Fields = {"ATTENTION_BACKEND": "SDPA", "INFERENCE_PRECISION_HINT": "f32"}
        properties["INFERENCE_NUM_THREADS"] = threads
        return lib.LLMPipeline(options["model"], "CPU", **properties)

    def answer(request: Fields, record: TimedTokens) -> None:
        own = pipeline(request["threads"])
        stop = set(request["eos_ids"])
        limit = request["max_new_tokens"]
        config = lib.GenerationConfig(max_new_tokens=limit, do_sample=False, stop_token_ids=stop)
        record.start = time.perf_counter()  # exclude the creation of the pipeline
        own.generate(Tensor(np.array([request["prompt"]])), config, PipelineStreamer(record))

    return answer, {"openvino_genai": lib.__version__}


def onnxruntime(options: Fields) -> Engine:
    """Its model builder quantises the dequantised weights again, to 4 bits and the output head to
    8, in groups of 32 with an offset, as in a Q4_1 file."""
    import onnxruntime_genai as lib
    import transformers

    path = Path(options["model"])
    folder = tempfile.TemporaryDirectory()
    dense, built = f"{folder.name}/dense", f"{folder.name}/onnx"
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
    def model_of(threads: int, _kept: Any = folder) -> Any:
        config = lib.Config(built)
        session = {"session_options": {"intra_op_num_threads": threads}}
        config.overlay(json.dumps({"model": {"decoder": session}}))
        return lib.Model(config)

    def answer(request: Fields, record: TimedTokens) -> None:
        own = model_of(request["threads"])
        params = lib.GeneratorParams(own)
        max_length = len(request["prompt"]) + request["max_new_tokens"]
        params.set_search_options(do_sample=False, max_length=max_length)
        record.start = time.perf_counter()  # exclude the creation of the model
        generator = lib.Generator(own, params)
        generator.append_tokens(request["prompt"])
        is_complete = False
        while not is_complete:
            generator.generate_next_token()
            is_complete = record.add(int(generator.get_next_tokens()[0]))

    return answer, {"onnxruntime_genai": lib.__version__}


ENGINES: dict[str, Callable[[Fields], Engine]] = {
    engine.__name__: engine for engine in (transformers, llama_cpp, openvino, onnxruntime)
}


def main() -> None:
    # Standard output carries the answers. Redirect everything that libraries print to stderr.
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(**line: Any) -> None:
        print(json.dumps(line), file=lines, flush=True)

    options = json.loads(sys.argv[1])
    try:
        answer, versions = ENGINES[options["engine"]](options)
        send(versions=versions)
        for line in sys.stdin:
            request = json.loads(line)
            record = TimedTokens(request)
            answer(request, record)
            seconds = time.perf_counter() - record.start
            send(tokens=record.tokens, moments=record.moments, seconds=seconds)
    except Exception as error:
        send(error=" ".join(str(error).split()) or type(error).__name__)


if __name__ == "__main__":
    main()
