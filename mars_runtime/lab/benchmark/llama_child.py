"""llama.cpp in a process and an environment of its own: token ids in, greedy token ids out.

Run as ``PYTHON llama_child.py GGUF NUM_TOKENS`` with a Python that has ``llama-cpp-python``. Reads
and writes lines of JSON; the first line that it writes has its version or an error. Times include
prefill. Imports nothing of this repository.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from typing import Any

import llama_cpp
import numpy as np


class Llama:
    """One model with one context; answers prompts greedily, one at a time."""

    def __init__(self, path: str, num_tokens: int) -> None:
        """num_tokens: of a prompt and its answer together. Raises ValueError."""
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(
            path.encode(), llama_cpp.llama_model_default_params()
        )
        if not self._model:
            raise ValueError("llama.cpp can't read this file")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = num_tokens
        params.n_batch = num_tokens
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise ValueError("llama.cpp can't reserve its cache")
        self._memory = llama_cpp.llama_get_memory(self._context)
        vocabulary = llama_cpp.llama_model_get_vocab(self._model)
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(vocabulary)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return ``tokens`` up to EOS or ``max_new_tokens``, the ``moments`` at which each was
        there, and the total ``seconds``."""
        threads, eos_ids = request["threads"], set(request["eos_ids"])
        llama_cpp.llama_set_n_threads(self._context, threads, threads)
        llama_cpp.llama_memory_clear(self._memory, True)
        tokens: list[int] = []
        moments: list[float] = []
        start = time.perf_counter()
        fed = request["prompt"]
        while len(tokens) < request["max_new_tokens"]:
            tokens.append(self._next(fed))
            moments.append(time.perf_counter() - start)
            if tokens[-1] in eos_ids:
                break
            fed = tokens[-1:]
        return {"tokens": tokens, "moments": moments, "seconds": time.perf_counter() - start}

    def _next(self, fed: list[int]) -> int:
        """Feed ``fed`` and return the most probable next token."""
        ids = (llama_cpp.llama_token * len(fed))(*fed)
        batch = llama_cpp.llama_batch_get_one(ids, len(fed))
        if llama_cpp.llama_decode(self._context, batch) != 0:
            raise ValueError("llama.cpp failed to decode")
        logits = llama_cpp.llama_get_logits_ith(self._context, -1)
        return int(np.ctypeslib.as_array(logits, shape=(self._vocab_size,)).argmax())


def about() -> dict[str, str]:
    """Return the version, and the processor features that it was compiled for."""
    system = llama_cpp.llama_print_system_info()
    return {"version": llama_cpp.__version__, "system": system.decode().strip()}


def main() -> None:
    """Answer requests until standard input ends."""
    silent = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    try:
        llama = Llama(sys.argv[1], int(sys.argv[2]))
    except ValueError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    print(json.dumps(about()), flush=True)
    for line in sys.stdin:
        print(json.dumps(llama.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
