"""The model ``mars`` for lm-evaluation-harness, which decodes with this runtime.

    python -m lm_eval --model mars --model_args checkpoint=mars-smollm2,tau=0.95 --tasks …

Importing this module registers the model. lm-eval has no plug-ins, so the task files in ``tasks/``
and the command in ``cli.py`` import it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from mars_runtime.engine import Engine
from mars_runtime.engine.backend import CheckpointBackend
from mars_runtime.engine.request import MAX_DEADLINE
from mars_runtime.lab.harness.answers import (
    AnswerRecord,
    AnswerRequest,
    AnswerStore,
    decode_all,
    figures_of,
    key_of,
    record,
)
from mars_runtime.lab.harness.texts import (
    encode_context,
    encode_pair,
    render,
    score_all,
    shortened,
)
from mars_runtime.model.load import load_checkpoint
from mars_runtime.provenance import fingerprint, provenance
from mars_runtime.settings import DecodeSettings, describe

MAX_NEW_TOKENS = 256


@register_model("mars")
class MarsLM(LM):  # type: ignore[misc]  # without lm-eval, which is optional, LM is untyped
    """A checkpoint that decodes with one method.

    - checkpoint: name or folder.
    - batch_size: number of answers to decode at once; greedy text does not depend on it.
    - answers: path of a file for finished answers, so that an interrupted run can continue.
    - settings: fields of DecodeSettings.
    """

    def __init__(
        self,
        checkpoint: str = "mars-tiny",
        batch_size: int | str = 8,
        device: str | None = None,
        dtype: str = "auto",
        threads: int | None = None,
        answers: str | None = None,
        max_batch_size: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        if threads is not None:
            torch.set_num_threads(threads)
        # lm-eval passes cuda:0 by default, even without a GPU.
        has_device = device and (torch.cuda.is_available() or "cuda" not in device)
        chosen = device if device and has_device else "auto"
        self._checkpoint = load_checkpoint(checkpoint, device=chosen, dtype=dtype)
        self._tokenizer = self._checkpoint.tokenizer
        self._settings = DecodeSettings(**settings)
        self._batch_size = int(batch_size) if str(batch_size).isdigit() else 8
        self._store = AnswerStore(Path(answers) if answers else None)
        # An adapter does not change answers of AR, so only the base file identifies them.
        path = self._checkpoint.path
        is_base = self._settings.method == "ar" and path.is_file()
        self._fingerprint = fingerprint([path] if is_base else self._checkpoint.weight_files)
        self._records: list[AnswerRecord] = []

    @property
    def tokenizer_name(self) -> str:
        """Name of the checkpoint, which identifies its requests in lm-eval's cache."""
        return self._checkpoint.name

    def chat_template(self, chat_template: bool | str = False) -> str:
        """Return the name of the chat template, which lm-eval stores with the results."""
        return "ChatML"

    def apply_chat_template(
        self, chat_history: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Encode a conversation as a string that ``texts.encode_context`` can decode."""
        return render(chat_history, is_open=not add_generation_prompt)

    def get_model_info(self) -> dict[str, Any]:
        """Return the settings, figures and provenance that lm-eval stores with its results."""
        return {
            "mars": {
                **{"checkpoint": self._checkpoint.name, "fingerprint": self._fingerprint},
                **{"way": describe(self._settings), "settings": asdict(self._settings)},
                "tasks": figures_of(self._records),
                **provenance(),
            }
        }

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        answers = self._answers(requests, is_quiet=disable_tqdm)
        self._records += answers
        for request, answer in zip(requests, answers, strict=True):
            self.cache_hook.add_partial("generate_until", request.args, answer.text)
        return [answer.text for answer in answers]

    def _answers(self, requests: Sequence[Any], *, is_quiet: bool) -> list[AnswerRecord]:
        """Return the record of each request's answer; decode only answers that are not stored."""
        backend = CheckpointBackend(self._checkpoint, keeps=False)
        backend.reserve(self._batch_size)
        ours = [self._answer_request(backend.capacity, *request.args) for request in requests]
        names = [(str(request.task_name), int(request.doc_id)) for request in requests]
        weights = (self._fingerprint, self._checkpoint.model.arithmetic)
        keys = [key_of(*weights, *name, request) for name, request in zip(names, ours, strict=True)]
        missing = [number for number, key in enumerate(keys) if self._store.get(key) is None]
        if missing:
            bar = tqdm(total=len(missing), desc="Answers", disable=is_quiet)
            missing_requests = [ours[number] for number in missing]
            # A long time limit, so that answers survive if the machine is suspended for minutes.
            with Engine(backend, self._batch_size, max_turn_seconds=MAX_DEADLINE) as engine:
                for index, answer in decode_all(engine, self._tokenizer, missing_requests):
                    number = missing[index]
                    limit = ours[number].settings.max_new_tokens
                    self._store.put(keys[number], record(*names[number], answer, limit))
                    bar.update()
        return [self._store[key] for key in keys]

    def loglikelihood(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Return the log-probability of each continuation, and whether greedy decoding emits it.

        Both values are computed with plain AR.
        """
        pairs = [encode_pair(self._tokenizer, *request.args) for request in requests]
        max_tokens = self._checkpoint.model.config.max_positions
        texts = []
        for ids, first in pairs:
            shortened_ids = shortened(ids, max_tokens)
            texts.append((shortened_ids, max(1, first - (len(ids) - len(shortened_ids)))))
        scores = dict(score_all(self._checkpoint.model, texts, self._batch_size))
        return [(scores[n].log_probability, scores[n].is_greedy) for n in range(len(texts))]

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Return the log-probability of each text, computed in windows of the context length."""
        texts: list[tuple[list[int], int]] = []
        owners: list[int] = []
        max_tokens = self._checkpoint.model.config.max_positions
        for number, request in enumerate(requests):
            ids = self._tokenizer.encode(request.args[0])
            windows = get_rolling_token_windows(ids, self._tokenizer.im_end_id, max_tokens - 1, 1)
            for before, scored in map(make_disjoint_window, windows):
                texts.append(([*before, *scored], len(before)))
                owners.append(number)
        sums = [0.0] * len(requests)
        for number, score in score_all(self._checkpoint.model, texts, self._batch_size):
            sums[owners[number]] += score.log_probability
        return sums

    def _answer_request(
        self, capacity: int, context: str, arguments: Mapping[str, Any]
    ) -> AnswerRequest:
        options = normalize_gen_kwargs(dict(arguments), MAX_NEW_TOKENS)
        limit = int(options["max_gen_toks"])
        settings = replace(
            self._settings, max_new_tokens=limit, temperature=float(options.get("temperature", 0.0))
        )
        max_prompt = min(self._checkpoint.model.config.max_positions, capacity) - limit
        prompt = shortened(encode_context(self._tokenizer, context), max_prompt)
        stops = tuple(stop for stop in options["until"] if stop)
        return AnswerRequest(tuple(prompt), settings, stops)
