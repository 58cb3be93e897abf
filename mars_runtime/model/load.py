"""Load a checkpoint. Code in it is never run and pickled weights are never opened."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mars_runtime.files.inputs import check_regular
from mars_runtime.model.adapter import Adapter
from mars_runtime.model.build import COMPILING, Model, build_model, must_compile
from mars_runtime.model.config import (
    MIN_ANSWER,
    CheckpointError,
    ModelConfig,
    differing_names,
    memory_for,
    positive_int,
    printable,
)
from mars_runtime.model.fetch import Progress, download, is_intact
from mars_runtime.model.files import (
    ADAPTER_FILES,
    chosen_weights,
    read_json,
    weight_files,
)
from mars_runtime.model.gguf import read_gguf
from mars_runtime.model.quantized import Weight
from mars_runtime.model.registry import REGISTRY, Entry, default_draft, registry
from mars_runtime.model.source import Source, resolve
from mars_runtime.model.threads import limit_threads
from mars_runtime.text import MASK, TextError, Tokenizer, read_spec

DEFAULT_BLOCK_SIZE = 4
DIFFUSION_KEY = "block_diffusion_size"
_log = logging.getLogger(__name__)
HEAD, EMBEDDINGS = "lm_head.weight", "model.embed_tokens.weight"
FLOATS = {torch.float64, torch.float32, torch.float16, torch.bfloat16}
UNTRAINED_BLOCK_SIZE = 1  # without training with masks, only the next token is proposed


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """weight_files: includes those of an adapter. block_size, diffusion_size: what it was trained
    with for masks, and for block diffusion (0 for none).
    """

    name: str
    path: Path
    weight_files: tuple[Path, ...]
    model: Model
    tokenizer: Tokenizer
    block_size: int
    licence: str
    note: str
    diffusion_size: int = 0


def load_checkpoint(
    checkpoint: str | Source,
    *,
    device: str = "auto",
    dtype: str = "auto",
    registry_path: Path = REGISTRY,
    progress: Progress = lambda sentence: None,
) -> Checkpoint:
    """Download the checkpoint first if necessary. Raises CheckpointError, or its subclass
    MemoryShortError if memory runs out.

    checkpoint: as for ``resolve``, or its source. device, dtype: as for ``choose_device`` and
    ``build_model``.
    """
    if isinstance(checkpoint, str):
        checkpoint = resolve(checkpoint, registry_path)
    source = download(checkpoint, progress)
    limit_threads()
    with memory_for(source.name):
        return _load(source, device, dtype, progress)


def _load(source: Source, device: str, dtype: str, progress: Progress) -> Checkpoint:
    name, path, entry = source.name, source.path, source.entry
    where = choose_device(device)
    dtype = chosen_dtype(source, where, dtype)
    start = time.monotonic()
    progress(f"Reading {name}…")
    try:
        parts = _read_file(path, entry) if path.is_file() else _read_folder(path)
        adapter, adapter_files = _adapter(source.adapter, parts.config)
        tokenizer = _tokenizer(path, parts, entry, adapter)
    except TextError as error:
        raise CheckpointError(str(error)) from error
    if must_compile(where, dtype):
        progress(COMPILING)
    model = build_model(
        parts.config,
        parts.weights,
        device=where,
        dtype=dtype,
        adapter=adapter,
        mask_id=tokenizer.mask_id,
        tell=lambda share: progress(
            f"Packing the weights of {name} for this processor: {share:.0%}"
        ),
    )
    _log.info("Loaded %s (%s) in %.1f s.", name, model.arithmetic, time.monotonic() - start)
    trained = [adapter.block_size] if adapter else [entry.block_size] if entry else []
    has_mask = tokenizer.token_bytes(tokenizer.mask_id) == MASK.encode()
    return Checkpoint(
        name=name,
        path=path,
        weight_files=(*parts.files, *adapter_files),
        model=model,
        tokenizer=tokenizer,
        block_size=(*trained, parts.block_size if has_mask else UNTRAINED_BLOCK_SIZE)[0],
        licence=entry.licence if entry else "",
        note=entry.note if entry else "",
        diffusion_size=parts.diffusion_size,
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    config: ModelConfig
    weights: Mapping[str, Weight]
    spec: Mapping[str, Any]
    spec_config: Mapping[str, Any]
    block_size: int
    files: tuple[Path, ...]
    diffusion_size: int = 0


def _read_folder(folder: Path) -> _Parts:
    raw = read_json(folder / "config.json")
    files = tuple(chosen_weights(folder))
    config, weights = _weights(folder, files, ModelConfig.from_dict(raw))
    spec, spec_config = read_spec(folder)
    diffusion_size = positive_int(raw, DIFFUSION_KEY) if DIFFUSION_KEY in raw else 0
    default = UNTRAINED_BLOCK_SIZE if diffusion_size else DEFAULT_BLOCK_SIZE
    block_size = positive_int(raw, "mars_block_size", default)
    return _Parts(config, weights, spec, spec_config, block_size, files, diffusion_size)


def read_weights(folder: Path) -> tuple[ModelConfig, Mapping[str, Tensor]]:
    return _weights(folder, chosen_weights(folder), read_config(folder))


def read_config(folder: Path) -> ModelConfig:
    return ModelConfig.from_dict(read_json(folder / "config.json"))


def _read_file(path: Path, entry: Entry | None) -> _Parts:
    if entry is not None and entry.gguf is not None and not is_intact(entry.gguf):
        raise CheckpointError(
            f"{path} is damaged: run python -m mars_runtime fetch {entry.name} to replace it."
        )
    file = read_gguf(path)
    spec = file.tokenizer, file.tokenizer_config
    return _Parts(file.config, file.weights, *spec, UNTRAINED_BLOCK_SIZE, (path,))


def _adapter(folder: Path | None, config: ModelConfig) -> tuple[Adapter | None, list[Path]]:
    if folder is None:
        return None, []
    return Adapter.load(folder, config), weight_files(folder, ADAPTER_FILES)


def chosen_dtype(source: Source, device: torch.device, dtype: str) -> str:
    """On a CPU, auto is the dtype in the registry, if there is one."""
    is_auto = dtype == "auto" and device.type == "cpu"
    return (source.entry.dtype if is_auto and source.entry else None) or dtype


def choose_device(device: str) -> torch.device:
    """device: auto (CUDA if available), cpu, cuda, cuda:1 ... Raises CheckpointError."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        chosen = None
    if chosen is None or chosen.type not in ("cpu", "cuda"):
        raise CheckpointError(f"The device must be auto, cpu or cuda, got {device!r}.")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise CheckpointError("This machine has no CUDA device: choose the device cpu.")
    return chosen


def _tokenizer(
    path: Path, parts: _Parts, entry: Entry | None, adapter: Adapter | None
) -> Tokenizer:
    """Raises CheckpointError if the tokenizer does not fit the model."""
    mask = adapter.mask_token if adapter else entry.mask_token if entry else None
    system = entry.system if entry else None
    tokenizer = Tokenizer(parts.spec, parts.spec_config, mask=mask, system=system, name=str(path))
    if tokenizer.size > parts.config.vocab_size:
        raise CheckpointError(
            f"The tokenizer in {path} has {tokenizer.size} tokens, but the model's embedding has "
            f"only {parts.config.vocab_size} rows: fetch the tokenizer and the weights of the same "
            "checkpoint."
        )
    needed = len(tokenizer.encode_prompt("Hello")) + MIN_ANSWER
    if needed > parts.config.max_positions:
        raise CheckpointError(
            f"The model in {path} has a context of {parts.config.max_positions} tokens, but a "
            f"short prompt with its answer needs {needed}: choose a checkpoint with a longer "
            "context."
        )
    return tokenizer


class FileWeights(Mapping[str, Tensor]):
    """Weights in safetensors files by name. Each access maps a file into memory."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files: dict[str, tuple[Path, str]] = {}
        for path in files:
            with _opened(path) as file:
                names = list(file.keys())
            for name in names:
                if name in self._files:
                    raise CheckpointError(
                        f"{self.file_of(name)} and {printable(path.name)} in {path.parent} both "
                        f"contain {printable(name)}: remove the file that does not belong to the "
                        "checkpoint."
                    )
                self._files[name] = path, name

    def __getitem__(self, name: str) -> Tensor:
        path, stored = self._files[name]
        with _opened(path) as file:
            weight: Tensor = file.get_tensor(stored)
        if weight.dtype in FLOATS:
            return weight
        kind = str(weight.dtype).removeprefix("torch.")
        raise CheckpointError(
            f"{path} contains weights of type {kind}, which is not supported, such as "
            f"{printable(stored)}: choose a checkpoint in bfloat16, float16 or float32."
        )

    def __contains__(self, name: object) -> bool:
        return name in self._files  # Mapping's own method would read the weight

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def file_of(self, name: str) -> str:
        return printable(self._files[name][0].name)

    def leave_out(self, names: Iterable[str]) -> None:
        for name in names:
            self._files.pop(name, None)

    def rename(self, name: str, new_name: str) -> None:
        self._files[new_name] = self._files.pop(name)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path.parent / printable(path.name)} is missing, damaged or incomplete: fetch the "
            "checkpoint again."
        ) from error


def _weights(
    folder: Path, files: Iterable[Path], config: ModelConfig
) -> tuple[ModelConfig, FileWeights]:
    weights = FileWeights(files)
    weights.leave_out([name for name in weights if name.endswith("rotary_emb.inv_freq")])
    config = _with_its_head(weights, config)
    if (differing := differing_names(weights.keys(), config)) is not None:
        fault, name = differing
        where = f" in {weights.file_of(name)}" if name in weights else ""
        raise CheckpointError(
            f"The checkpoint in {folder} has {fault}{where}: fetch a complete checkpoint of type "
            f"{config.model_type}."
        )
    return config, weights


def _with_its_head(weights: FileWeights, config: ModelConfig) -> ModelConfig:
    """A tied checkpoint that also stores an output head, as in ``tie_weights`` of transformers: a
    head that equals the embeddings is dropped, another is used, and the returned configuration is
    not tied. Without embeddings, the head serves as both.
    """
    if not config.tie_word_embeddings or HEAD not in weights:
        return config
    if EMBEDDINGS not in weights:
        weights.rename(HEAD, EMBEDDINGS)
        return config
    head, embeddings = weights[HEAD], weights[EMBEDDINGS]
    if head.dtype != embeddings.dtype:
        head, embeddings = head.float(), embeddings.float()
    if torch.equal(head, embeddings):
        weights.leave_out([HEAD])
        return config
    return replace(config, tie_word_embeddings=False)


class Drafts:
    """Cached draft checkpoints of one target. Thread-safe. A visitor cannot make the server
    download or read anything that is not in the registry and on this machine.
    """

    def __init__(self, target: Checkpoint, registry_path: Path = REGISTRY) -> None:
        self._target = target
        self._registry_path = registry_path
        self._lock = threading.Lock()
        self._loaded: dict[str, Checkpoint] = {}

    def load(self, name: str = "") -> Checkpoint:
        known = registry(self._registry_path)
        name = name or default_draft(self._target.name, self._registry_path)
        if not name:
            raise CheckpointError(
                f"The registry names no draft model for {self._target.name}: choose another method."
            )
        with self._lock:
            if name not in self._loaded:
                source = resolve(name, self._registry_path) if name in known else None
                if source is None or source.missing:
                    raise CheckpointError(
                        f"The draft checkpoint {name!r} is not in the registry or not on this "
                        "machine: choose another one."
                    )
                self._loaded[name] = self._fitting(source)
            return self._loaded[name]

    def _fitting(self, source: Source) -> Checkpoint:
        target = self._target
        if source.name == target.name:
            return target
        draft = load_checkpoint(source, device=str(target.model.device))
        if not draft.tokenizer.has_same_ids(target.tokenizer):
            raise CheckpointError(
                f"{source.name} and {target.name} do not share a vocabulary: choose a draft "
                "checkpoint of the same model family."
            )
        return draft
