"""The paper's own samplers as peers, from a copy of their repository (github.com/Xalp/MARS).

Their code is imported from the folder the user names and is not part of this repository; this
adapter was written against commit b191204. ``tests/benchmark/test_official.py`` holds it against a
stand-in, and against the samplers themselves where MARS_OFFICIAL names a copy. One prompt goes to
``MARSCachedSampler``, several to ``MARSBlockCachedSampler`` (the cached one mixes rows up in
batches). They get the same weights in transformers' class. Knows nothing of their inside but what a
forward is fed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from mars_runtime.lab.benchmark.answer import Answer, Chunk, Row, one_row
from mars_runtime.lab.benchmark.paired import Question
from mars_runtime.lab.benchmark.peers import Ask, now
from mars_runtime.model.config import CheckpointError
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Tokenizer

FOLDER = Path("mars") / "samplers"
ALONE, TOGETHER = "MARSCachedSampler", "MARSBlockCachedSampler"


def load_samplers(repository: Path) -> ModuleType:
    """The package of the samplers in a copy of the repository. Raises CheckpointError, one
    sentence, when it is not there or cannot be imported."""
    path = repository / FOLDER / "__init__.py"
    if not path.is_file():
        raise CheckpointError(
            f"There is no {FOLDER} in {repository}: give --official a copy of Xalp/MARS."
        )
    # By its file and under a name of its own: the packages around it ask for more than is needed.
    name = "official_mars_samplers"
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=[str(path.parent)]
    )
    assert spec, "a file of Python can be loaded"
    assert spec.loader, "a file of Python has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise CheckpointError(
            f"The samplers in {repository} cannot be imported ({type(error).__name__}: {error}): "
            "install what they need, or leave --official out."
        ) from error
    for wanted in (ALONE, TOGETHER):
        if not hasattr(module, wanted):
            raise CheckpointError(
                f"The samplers in {repository} have no {wanted}: use commit b191204 of Xalp/MARS."
            )
    return module


def official_ask(
    samplers: ModuleType,
    model: Any,
    tokenizer: Tokenizer,
    settings: DecodeSettings,
    cache_block: int,
) -> Ask:
    """The official sampler with tau, B and limit of ``settings``; ``cache_block`` is its
    ``block_size`` in batches, where it has no B of its own. Raises CheckpointError on failure."""
    special = SimpleNamespace(
        mask_token_id=tokenizer.mask_id,
        pad_token_id=tokenizer.pad_id,
        bos_token_id=tokenizer.pad_id,
        eos_token_id=tokenizer.im_end_id,
    )

    def ask(question: Question) -> Answer:
        is_alone = len(question.prompts) == 1
        watched = _Watched(model)
        block = settings.num_proposals if is_alone else cache_block
        prompts = [list(prompt) for prompt in question.prompts]
        kind = getattr(samplers, ALONE if is_alone else TOGETHER)
        watched.start = now(model.device)
        found = _sample(kind, watched, special, prompts, settings, block)
        seconds = now(model.device) - watched.start
        outputs = found[:, max(map(len, prompts)) :].tolist()
        outputs = [_to_end(row, tokenizer, settings.max_new_tokens) for row in outputs]
        if is_alone:
            rows = [_seen_row(outputs[0], watched, block)]
        else:
            rows = [_unseen_row(output, watched) for output in outputs]
        return Answer(tuple(rows), seconds, len(watched.moments))

    return ask


def _sample(
    kind: Any,
    model: _Watched,
    special: SimpleNamespace,
    prompts: list[list[int]],
    settings: DecodeSettings,
    block: int,
) -> torch.Tensor:
    """[rows, longest prompt + answer]; whatever goes wrong in there becomes one sentence."""
    try:
        with torch.inference_mode():
            sampler = kind(model=model, tokenizer=special)
            found: torch.Tensor = sampler.sample(
                inputs=prompts,
                steps=settings.max_new_tokens,
                max_new_tokens=settings.max_new_tokens,
                block_size=block,
                temperature=0.0,
                confidence_threshold=settings.tau,
                acceptance_metric=settings.metric,
                right_shift_logits=True,
            )
            return found
    except Exception as error:
        raise CheckpointError(
            f"The official sampler failed ({type(error).__name__}: {error}): leave --official "
            "out, or use commit b191204 of Xalp/MARS."
        ) from error


class _Watched:
    """The model, noting when each forward came back and how many tokens it was fed."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.device = model.device
        self.start = 0.0
        self.moments: list[float] = []
        self.widths: list[int] = []

    def __call__(self, tokens: torch.Tensor, **more: Any) -> Any:
        if more.get("use_cache") and more.get("past_key_values") is None:
            more["past_key_values"] = length_cache()
        found = self._model(tokens, **more)
        self.moments.append(now(torch.device("cpu")) - self.start)
        self.widths.append(tokens.shape[1])
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def length_cache() -> Any:
    """An empty cache of transformers whose ``crop`` takes the length to keep, as the samplers and
    transformers 4 have it; transformers 5 wants the number to remove, as a negative one."""
    from transformers import DynamicCache

    class LengthCache(DynamicCache):
        def crop(self, length: int) -> None:
            num_removed = self.get_seq_length() - length if length >= 0 else -length
            if num_removed > 0:
                super().crop(-num_removed)

    return LengthCache()


def _to_end(row: Sequence[int], tokenizer: Tokenizer, limit: int) -> list[int]:
    """Up to the first EOS, padding and masks left out."""
    tokens: list[int] = []
    for token in row[:limit]:
        if token in (tokenizer.pad_id, tokenizer.mask_id):
            continue
        tokens.append(token)
        if token in tokenizer.eos_ids:
            break
    return tokens


def _seen_row(tokens: list[int], watched: _Watched, block: int) -> Row:
    """Each forward but the first is fed what the one before it accepted, then a block of masks."""
    counts = [width - block for width in watched.widths[1:]]
    counts.append(max(0, len(tokens) - sum(counts)))
    left, shares = len(tokens), []
    for count in counts:
        shares.append(min(count, left))
        left -= shares[-1]
    return one_row(tokens, watched.moments, shares)


def _unseen_row(tokens: list[int], watched: _Watched) -> Row:
    """From outside nobody sees which forward gave which token: all are counted at the last."""
    waits = [Chunk(moment, 0) for moment in watched.moments[:-1]]
    return Row(tuple(tokens), (*waits, Chunk(watched.moments[-1], len(tokens), len(tokens))))
